"""Integers and booleans of every width in the dense arrays of users' kernels."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import louver
from support.element_types import TYPES, K, N, TypedCall

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton import element_types


@pytest.mark.parametrize("way", ["emulated", "interpreted", "PyTorch"])
@pytest.mark.parametrize("name", TYPES)
def test_arrays_of_integers_and_booleans(rng: np.random.Generator, name: str, way: str) -> None:
    call = TypedCall(rng, name)
    arrays: list[Any] = call.arguments
    kernel = louver.jit(element_types.kept_and_moved)
    if way == "PyTorch":
        torch = pytest.importorskip("torch")
        arrays = [each if isinstance(each, louver.SparseTensor) else torch.from_numpy(each) for each in arrays]
    (kernel if way == "interpreted" else kernel.emulate)[(2,)](*arrays, N, K, 64, 64, 64)
    call.check(call.y, call.above)
