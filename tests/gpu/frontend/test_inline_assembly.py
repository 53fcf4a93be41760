"""Inline assembly on the device: by Louver against its meaning, and against what Triton makes of the same text."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton import assembly as kernels
from support.triton.assembly_cases import CASES, arguments, check


def on_device(torch: Any, known: dict[str, Any]) -> dict[str, Any]:
    def moved(array: Any) -> Any:
        bits = torch.from_numpy(array.view(f"i{array.dtype.itemsize}").copy()).cuda()
        return bits if array.dtype.kind in "iu" else bits.view(getattr(torch, str(array.dtype)))

    return {name: moved(each) if isinstance(each, np.ndarray) else each for name, each in known.items()}


def bits_of(tensor: Any, like: Any) -> Any:
    import torch

    number = {2: torch.int16, 4: torch.int32, 8: torch.int64}[like.dtype.itemsize]
    return tensor.view(number).cpu().numpy().view(like.dtype)


@pytest.mark.parametrize("name", CASES)
def test_instructions(torch: Any, rng: np.random.Generator, name: str) -> None:
    case = CASES[name]
    known = arguments(rng, case)
    mine, theirs = on_device(torch, known), on_device(torch, known)
    louver.jit(kernels.assembled)[1,](**mine)
    found = bits_of(mine["out"], known["out"])
    check(case, known | {"out": found})
    if case.error == 0.0:
        kernels.assembled[(1,)](**theirs)
        check(case, known | {"out": bits_of(theirs["out"], known["out"])})


def test_reductions(torch: Any, rng: np.random.Generator) -> None:
    """The same bits as Triton's, also of NaN."""
    x = torch.from_numpy(rng.standard_normal((13, 64)).astype(np.float32)).cuda()
    x[2, 1], x[3, 3], x[4] = float("nan"), -float("inf"), -0.0
    mine, theirs = (torch.zeros(13, dtype=torch.int32, device="cuda") for _ in range(2))
    louver.jit(kernels.reduced)[1,](out=mine, x=x, m=13, M=16, N=64, SUM=False)
    kernels.reduced[(1,)](out=theirs, x=x, m=13, M=16, N=64, SUM=False)
    assert torch.equal(mine, theirs)
