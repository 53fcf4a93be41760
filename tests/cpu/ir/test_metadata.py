"""Metadata as a tensor: a rectangle of it is the metadata of a tile; and what a dot says of metadata that does not fit."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.utils.exceptions import ParseError, VerifyException

import louver
from louver.ir.context import parse_ir
from louver.ir.tile import ELEMENTS
from louver.ir.tile.metadata import METADATA_ROWS, WORD_ENTRIES, metadata_shape, word_columns
from louver.isa.metadata import prepack


def entries(words: NDArray[np.uint32]) -> NDArray[np.uint16]:
    """The metadata tensor, uint16 [4·blocks, 64·words], of prepacked words: the map that `metadata.py` states."""
    blocks, count, _ = words.shape
    halves = words.view("<u2").reshape(blocks, count, 4, 32, 2)  # block, word, warp, lane, half
    return np.ascontiguousarray(halves.transpose(0, 2, 1, 3, 4)).reshape(4 * blocks, count * WORD_ENTRIES)


@pytest.mark.parametrize(("name", "pattern"), [("f16", "2:4"), ("s8", "2:4"), ("f32", "1:2")])
def test_a_rectangle_is_the_metadata_of_a_tile(name: str, pattern: str, rng: np.random.Generator) -> None:
    dtype = {"f16": np.float16, "s8": np.int8, "f32": np.float32}[name]
    stored, step = "tf32" if name == "f32" else name, word_columns(ELEMENTS[name])
    m, k = 37 + 16 * 7, 5 * step + 8
    dense = rng.integers(1, 100, (m, k)).astype(dtype)
    sparse = louver.compress(louver.prune(dense, pattern), pattern)
    whole = entries(prepack(sparse.indices, m, k, stored))
    rows, columns = metadata_shape(m, k, ELEMENTS[name])
    for _ in range(10):
        first, column = int(rng.integers(0, 5)) * METADATA_ROWS, int(rng.integers(0, 3)) * step
        height, width = int(rng.integers(1, 4)) * METADATA_ROWS, int(rng.integers(1, 3)) * step
        tile = louver.compress(
            np.ascontiguousarray(sparse.dense()[first : first + height, column : column + width]), pattern
        )
        down, across = metadata_shape(height, width, ELEMENTS[name])
        expected = entries(prepack(tile.indices, height, width, stored))[:down, :across]
        start, begin = first // METADATA_ROWS, column // step * WORD_ENTRIES
        assert start + down <= rows and begin + across <= columns
        np.testing.assert_array_equal(whole[start : start + down, begin : begin + across], expected)


def test_metadata_has_the_documented_shape() -> None:
    assert metadata_shape(32, 64, ELEMENTS["f16"]) == (2, 64)
    assert metadata_shape(33, 65, ELEMENTS["e4m3"]) == (3, 128)
    assert metadata_shape(32, 64, ELEMENTS["f32"]) == (2, 128)


ARGUMENTS = (
    "%a: tensor<32x32xf16>, %b: tensor<64x16xf16>, %e: tensor<2x64xi16>, %c: tensor<32x16xf32>, %f: tensor<4x32xi16>, "
    '%s: tensor<32x64xf16, #tt.sparse<"NV24">>, %w: tensor<32x64xf16>, %t: tensor<8x32xf16>, %u: tensor<8x16xf32>'
)
FITS = "tensor<32x32xf16>, tensor<2x64xi16> * tensor<64x16xf16> -> tensor<32x16xf32>"


def dot(text: str) -> str:
    return f"tt.func @k({ARGUMENTS}) {{\n  %d = tt.dot {text}\n  tt.return\n}}"


@pytest.mark.parametrize(
    "text",
    [
        f"%a, %b, %e, %c, sparseIndex = 0 : {FITS}",
        f"%a, %b, %c, %e, sparseIndex=0 : {FITS}",
        f"%a, %b, %e, %c {{sparseIndex = 0 : i32}} : {FITS}",
    ],
)
def test_a_dot_with_metadata_has_one_form(text: str) -> None:
    assert f"%d = tt.dot %a, %b, %e, %c, sparseIndex = 0 : {FITS}" in str(parse_ir(dot(text)))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (f"%a, %b, %e, %c : {FITS}", "metadata and a sparseIndex, or neither of the two, got metadata"),
        (
            "%w, %b, %c, sparseIndex = 0 : tensor<32x64xf16> * tensor<64x16xf16> -> tensor<32x16xf32>",
            "neither of the two, got a sparseIndex",
        ),
        (f"%a, %b, %e, %c, sparseIndex = 2 : {FITS}", "sparseIndex is 0 for a or 1 for b, got 2"),
        (f"%a, %b, %e, %c, sparseIndex = 1 : {FITS}", "a dot is [M, K] * [K, N] -> [M, N]"),
        (
            f"%a, %b, %f, %c, sparseIndex = 0 : {FITS.replace('2x64xi16', '4x32xi16')}",
            "the metadata of this dot is tensor<2x64xi16>, got tensor<4x32xi16>",
        ),
        (
            "%t, %b, %e, %u, sparseIndex = 0 : tensor<8x32xf16>, tensor<2x64xi16> * tensor<64x16xf16> -> tensor<8x16xf32>",
            "metadata is for whole rows of 16 and whole words of K, got [8, 64] of f16",
        ),
    ],
)
def test_metadata_that_does_not_fit(text: str, rule: str) -> None:
    with pytest.raises(VerifyException) as caught:
        parse_ir(dot(text))
    assert rule in str(caught.value)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("%a, %b, %e, %c, sparseIndex = 0 : tensor<32x32xf16> * tensor<64x16xf16> -> tensor<32x16xf32>", "got 4 operands and 3"),
        (f"%a, %b, %c, sparseIndex = 0 : {FITS}", "got 3 operands and 4 types"),
        (f"%a, %b, E, %c, sparseIndex = 0 : {FITS}", "expected an operand, inputPrecision or sparseIndex"),
    ],
)  # fmt: skip
def test_text_that_is_no_dot(text: str, rule: str) -> None:
    with pytest.raises(ParseError, match=rule):
        parse_ir(dot(text))
