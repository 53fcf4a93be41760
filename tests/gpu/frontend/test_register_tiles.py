"""Kernels of register tiles on the device, from the texts that Triton made: the same cases as on the emulator, between guards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from louver.compile import pipeline
from louver.compile.compiled import MAX_WARPS, CompiledTiles
from louver.compile.pipeline import compile_tiles
from louver.compile.plan.feeds.prefetch_loads import prefetch_loads
from louver.compile.plan.feeds.split_addresses import split_addresses
from louver.frontend.ttir import read_ttir
from louver.ir.context import parse_ir
from louver.runtime.device import Device, current_device
from support.carried_tiles import FOR, NEXT, TYPES, WHILE
from support.carried_tiles import draw as carried_tiles
from support.carried_tiles import kernel as carrying
from support.compiled import read_copy
from support.device_tiles import launch_tiles
from support.multiples import mark_arguments, marked
from support.tile_operations import ATOMIC, ATOMICS, DTYPES, ELEMENTWISE, KEEP, SIZE, changed
from support.triton.tile_cases import TILE_CASES, kept_tiles
from support.triton.tile_runs import RUNS, Expected, Run, without_flag


@pytest.fixture(autouse=True)
def target() -> None:
    found = current_device()
    if not isinstance(found, Device) or found.target != "sm_90a":
        pytest.skip(f"these kernels are assembled for sm_90a, got {found}")


def run_on_device(compiled: CompiledTiles, run: Run, *, own_warps: bool = False) -> None:
    """Launch once; outputs are copied back into the run's arrays. own_warps: the test chose how many there are."""
    launch_tiles(compiled, run.grid, run.arguments, tuple(run.expected), own_warps=own_warps)


@pytest.mark.parametrize("name", TILE_CASES)
def test_every_kernel(rng: np.random.Generator, name: str) -> None:
    run = RUNS[name](rng, name)
    run_on_device(compile_tiles(read_copy(kept_tiles(name))), run)
    run.check()


@pytest.mark.parametrize("warps", [1, 2, 8])
@pytest.mark.parametrize(
    "name",
    [
        "dot_f16",
        "dot_s8",
        "dot_tf32",
        "right_sparse",
        "softmax_dot",
        "two_dots",
        "attention",
        "column_sums",
        "work_queue",
    ],
)
def test_any_number_of_warps(rng: np.random.Generator, name: str, warps: int) -> None:
    run = RUNS[name](rng, name)
    run_on_device(compile_tiles(read_copy(kept_tiles(name)), warps=warps), run, own_warps=True)
    run.check()


def test_a_branch_that_is_not_taken(rng: np.random.Generator) -> None:
    run = without_flag(rng)
    run_on_device(compile_tiles(read_copy(kept_tiles("two_dots"))), run)
    run.check()


@pytest.mark.parametrize("name", TILE_CASES)
def test_neighbours_that_are_moved_together(rng: np.random.Generator, name: str) -> None:
    """Every kernel with its arguments marked that are multiples of 16: addresses here all are."""
    run = RUNS[name](rng, name)
    run_on_device(compile_tiles(mark_arguments(read_copy(kept_tiles(name)), run.arguments)), run)
    run.check()


@pytest.mark.parametrize("bins", [5, SIZE])
@pytest.mark.parametrize(("kind", "element"), ATOMICS)
def test_atomics(rng: np.random.Generator, kind: str, element: str, bins: int) -> None:
    if kind == "exch" and bins < SIZE:
        pytest.skip("which exchange is the last one is left open")
    dtype = DTYPES[element]
    low, high = (-8, 9) if kind == "fadd" or element == "f32" else (-(1 << 31), 1 << 31)
    x, start = rng.integers(low, high, SIZE).astype(dtype), rng.integers(-8, 9, bins).astype(dtype)
    text = ATOMIC.format(t=element, kind=kind, bins=bins, store=KEEP.format(element) if bins == SIZE else "")
    expected = {"out": Expected(changed(kind, start, x).astype(np.float64), 0.0)}
    run = Run((1,), {"out": start.copy(), "x": x, "old": np.zeros(SIZE, dtype)}, expected)
    run_on_device(compile_tiles(parse_ir(text)), run)
    run.check()


@pytest.mark.parametrize(
    ("op", "meaning"),
    [("sin", np.sin), ("cos", np.cos), ("sqrt", np.sqrt), ("log", np.log), ("log2", np.log2), ("floor", np.floor)],
)
def test_functions(rng: np.random.Generator, op: str, meaning: Any) -> None:
    x = (rng.standard_normal(SIZE) * 100).astype(np.float32)
    x = x if op in ("sin", "cos", "floor") else np.abs(x) + np.float32(1e-3)
    exact = meaning(x.astype(np.float64))
    out = np.full(SIZE, np.nan, np.float32)
    expected = Expected(exact, 2.0**-20 * np.maximum(np.abs(exact), 1))
    run = Run((1,), {"out": out, "x": x, "y": x.copy()}, {"out": expected})
    run_on_device(compile_tiles(parse_ir(ELEMENTWISE.format(t="f32", op=f"math.{op} %a"))), run)
    run.check()


@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize(
    ("loop", "body", "ends"), [(FOR, "", "%b, %a"), (FOR, NEXT, "%b, %w"), (WHILE, NEXT, "%b, %w")]
)
@pytest.mark.parametrize("element", TYPES)
def test_tiles_that_loops_carry(
    rng: np.random.Generator, element: str, loop: str, body: str, ends: str, n: int
) -> None:
    """Elements of 8 and 16 bits stay in the words that wide loads brought."""
    x = carried_tiles(rng, element)
    if not body:
        rows = [n % 2, 1 - n % 2]
    else:
        rows = [n, n + 1] if loop == FOR else [n + 1, n]
    compiled = compile_tiles(marked(read_ttir(carrying(element, loop, body, ends)), ["out", "x"]))
    expected = Expected(x[rows].astype(np.float64), 0.0)
    run = Run((1,), {"out": np.zeros((2, x.shape[1]), x.dtype), "x": x, "n": n}, {"out": expected})
    run_on_device(compiled, run)
    run.check()


@pytest.mark.parametrize("wide", [False, True], ids=["elements", "wide"])
@pytest.mark.parametrize(
    "name", ["dot_f16", "dot_e4m3", "dot_s8", "dense_bf16", "right_sparse", "scaled_operand", "attention"]
)
def test_loads_a_step_ahead(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, name: str, wide: bool) -> None:
    """However much it is: arrays lie between guards, and what is beyond a loop's end is not read."""

    def split_and_prefetch(module: ModuleOp) -> None:
        split_addresses(module)
        prefetch_loads(module, MAX_WARPS)

    monkeypatch.setattr(pipeline, "split_addresses", split_and_prefetch)
    run = RUNS[name](rng, name)
    module = read_copy(kept_tiles(name))
    compiled = pipeline.compile_tiles(mark_arguments(module, run.arguments) if wide else module)
    run_on_device(compiled, run, own_warps=True)
    run.check()
