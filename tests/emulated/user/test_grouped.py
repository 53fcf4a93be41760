"""Layers of experts, on the emulator: each block of tokens takes the matrix of a sparse batch that an array has for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import louver
from louver.emulator import Earliest
from louver.formats.dtypes import element_type
from louver.user.compiled import Wanted
from louver.user.emulated import emulate
from support.jit import emulate_dependent
from support.triton.grouped import GROUPED, grouped_kernel, layer

ORDERS: list[dict[str, Any]] = [
    {},
    {"ids": [4, 0, 4]},
    {"experts": 1, "ids": [0, 0, 0]},
    {"tokens": 64, "features": 128, "ids": [3]},
    {"tokens": 192, "features": 256, "depth": 64},
]


@pytest.mark.parametrize("name", GROUPED)
def test_each_block_takes_its_expert(rng: np.random.Generator, name: str) -> None:
    sizes = {"features": 192} if name == "expert_rows" else {}
    # Rows of y [N, M] that bulk copies write.
    sizes |= {"tokens": 152} if name == "weights_left" else {}
    case = layer(rng, name, **sizes)
    known = case.sparse()
    kernel = grouped_kernel(name)
    assert kernel.explain(**known).family == "product"
    kernel.emulate[case.grid](**known)
    case.assert_close(known["y"])


@pytest.mark.parametrize("sizes", ORDERS, ids=str)
def test_orders_of_experts_and_tails(rng: np.random.Generator, sizes: dict[str, Any]) -> None:
    case = layer(rng, "expert_pointers", **sizes)
    known = case.sparse()
    grouped_kernel("expert_pointers").emulate[case.grid](**known)
    case.assert_close(known["y"])


HINTS: list[dict[str, Any]] = [
    {"metadata": "stage"},
    {"metadata": "barrier"},
    {"store": "direct"},
    {"cluster": 2},
    {"specialized": False, "consumers": 1, "stages": 1, "in_flight": 0},
    {"raster": 1},
]


@pytest.mark.parametrize("hints", HINTS, ids=str)
def test_every_schedule_reads_the_array(rng: np.random.Generator, hints: dict[str, Any]) -> None:
    case = layer(rng, "expert_pointers", tokens=200, features=270)
    known = case.sparse()
    grouped_kernel("expert_pointers", **hints).emulate[case.grid](**known)
    case.assert_close(known["y"])


def test_rows_of_a_cluster_are_numbered_one_by_one(rng: np.random.Generator) -> None:
    case = layer(rng, "rows_numbered", tokens=200, features=280, ids=[1, 0, 3])
    known = case.sparse()
    grouped_kernel("rows_numbered", cluster=2).emulate[case.grid](**known)
    case.assert_close(known["y"])


def test_more_tiles_than_programs(rng: np.random.Generator) -> None:
    case = layer(rng, "expert_pointers", tokens=500)
    known = case.sparse()
    kernel = grouped_kernel("expert_pointers")
    call, hints = kernel._call((), known)
    emulate(
        kernel._source,
        hints,
        lambda kind, variant, _, schedule: kernel._compile(
            Wanted.of(kernel._source, hints, replace(call, kind=kind), variant, "sm_90a", case.grid, schedule=schedule)
        ),
        call,
        case.grid,
        sm_count=3,
        order=Earliest(),
    )
    case.assert_close(known["y"])


@pytest.mark.parametrize("metadata", ["global", "stage"])
def test_the_array_is_read_after_the_grids_before(rng: np.random.Generator, metadata: str) -> None:
    case = layer(rng, "expert_pointers", tokens=200, features=270)
    known = case.sparse()
    emulate_dependent(grouped_kernel("expert_pointers", metadata=metadata), case.grid, known)
    case.assert_close(known["y"])


@pytest.mark.parametrize(
    ("name", "metadata", "wrong"),
    [
        ("expert_pointers", "global", 5),
        ("expert_pointers", "stage", 1 << 30),
        ("wide_numbers", "global", (1 << 32) + 1),
    ],
)
def test_a_number_that_no_expert_has_gives_zeros(
    rng: np.random.Generator, name: str, metadata: str, wrong: int
) -> None:
    case = layer(rng, name, ids=[0, 1, 2])
    known = case.sparse()
    known["ids"][1:] = -1, wrong
    grouped_kernel(name, metadata=metadata).emulate[case.grid](**known)
    case.exact[64:], case.magnitude[64:] = 0, 0
    case.assert_close(known["y"])


@pytest.mark.parametrize("name", ["expert_pointers", "wide_numbers"])
def test_both_families_agree(rng: np.random.Generator, name: str) -> None:
    case = layer(rng, name, tokens=100)
    product, tiles = case.sparse(), case.sparse()
    grouped_kernel(name).emulate[case.grid](**product)
    # Bulk copies do not read rows an odd number of elements apart.
    wide = np.zeros((100, 201), np.float16)
    wide[:, :200] = tiles["x"]
    tiles |= {"x": wide[:, :200], "stride_x": 201, "y": np.full_like(tiles["y"], np.nan)}
    grouped_kernel(name).emulate[case.grid](**tiles)
    case.assert_close(tiles["y"])
    np.testing.assert_allclose(product["y"], tiles["y"], rtol=2e-3, atol=2e-3)


def test_a_call_on_host_arrays_is_interpreted(rng: np.random.Generator) -> None:
    case = layer(rng, "expert_pointers", tokens=70, features=24, depth=72)
    known = case.sparse()
    grouped_kernel("expert_pointers")[case.grid](**known)
    case.assert_close(known["y"])


@pytest.mark.parametrize("element", ["bf16", "e4m3"])
def test_other_elements_by_triton(rng: np.random.Generator, element: str) -> None:
    pytest.importorskip("triton", reason="Triton is not installed: pip install 'louver[triton]'")
    from support.triton.grouped_kernels import expert_pointers

    case = layer(rng, "expert_pointers", depth=208)
    dtype = element_type(element).numpy
    x, w = (case.arguments[each].astype(np.float32).astype(dtype) for each in ("x", "w"))
    known = case.arguments | {"x": x, "w": louver.compress(w, "2:4"), "y": np.full((150, 136), np.nan, np.float32)}
    louver.jit(expert_pointers).emulate[case.grid](**known)
    parts = zip(range(0, 150, 64), known["ids"], strict=True)
    exact = [x[first : first + 64].astype(np.float64) @ w[expert].astype(np.float64).T for first, expert in parts]
    np.testing.assert_allclose(known["y"], np.concatenate(exact), atol=2e-2, rtol=2e-3)
