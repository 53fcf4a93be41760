"""Formats: their texts, sizes and products, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import louver
from louver.advice.formats import DEFAULT, Format, formats_of
from louver.formats.dtypes import element_type


def test_a_text_is_a_format_and_back() -> None:
    assert [str(Format.parse(str(each))) for each in DEFAULT] == [str(each) for each in DEFAULT]
    assert Format.parse("bf16 128:2:8") == Format("bf16", "2:8@V128")
    assert [Format.parse(text).kind for text in ("s8", "s8 2:4", "f16 3:8", "f16 4:8@128")] == [
        "dense",
        "2:4",
        "vectors",
        "vectors",
    ]


@pytest.mark.parametrize("pattern", ["2:4", "4:8@128", "2:8@V128", "3:7@5"])
@pytest.mark.parametrize("element", ["f16", "e4m3", "s8"])
def test_bytes_are_those_of_a_compressed_weight(pattern: str, element: str, rng: np.random.Generator) -> None:
    weight = rng.integers(-9, 9, (130, 71)).astype(element_type(element).numpy)
    sparse = louver.compress(louver.prune(weight, pattern), pattern)
    found = Format(element, pattern).nbytes(*weight.shape)
    # Rows of values are padded in memory, and not in a file.
    assert found == sparse.values.shape[0] * sparse.values.shape[1] * weight.itemsize + sparse.indices.nbytes
    assert Format(element).nbytes(*weight.shape) == weight.nbytes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f64", "formats have elements of f16, bf16, e4m3, s8, got 'f64'"),
        ("f16 1:2", "GPUs have products of 1:2 for f32"),
        ("f16 5:4", "keeps 1 to M elements of a group, got 5:4"),
        ("f16 2:4 x", "a format is an element type, or one and a pattern, such as \"f16 2:4\", got 'f16 2:4 x'"),
        ("", "a format is an element type, or one and a pattern"),
        (4, 'a format is an element type, or one and a pattern, such as "f16 2:4", got 4'),
    ],
)
def test_bad_formats(text: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Format.parse(text)


def test_bad_lists_of_formats() -> None:
    with pytest.raises(ValueError, match=re.escape('formats are a list, such as ["f16 2:4", "e4m3"], got \'e4m3\'')):
        formats_of("e4m3")
    with pytest.raises(ValueError, match="formats to compare are one or more, got none"):
        formats_of([])
    assert formats_of(["e4m3", Format("e4m3")]) == (Format("e4m3"),) and formats_of(None) == DEFAULT


@pytest.mark.parametrize(
    ("text", "sizes", "reason"),
    [
        ("s8", (64, 16, 64), "PyTorch's dense product of s8 needs 17 tokens or more"),
        ("s8", (64, 17, 64), ""),
        ("e4m3", (64, 1, 72), "PyTorch's dense product of e4m3 needs M and K to be multiples of 16"),
        ("s8 2:4", (63, 1, 71), ""),
        ("bf16 4:8@128", (64, 1, 7), "K is less than a group of 4:8@128"),
        ("f16", (1, 1, 1), ""),
    ],
)
def test_products_that_do_not_exist(text: str, sizes: tuple[int, int, int], reason: str) -> None:
    assert Format.parse(text).refusal(*sizes) == reason
