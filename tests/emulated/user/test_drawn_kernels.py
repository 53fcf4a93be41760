"""Users' kernels drawn at random: right in every element between poison, on the emulator and by the interpreter."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import louver
from louver.isa import metadata
from louver.isa.metadata import PADDING_CODE
from louver.library import forms
from random_products.expected import Expected

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton.drawn.choices import Choices, draw
from support.triton.drawn.launch import Launch, Output, draw_launch, load_kernel
from support.triton.drawn.structures import MARKS, PLAIN, STRUCTURES

LARGEST = 64
"""Side of a tile."""

BYTES: dict[str, Any] = {"w": "s8", "x": "s8"}

SHARED: dict[str, Any] = {"store": "atomic"}
"""Programs share K."""

FOUND: dict[str, dict[str, Any]] = {
    "columns of bytes beside an atomic": {**BYTES, "x_rows": False, "inside": "atomic"},
    "bytes by descriptors": {**BYTES, "w_feed": "made", "x_feed": "made"},
    "K shared, pointers that move": {**SHARED, "w_feed": "moved", "x_feed": "moved"},
    "K shared, columns of weights that move": {**SHARED, "w_stored": "turned", "w_feed": "moved"},
    "K shared, nothing masked": {**SHARED, "whole": True},
    "K shared by a while loop": {**SHARED, "loop": "while", "w_feed": "moved"},
    "sums by blocks of a computed operand": {
        "w": "bf16",
        "x": "f32",
        "cast": "x",
        "w_feed": "moved",
        "inside": "scale of q",
        "into": False,
        "BP": 128,
        "BQ": 128,
        "BK": 128,
        "loop": "elements",
        "whole": True,
    },
    "K shared by a while loop, descriptors": {**SHARED, "loop": "while", "w_feed": "handed", "x_feed": "handed"},
}
"""Kernels that were wrong or refused."""


def run(choices: Choices, launch: Launch, *, on_emulator: bool) -> list[str]:
    kernel = louver.jit(load_kernel(choices))
    start = (kernel.emulate if on_emulator else kernel)[launch.grid]
    return launch.run(start, lambda array: array, lambda array: array)


@pytest.mark.sampled(7, every=2)
@pytest.mark.parametrize("seed", range(64))
def test_on_the_emulator(seed: int) -> None:
    choices = draw(seed, largest=LARGEST)
    assert run(choices, draw_launch(choices, 0, most=1.5), on_emulator=True) == []


@pytest.mark.parametrize("seed", range(100, 200))
def test_by_the_interpreter(seed: int) -> None:
    choices = draw(seed, largest=LARGEST)
    assert run(choices, draw_launch(choices, 0, most=1.5), on_emulator=False) == []


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found(name: str) -> None:
    choices = replace(PLAIN, **FOUND[name])
    for index in range(2):
        assert run(choices, draw_launch(choices, index, most=1.5), on_emulator=True) == []


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_of_the_general_path(name: str) -> None:
    """What the sanitizer runs: each is in the PTX."""
    choices, given = STRUCTURES[name], dict[str, Any]()
    kernel = louver.jit(load_kernel(choices), family="register tiles")
    launch = draw_launch(choices, 1, most=1.5)

    def start(**arguments: Any) -> None:
        given.update(arguments)
        kernel.emulate[launch.grid](**arguments)

    assert launch.run(start, lambda array: array, lambda array: array) == []
    assert re.search(MARKS[name], kernel.explain(**given).ptx)


def test_a_single_row_that_wraps() -> None:
    """`p % 1` is 0: what is compiled has no index along P unless P is left to the launch."""
    choices = replace(PLAIN, w_feed="wrapped", loop="once")
    launches = (draw_launch(choices, index) for index in range(100))
    assert run(choices, next(each for each in launches if each.sizes["P"] == 1), on_emulator=True) == []


@pytest.mark.parametrize("element", ["f16", "e4m3"])
@pytest.mark.parametrize("rows", [32, 64])
@pytest.mark.parametrize("feed", ["masked", "made"])
def test_nothing_behind_a_sparse_tensor_is_seen(
    monkeypatch: pytest.MonkeyPatch, feed: str, rows: int, element: str
) -> None:
    """Values behind it are NaN. Codes of metadata behind rows and K are legal ones, whichever they are."""
    choices = replace(PLAIN, w=element, x=element, w_feed=feed, BP=rows, BQ=32)
    launches = (draw_launch(choices, index) for index in range(200))
    launch = next(each for each in launches if each.sizes["P"] % 16 and each.sizes["K"] % 64)
    values = forms.Values.host

    def poisoned(form: forms.Values, s: louver.SparseTensor) -> Any:
        found = values(form, s)
        return np.concatenate([found.reshape(-1), np.full(4096, np.iinfo(found.dtype).max, found.dtype)])

    monkeypatch.setattr(forms.Values, "host", poisoned)
    for code in (PADDING_CODE, 0xE, 0x9):
        monkeypatch.setattr(metadata, "PADDING_CODE", code)
        monkeypatch.setattr(metadata, "_PADDING_BYTE", code << 4 | code)
        monkeypatch.setattr(forms, "PADDING_CODE", code)
        assert run(choices, replace(launch, hints={"family": "register tiles"}), on_emulator=True) == []


@pytest.mark.parametrize("family", [{}, {"family": "register tiles"}], ids=["any", "register_tiles"])
@pytest.mark.parametrize("feed", ["masked", "made"])
def test_first_rows_of_each_entry_of_a_batch(feed: str, family: dict[str, str]) -> None:
    """As of a matrix: register tiles compute a part, where a product would take all of the tensor."""
    choices = replace(PLAIN, BP=32, batch="z", shared=False, w_feed=feed)
    launches = (draw_launch(choices, index) for index in range(100))
    whole = next(each for each in launches if each.sizes["P"] > 48 and each.sizes["entries"] > 1)
    found = whole.outputs["y"].expected
    value = found.value.copy()
    value[:, 32:] = np.nan
    part = replace(
        whole,
        grid=(1, *whole.grid[1:]),
        arguments={**whole.arguments, "P": 32},
        outputs={"y": Output("f32", Expected(np, value, found.error))},
        hints=family,
    )
    assert run(choices, part, on_emulator=True) == []


def test_wrong_results_are_noticed() -> None:
    """Each check of a launch: an element, one that is missing, and what lies around an output."""
    launch = draw_launch(PLAIN, 0)
    kernel = louver.jit(load_kernel(PLAIN))[launch.grid]
    for broken, said in (
        (lambda y: y.__setitem__((0, 0), y[0, 0] + 1), r"y\[0, 0\] is .* 1 of"),
        (lambda y: y.__setitem__((0, 0), float("nan")), r"y\[0, 0\] is nan"),
        (lambda y: y.base.__setitem__((-1, -1), 0), "y is written outside of its rows"),
    ):

        def start(broken: Any = broken, **given: Any) -> None:
            kernel(**given)
            broken(given["y"])

        (wrong,) = launch.run(start, lambda array: array, lambda array: array)
        assert re.search(said, wrong), wrong
