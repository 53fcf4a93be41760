"""Products in 8 bits, with scales and with operands that are computed in the loop, at depths and tiles that leave parts of steps."""

from __future__ import annotations

import importlib.util
import zlib

import pytest

import louver
from louver.measure.forms import Sizes, bind

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton.forms.find import forms
from support.triton.forms.scaled import GROUP
from support.triton.results import check

FORMS = forms("scaled")

DEPTHS = (8, 40, 264)
"""Columns of K: a part of a step, and a part behind whole ones."""

TILES = ((64, 16), (64, 256), (128, 64), (256, 16), (256, 128))
"""Rows of the weight, and tokens."""


def run(name: str, sizes: Sizes) -> None:
    form = FORMS[name]
    call = form.call(zlib.crc32(f"{name} {sizes}".encode()), sizes)
    known, outs = bind(call, sparse=True)
    louver.jit(form.kernel).emulate[call.grid](**known)
    check(call, outs, form.tolerance, form.tolerance)


@pytest.mark.parametrize("k", DEPTHS)
@pytest.mark.parametrize("name", FORMS)
def test_depths(name: str, k: int) -> None:
    small = FORMS[name].small
    run(name, Sizes(small.BM, small.BN, k, small.BM, small.BN, small.BK))


@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("name", FORMS)
def test_tiles(name: str, tile: tuple[int, int]) -> None:
    left = name in ("fp8 columns", "block scales, sparse left", "activated operand")
    if name == "block scales, sparse left" and tile[0] > GROUP:
        pytest.skip("the kernel takes one scale of the weight for a tile")
    rows, columns = tile if left else tile[::-1]
    depth = FORMS[name].small.BK
    run(name, Sizes(rows + 8, columns, 2 * depth + 16, rows, columns, depth))


def test_one_number_that_is_loaded_as_a_tile_is_no_obstacle() -> None:
    """vLLM's kernel loads a scale of all rows as a tile of one element, under a mask of rows."""
    form = forms("vllm")["scaled product, 8-bit floats"]
    known, _ = bind(form.call(1, form.small), sparse=True)
    assert louver.jit(form.kernel).explain(**known).family == "product"


def test_a_dot_without_a_fast_unit_is_explained() -> None:
    """Tiles below 64 rows of the weight: nothing but other instructions multiply e4m3."""
    form = FORMS["fp8 rows"]
    known, _ = bind(form.call(1, Sizes(64, 64, 256, 64, 32, 128)), sparse=True)
    said = louver.jit(form.kernel).explain(**known)
    assert said.warning is not None
    assert "sm_90a multiplies e4m3 in groups of 64 rows of the sparse operand" in said.warning
    assert "has 32 and is made of other instructions" in said.warning
    assert "choose blocks with 64 rows of the sparse operand or more" in said.warning and "scaled.py:" in said.warning
    known, _ = bind(form.call(1, Sizes(64, 64, 256, 64, 64, 128)), sparse=True)
    said = louver.jit(form.kernel).explain(**known)
    assert said.warning is None
    # Dense 64×128, values 64×64, metadata 64×128/8: one byte each.
    (dot,) = said.dots
    assert dot.endswith("is wgmma.sp of 64×64×128, 13,312 bytes of operands") and "scaled.py:" in dot
    assert dot in str(said).splitlines()
