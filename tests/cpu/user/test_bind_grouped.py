"""Calls of layers of experts that do not fit together: the rule, what was got, before anything is launched."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import louver
from louver.ir.product import ProductNest
from louver.library.compiled import from_json, to_json
from support.triton.grouped import grouped_kernel, layer
from support.triton.texts import nest

Change = Callable[[dict[str, Any]], dict[str, Any]]


def weights(*shape: int) -> Any:
    return louver.compress(louver.prune(np.ones(shape, np.float16), "2:4"), "2:4")


REFUSED: list[tuple[str, Change, str]] = [
    ("expert_pointers", lambda _: {"ids": np.zeros(2, np.int32)}, "reaches 3 elements of 'ids', got an array of 2"),
    ("expert_pointers", lambda _: {"w": weights(5, 128, 200)}, r"for 'w', \[5, 128, 200\], got \[5, 136, 200\]$"),
    ("expert_pointers", lambda _: {"stride_e": 200}, "entries are 27200 elements apart, got a stride of 200"),
    ("expert_programs", lambda _: {"E": 6}, r"for 'w', \[5, 136, 200\], got \[6, 136, 200\]"),
    ("expert_programs", lambda _: {"E": 0}, "size E must be at least 1, got 0"),
]


@pytest.mark.parametrize(("name", "change", "message"), [pytest.param(*each, id=each[2][:40]) for each in REFUSED])
def test_a_call_that_does_not_fit(rng: np.random.Generator, name: str, change: Change, message: str) -> None:
    case = layer(rng, name)
    known = case.sparse()
    with pytest.raises(ValueError, match=message):
        grouped_kernel(name).emulate[case.grid](**known | change(known))


def test_matrices_below_each_other_run_by_register_tiles(rng: np.random.Generator) -> None:
    case = layer(rng, "expert_pointers")
    rows = case.arguments["w"].reshape(-1, 200)
    known = case.sparse() | {"w": louver.compress(rows, "2:4")}
    grouped_kernel("expert_pointers").emulate[case.grid](**known)
    case.assert_close(known["y"])
    told = r"for 'w', \[680, 200\], got \[5, 136, 200\]: matrices stored below each other need a multiple of 64 rows"
    with pytest.raises(ValueError, match=told):
        grouped_kernel("expert_pointers", stages=3).emulate[case.grid](**known)


def test_one_expert_is_a_matrix_too(rng: np.random.Generator) -> None:
    case = layer(rng, "expert_pointers", experts=1, ids=[0, 0, 0])
    known = case.sparse() | {"w": louver.compress(case.arguments["w"][0], "2:4")}
    grouped_kernel("expert_pointers").emulate[case.grid](**known)
    case.assert_close(known["y"])


def test_an_output_that_overlaps_the_numbers(rng: np.random.Generator) -> None:
    case = layer(rng, "expert_pointers")
    known = case.sparse()
    known["ids"] = known["y"].reshape(-1)[:6].view(np.int32)
    with pytest.raises(ValueError, match="stores to 'y' while other programs read 'ids', got arrays that overlap"):
        grouped_kernel("expert_pointers").emulate[case.grid](**known)


def test_nests_survive_json() -> None:
    found = nest("expert_pointers")
    assert found.a.index is not None and found.batch is None
    assert from_json(ProductNest, json.loads(json.dumps(to_json(found)))) == found
