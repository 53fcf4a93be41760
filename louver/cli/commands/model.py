"""`louver bench model` and `bench serve`: time a language model's blocks, dense and sparse, on the current GPU."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from louver.cli.commands.bench import picture
from louver.cli.commands.notes import note
from louver.measure.machine import header, require_torch
from louver.measure.protocol import Budget
from louver.measure.record import write_record
from louver.measure.report.header import SCHEMA
from louver.measure.report.model import model_tables, row_of
from louver.measure.report.serve import TOKENS, serve_tables
from louver.measure.report.table import Result


def bench_model(
    blocks: int, out: Path, *, head: bool, prefill: str, decode: str, modes: str, budget: float | None
) -> Result:
    """Measure the blocks; write `model.json` (after each row) and `model.png` into `out`.

    prefill: sequences x tokens; decode: numbers of sequences. budget: seconds, after which no further case begins.
    Raises ValueError for bad text, and CannotMeasureError if this machine cannot measure.
    """
    sizes = _numbers(prefill.replace("×", "x").split("x"))
    if len(sizes) != 2:
        raise ValueError(f"--prefill takes sequences x tokens, such as 8x2048, got {prefill!r}")
    decoded = _numbers(decode.split(","))
    time_left = Budget(budget)
    torch = require_torch()
    # Imports PyTorch.
    run: Any = import_module("louver.measure.model.run")
    wanted = run.Wanted(blocks, head, sizes, decoded, tuple(modes.split(",")))
    facts = header(torch)
    # The first swap is timed without kernels in the cache.
    path = out / "model.json"
    record = {"schema": SCHEMA, "kind": "model", **facts, "protocol": run.PROTOCOL, "blocks": blocks, "head": head}

    def keep(found: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
        write_record(path, {**record, "facts": found, "rows": rows})

    with tempfile.TemporaryDirectory() as empty, _environment("LOUVER_CACHE_DIR", empty):
        found, rows = run.measure_model(wanted, time_left, note, keep)
    record |= {"facts": found, "rows": rows}
    note(f"wrote {path}")
    note(picture(path, out / "model.png"))
    return Result("model", record, model_tables([*map(row_of, rows)], found, facts["device"]))


def bench_serve(tokens: str, out: Path, *, budget: float | None) -> Result:
    """Measure a layer's products; write `serve.json` (after each number of tokens) and `serve.png` into `out`.

    tokens: their numbers, "" for those that vLLM captures. budget: seconds, after which no further case begins.
    Raises ValueError for bad text, and CannotMeasureError if this machine cannot measure.
    """
    counts = tuple(sorted(set(_numbers(tokens.split(","))))) if tokens else TOKENS
    if counts[0] < 1:
        raise ValueError(f"numbers of tokens are positive, got {counts[0]}")
    time_left = Budget(budget)
    torch = require_torch()
    # Imports PyTorch.
    serve: Any = import_module("louver.measure.model.serve")
    path = out / "serve.json"
    record = {"schema": SCHEMA, "kind": "serve", **header(torch), "protocol": serve.PROTOCOL}

    def keep(found: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
        write_record(path, {**record, "facts": found, "rows": rows})

    found, rows = serve.measure_serve(counts, time_left, note, keep)
    record |= {"facts": found, "rows": rows}
    note(f"wrote {path}")
    note(picture(path, out / "serve.png"))
    return Result("serve", record, serve_tables([*map(row_of, rows)], found, str(record["device"])))


@contextmanager
def _environment(name: str, value: str) -> Generator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _numbers(texts: list[str]) -> tuple[int, ...]:
    try:
        return tuple(int(each) for each in texts)
    except ValueError as error:
        raise ValueError(f"numbers of sequences and tokens are whole, got {', '.join(texts)!r}") from error
