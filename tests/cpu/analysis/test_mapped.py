"""Boxes of random address expressions: the map has exactly the elements that the interpreter reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from louver.compile.signature import BoxParameter
from louver.ir.polynomial import Numbers
from louver.isa.tensormap import TensorMap
from louver.library.boxes import Held, tensor_map
from support import read_boxes
from support.random_access import random_access
from support.read_boxes import Described, differences

KERNELS = 5
"""Kernels of a test."""

LAUNCHES = 8

SLACK = (0, 0, 40)
"""Elements of arrays behind the last one that is read."""


def differing(seed: int) -> tuple[int, list[str]]:
    """Tiles that boxes bring in all launches of a kernel, and what is wrong."""
    kernel = random_access(seed)
    described, count, wrong = Described.of(kernel.module), 0, list[str]()
    for index in range(LAUNCHES):
        found = differences(kernel, described, kernel.launch(index), SLACK[index % len(SLACK)])
        count, wrong = count + found[0], [*wrong, *(f"{seed}, {index}: {each}" for each in found[1])]
    return count, wrong


@pytest.mark.sampled(32)
@pytest.mark.parametrize("block", range(250))
def test_a_map_has_what_the_load_reads(block: int) -> None:
    found = [differing(block * KERNELS + each) for each in range(KERNELS)]
    assert not [each for _, wrong in found for each in wrong]


def test_boxes_are_often_drawn() -> None:
    found = [differing(seed)[0] for seed in range(20)]
    assert sum(count > 0 for count in found) >= 8


Map = Callable[[BoxParameter, Held, Numbers], TensorMap]


def as_many_as_fit(box: BoxParameter, place: Held, numbers: Numbers) -> TensorMap:
    """A map that ends where the last whole row or matrix of the array does."""
    found = tensor_map(box, place, numbers)
    steps = (1, *(each // box.element_bytes for each in found.strides))
    pairs = list(zip(found.shape, steps, box.sizes, strict=True))
    last = sum((size - 1) * step for size, step, known in pairs if known is not None)
    whole = place.nbytes // box.element_bytes - 1 - last
    return replace(found, shape=tuple(whole // step + 1 if known is None else size for size, step, known in pairs))


def without(**changes: object) -> Map:
    """Maps without one of the conditions."""
    return lambda box, place, numbers: tensor_map(replace(box, **changes), place, numbers)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "seeds"), [(as_many_as_fit, (1, 49)), (without(least=()), (49,)), (without(free=None), (31,))]
)
def test_every_condition_is_needed(monkeypatch: pytest.MonkeyPatch, change: Map, seeds: tuple[int, ...]) -> None:
    assert not any(differing(seed)[1] for seed in seeds)
    monkeypatch.setattr(read_boxes, "tensor_map", change)
    assert all(differing(seed)[1] for seed in seeds)
