"""Launches of kernels that make forms."""

from __future__ import annotations

from louver.formats.codes import index_bytes
from louver.formats.lists import PICKERS
from louver.formats.pattern import Pattern
from louver.library.streaming.derived.record import Derived
from louver.library.streaming.launch import Launch
from louver.runtime.arrays import ArrayView


def round_into(values: ArrayView, pitch: int, out: tuple[int, int]) -> Launch:
    """Round values of f32 [rows, kept] to tf32.

    pitch: bytes from one row of values to the next.
    out: address and pitch (bytes) of the result. Zeros fill each row up to the pitch.
    """
    address, out_pitch = out
    rows, kept = values.shape
    arguments = {"kept": kept, "values": values.address, "pitch": pitch, "out": address}
    return _derived(Derived("round", Pattern(1, 2)), arguments, rows, out_pitch // 4)


def lists_into(
    indices: int, pattern: Pattern, shape: tuple[int, int, int], rows: int, out: tuple[int, int], counters: int
) -> Launch:
    """Make the lists of rows of K.

    indices: address of the tensor's indices.
    shape: number of matrices, rows of each, dense elements of a row.
    rows: rows that share a list. The windows are multiples of this number.
    out: address of the lists, and entries of a list.
    counters: see `dense_into`.
    """
    entries, m, k = shape
    address, pitch = out
    lists = -(-m // rows)
    arguments = _of_windows(pattern, m, k) | {"indices": indices, "out": address, "counters": counters}
    return _derived(Derived("list", pattern, rows), arguments | {"k": k, "lists": lists}, entries * lists, pitch)


def picks_into(
    indices: int, pattern: Pattern, shape: tuple[int, int, int], step: int, out: int, counters: int
) -> Launch:
    """Make the picks of each group of 16 rows.

    step: stored columns of a K step.
    indices, shape, counters: see `lists_into`.
    out: address of the picks.
    """
    entries, m, k = shape
    arguments = _of_windows(pattern, m, k) | {"indices": indices, "out": out, "counters": counters}
    steps, blocks = -(-arguments["kept"] // step), -(-m // 64)
    rows = entries * blocks * steps * (64 // PICKERS)
    return _derived(Derived("pick", pattern, step=step), arguments | {"steps": steps, "blocks": blocks}, rows, step)


def _of_windows(pattern: Pattern, m: int, k: int) -> dict[str, int]:
    groups = pattern.groups(k)
    return {
        "kept": groups * pattern.n,
        "windows": -(-m // pattern.length),
        "list_bytes": index_bytes(pattern, groups),
    }


def _derived(record: Derived, arguments: dict[str, int], rows: int, size: int) -> Launch:
    if 0 in (rows, size):
        return Launch(None)
    return Launch(record, arguments | {"rows": rows, "size": size}, (-(-size // record.tile[1]), rows))
