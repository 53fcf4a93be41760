"""Boxes of random address expressions: the map has exactly the elements that the interpreter reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from louver.compile.signature import BoxParameter
from louver.ir.polynomial import Numbers
from louver.isa.bulk import TensorMap
from louver.library.rows import Held, tensor_map
from support import read_boxes
from support.random_access import TILES, Launch, Operand, random_access, written
from support.random_epilogue import Writer
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


@pytest.mark.sampled(7, every=8)
@pytest.mark.parametrize("block", range(250))
def test_a_map_has_what_the_load_reads(block: int) -> None:
    found = [differing(block * KERNELS + each) for each in range(KERNELS)]
    assert not [each for _, wrong in found for each in wrong]


def test_boxes_are_often_drawn() -> None:
    found = [differing(seed)[0] for seed in range(8)]
    assert sum(count > 0 for count in found) >= 3


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


PLAIN = Operand(
    "x",
    across=False,
    steps="computed",
    by="tile",
    k_mask="moving",
    mn_mask="moving",
    entry_mask=False,
    k_shift="none",
    mn_shift="number",
    wrap="none",
    entry="none",
    numbered="plain",
    unsigned=False,
    limit="K",
    tile=TILES[0],
)

NUMBERS = {"K": 64, "LIMIT": 64, "R": 40, "E": 1, "W": 40, "START": 0, "MOVE": 8}
NUMBERS |= {"sx": 64, "sy": 64, "ex": 64, "ey": 64, "ox": -8, "oy": -8}


@pytest.mark.parametrize(
    ("change", "of_x"),
    [
        (as_many_as_fit, {"steps": "carried", "k_mask": "fixed"}),
        (without(least=()), {"k_shift": "known"}),
        (without(free=None), {"entry": "loaded"}),
    ],
    ids=["a mask stays", "columns begin before a row", "a matrix is before the array"],
)
def test_every_condition_is_needed(monkeypatch: pytest.MonkeyPatch, change: Map, of_x: dict[str, str]) -> None:
    operands = replace(PLAIN, **of_x), replace(PLAIN, name="y")  # type: ignore[arg-type]
    kernel = written(Writer(np.random.default_rng(0)), 0, operands, "elements")
    described, launch = Described.of(kernel.module), Launch(NUMBERS, (2, 1, 1), np.full(4, -1, np.int32), (0, 0))
    assert len(described.boxes) == 2
    count, wrong = differences(kernel, described, launch)
    assert not wrong
    monkeypatch.setattr(read_boxes, "tensor_map", change)
    more, wrong = differences(kernel, described, launch)
    assert wrong and more >= count > 0


def test_a_lower_bound_moves_with_the_pointer_and_its_size() -> None:
    """The size bounds lanes, the lower bound indices: no map has both."""
    of_x = {"steps": "carried", "k_mask": "floored fixed", "k_shift": "known"}
    operands = replace(PLAIN, **of_x), replace(PLAIN, name="y")  # type: ignore[arg-type]
    found = Described.of(written(Writer(np.random.default_rng(0)), 0, operands, "elements").module)
    assert {each.argument for each in found.boxes.values()} == {"y"}
