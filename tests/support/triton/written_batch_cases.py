"""Calls of the kernels of parts of K, batches and experts, written as people write them; no Triton needed to read this."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from louver.measure.forms import Array, Call, Draw, Sizes, wide
from support.triton.written_cases import BOTH, PRODUCT, TILES, Written, changed, layer, times, without

ENTRIES = 3
"""Matrices of a batch, and experts."""

PROGRAMS = 5
"""Programs that take tiles in turn."""


def batch(
    *strides: str,
    m: int | None = None,
    number: int = ENTRIES,
    turned: bool = False,
    flat: bool = False,
    entries: bool = False,
    programs: int = 0,
) -> Callable[[Draw, Sizes], Call]:
    """c[e] = a[e]·b[e]. m: rows of a. number: of entries. flat: one axis of programs. entries: the kernel is told their number.
    programs: so many take the tiles in turn.
    """

    def build(draw: Draw, s: Sizes) -> Call:
        s = replace(s, m=m or s.m)
        a, b = draw.pruned(number, s.m, s.k), draw.dense(number, s.k, s.n)
        known = {"a": s.m * s.k, "am": s.k, "ak": 1, "b": s.k * s.n, "bk": s.n, "bn": s.k if turned else 1}
        known |= {"c": s.m * s.n, "cm": s.n, "cn": 1}
        arguments: dict[str, Any] = {"a": a, "b": np.ascontiguousarray(b.swapaxes(1, 2)) if turned else b}
        arguments |= {"c": np.empty((number, s.m, s.n), np.float16), "M": s.m, "N": s.n, "K": s.k}
        arguments |= {f"stride_{each}": known[each] for each in strides} | ({"ENTRIES": number} if entries else {})
        grid = (programs or s.flat * number,) if flat or programs else (*s.grid, number)
        return Call(arguments, lambda: {"c": wide(a) @ wide(b)}, ("c",), ("a",), grid)

    return build


in_one_axis = batch("a", "am", "b", "bk", "c", "cm", flat=True, entries=True)
in_turn = batch("a", "am", "b", "bn", "c", "cm", turned=True, entries=True, programs=PROGRAMS)


def whole(build: Callable[[Draw, Sizes], Call]) -> Callable[[Draw, Sizes], Call]:
    """Sizes that are multiples of the tile's; M is the grid's."""

    def built(draw: Draw, s: Sizes) -> Call:
        call = build(draw, replace(s, m=2 * s.BM, n=2 * s.BN, k=2 * s.BK))
        return replace(call, arguments=without(call, "M"))

    return built


def parts(number: int, **more: Any) -> Callable[[Draw, Sizes, Call], Call]:
    """Sums in memory, of so many parts of K; the programs of a tile are the grid's second or third axis."""

    def change(draw: Draw, s: Sizes, call: Call) -> Call:
        return replace(
            call,
            grid=(*s.grid, number) if "CHUNK" in more else (s.flat, number),
            arguments=call.arguments | {"c": np.empty((s.m, s.n), np.float32)} | more,
            zeroed=number > 1,
        )

    return change


def _shared_weight(draw: Draw, s: Sizes, call: Call) -> Call:
    x, bias = draw.dense(ENTRIES, s.m, s.k), draw.dense(s.n)
    more = {"x": x, "bias": bias, "y": np.empty((ENTRIES, s.m, s.n), np.float16)}
    more |= {"batch_x": s.m * s.k, "batch_y": s.m * s.n}
    result = wide(x) @ wide(call.arguments["w"]).T + wide(bias)
    return replace(call, grid=(*s.grid, ENTRIES), arguments=call.arguments | more, expected=lambda: {"y": result})


def _batch_with_bias(draw: Draw, s: Sizes, call: Call) -> Call:
    x, w, bias = draw.dense(ENTRIES, s.m, s.k), draw.pruned(ENTRIES, s.n, s.k), draw.dense(ENTRIES, s.n)
    more = {"x": x, "w": w, "bias": bias, "y": np.empty((ENTRIES, s.m, s.n), np.float16)}
    result = wide(x) @ wide(w).swapaxes(1, 2) + wide(bias)[:, None]
    return replace(call, grid=(*s.grid, ENTRIES), arguments=call.arguments | more, expected=lambda: {"y": result})


