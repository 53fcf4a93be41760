"""Errors that the sanitizer's programs count; their products need a GPU."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from louver.formats.dtypes import element_type

PROGRAM = Path(__file__).parents[3] / "benchmarks" / "one_product.py"


@pytest.fixture(scope="module")
def differing() -> Callable[[np.ndarray, np.ndarray], int]:
    found: Any = runpy.run_path(str(PROGRAM))["differing"]
    return found


@pytest.mark.parametrize(
    ("out", "least", "greatest"), [("s8", -128, 127), ("e4m3", -448, 448), ("e5m2", -57344, 57344)]
)
def test_results_end_where_their_type_does(differing: Any, out: str, least: float, greatest: float) -> None:
    reference = np.array([-1e9, least, 0.0, greatest, 1e9])
    right = np.array([least, least, 0, greatest, greatest]).astype(element_type(out).numpy)
    assert differing(right, reference) == 0
    for place in range(len(right)):
        wrong = right.copy()
        wrong[place] = 1
        assert differing(wrong, reference) == 1


def test_sums_of_32_bits_are_counted_as_they_are(differing: Any) -> None:
    reference = np.array([-(2.0**31), -129.0, 2.0**31 - 1])
    assert differing(reference.astype(np.int32), reference) == 0
    assert differing(np.array([-(2**31), -128, 2**31 - 1], np.int32), reference) == 1
