"""Layers of experts on the device: each block of tokens takes the matrix of a sparse batch that an array has for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from support.device_products import guarded, to_numpy, to_torch
from support.triton.grouped import GROUPED, LEFT, Layer, grouped_kernel, layer

pytestmark = pytest.mark.usefixtures("torch")


def run(case: Layer, times: int = 2, **hints: Any) -> None:
    """Launch with an output of NaN in a guarded buffer; compare with float64."""
    known = {name: to_torch(each) if isinstance(each, np.ndarray) else each for name, each in case.sparse().items()}
    guard = guarded(case.exact.shape, "f16", gap=0)
    known["y"] = guard.view
    guard.view.fill_(float("nan"))
    for _ in range(times):
        grouped_kernel(case.name, **hints)[case.grid](**known)
    case.assert_close(to_numpy(guard.view).copy())
    guard.assert_untouched()


@pytest.mark.parametrize("name", GROUPED)
def test_each_block_takes_its_expert(rng: np.random.Generator, name: str) -> None:
    tokens = 1160 if name in LEFT else 1150
    features = 640 if name == "expert_rows" else 648
    run(layer(rng, name, tokens=tokens, features=features, depth=656, experts=9, programs=7))


@pytest.mark.parametrize(
    "sizes",
    [
        {"tokens": 1, "features": 8, "depth": 8, "experts": 1},
        {"tokens": 65, "features": 127, "depth": 24},
        {"tokens": 4096, "features": 1024, "depth": 512, "experts": 64},
        {"tokens": 8200, "features": 136, "depth": 64, "experts": 3},
    ],
    ids=str,
)
def test_tails_and_many_tiles(rng: np.random.Generator, sizes: dict[str, int]) -> None:
    run(layer(rng, "expert_pointers", **sizes))


@pytest.mark.parametrize(
    "hints",
    [{"metadata": "stage"}, {"metadata": "barrier"}, {"cluster": 2}],
    ids=str,
)
def test_schedules(rng: np.random.Generator, hints: dict[str, Any]) -> None:
    run(layer(rng, "expert_pointers", tokens=2000, features=1032, depth=328), **hints)


def test_a_number_that_no_expert_has_gives_zeros(rng: np.random.Generator) -> None:
    case = layer(rng, "expert_pointers", ids=[0, 1, 2])
    case.exact[64:], case.magnitude[64:] = 0, 0
    case.arguments["ids"][1:] = -1, 5
    run(case)