def experts(*strides: str, n: int | None = None, stacked: bool = False) -> Callable[[Draw, Sizes], Call]:
    """Each tile of rows has an expert, a matrix of w. stacked: w is the experts' rows below each other."""

    def build(draw: Draw, s: Sizes) -> Call:
        s = replace(s, n=n or s.n)
        x, w = draw.dense(s.m, s.k), draw.pruned(ENTRIES, s.n, s.k)
        chosen = draw.rng.integers(0, ENTRIES, s.grid[0]).astype(np.int32)
        known = {"x": s.k, "expert": s.n * s.k, "w": s.k, "y": s.n}
        arguments: dict[str, Any] = {"x": x, "w": w.reshape(-1, s.k) if stacked else w, "experts": chosen}
        arguments |= {"y": np.empty((s.m, s.n), np.float16), "M": s.m, "N": s.n, "K": s.k}
        arguments |= {f"stride_{each}": known[each] for each in strides}
        of_rows = np.repeat(chosen, s.BM)[: s.m]
        result = np.einsum("mk,mnk->mn", wide(x), wide(w)[of_rows])
        return Call(arguments, lambda: {"y": result}, grid=s.grid)

    return build


def _sum_of_experts(draw: Draw, s: Sizes, call: Call) -> Call:
    w = draw.pruned(ENTRIES, s.n, s.k)
    result: Array = sum((e + 1) * (wide(call.arguments["x"]) @ wide(w[e]).T) for e in range(ENTRIES))  # type: ignore[assignment]
    return replace(call, arguments=call.arguments | {"w": w, "ENTRIES": ENTRIES}, expected=lambda: {"y": result})


LARGE = (PRODUCT, TILES)

BATCHES = {
    name: replace(case, module="written_batches")
    for name, case in {
        "split_by_steps": Written(
            "split_by_steps",
            changed(times("am", "ak", "bk", "bn", "cm", "cn"), parts(3)),
            LARGE,
            {"SPLIT": 3, "GROUP": 2},
        ),
        "split_by_chunks": Written("split_by_chunks", changed(times("am", "bk", "cm"), parts(3, CHUNK=128)), LARGE),
        "split_unmasked": Written(
            "split_unmasked", changed(times("am", "bk", "cm", k=256), parts(2)), LARGE, {"SPLIT": 2, "EVEN_K": True}
        ),
        "split_masked": Written(
            "split_unmasked", changed(times("am", "bk", "cm"), parts(2)), LARGE, {"SPLIT": 2, "EVEN_K": False}
        ),
        "one_part_unmasked": Written(
            "split_unmasked",
            changed(times("am", "bk", "cm", k=192), parts(1)),
            LARGE,
            {"SPLIT": 1, "EVEN_K": True},
        ),
        "batch_by_pointers": Written("batch_by_pointers", batch("a", "am", "ak", "b", "bk", "bn", "c", "cm", "cn")),
        "batch_of_40_rows": Written(
            "batch_by_pointers", batch("a", "am", "ak", "b", "bk", "bn", "c", "cm", "cn", m=40)
        ),
        "batch_of_moved_pointers": Written("batch_of_moved_pointers", batch("a", "am", "b", "bk", "c", "cm")),
        "batch_by_blocks": Written("batch_by_blocks", batch("a", "am", "b", "bk", "c", "cm"), blocks=True),
        "batch_of_one": Written(
            "batch_by_pointers", batch("a", "am", "ak", "b", "bk", "bn", "c", "cm", "cn", number=1)
        ),
        "batch_by_descriptors": Written("batch_by_descriptors", batch("a", "am", "b", "bn", "c", "cm", turned=True)),
        "batch_in_descriptors": Written("batch_in_descriptors", batch(turned=True, entries=True)),
        "batch_in_one_axis": Written("batch_in_one_axis", in_one_axis, constants={"LAST": True}),
        "batch_in_one_axis_first": Written("batch_in_one_axis", in_one_axis, constants={"LAST": False}),
        "batch_in_turn": Written("batch_in_turn", in_turn, constants={"PROGRAMS": PROGRAMS, "LAST": True}),
        "batch_in_turn_first": Written("batch_in_turn", in_turn, constants={"PROGRAMS": PROGRAMS, "LAST": False}),
        "batch_in_turn_by_descriptors": Written(
            "batch_in_turn_by_descriptors",
            batch(turned=True, entries=True, programs=PROGRAMS),
            constants={"PROGRAMS": PROGRAMS},
        ),
        "matrix_as_batch": Written("matrix_as_batch", batch(turned=True, number=1)),
        "matrix_of_two_axes_as_batch": Written("matrix_as_batch", times(turned=True)),
        "batch_of_whole_tiles": Written("batch_of_whole_tiles", whole(batch("a", "b", "c"))),
        "shared_weight": Written("shared_weight", changed(layer(), _shared_weight)),
        "batch_with_bias": Written("batch_with_bias", changed(layer(), _batch_with_bias), BOTH),
        "experts_by_pointers": Written("experts_by_pointers", experts("x", "expert", "w", "y")),
        "experts_by_descriptors": Written("experts_by_descriptors", experts()),
        "experts_stacked": Written("experts_by_descriptors", experts(n=64, stacked=True)),
        "experts_of_40_columns": Written("experts_by_descriptors", experts(n=40)),
        "sum_of_experts": Written("sum_of_experts", changed(layer(), _sum_of_experts), BOTH),
    }.items()
}
