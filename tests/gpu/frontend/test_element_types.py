"""Integers and booleans of every width in the dense arrays of users' kernels, and Triton's options with a call."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import louver
from support.element_types import TYPES, K, N, TypedCall
from support.triton import element_types


@pytest.mark.parametrize("name", TYPES)
def test_arrays_of_integers_and_booleans(rng: np.random.Generator, name: str) -> None:
    call = TypedCall(rng, name)
    on_gpu = [
        each if isinstance(each, louver.SparseTensor) else torch.from_numpy(each).cuda() for each in call.arguments
    ]
    options = {"maxnreg": 128, "launch_pdl": True, "enable_fp_fusion": False, "arch": None}
    louver.jit(element_types.kept_and_moved)[(2,)](*on_gpu, N, K, 64, 64, 64, **options)
    call.check(*(each.cpu().numpy() for each in on_gpu[-2:]))
