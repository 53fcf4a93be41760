"""Users' Triton kernels on the device, from the texts that Triton made, with tails, against float64."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from louver.choose.reasons import Reasons
from louver.compile.compiled import CompiledProduct
from louver.formats.dtypes import element_type
from louver.library.compiled import BuiltKernel, load_record, record_made
from louver.library.fused import Bound
from louver.library.launch import Launcher
from louver.library.state import TensorState
from louver.measure.launches import rows_of
from louver.ptx.assembler import assemble
from louver.runtime.module import LoadedKernel
from support.device_products import guarded, to_numpy, to_torch
from support.triton.cases import CASES
from support.triton.products import Given, compiled, given

pytestmark = pytest.mark.usefixtures("torch")


def loaded(product: CompiledProduct) -> BuiltKernel[LoadedKernel]:
    assembly = assemble(product.ptx, product.target.name)
    assert assembly.clean, assembly.warnings
    return load_record(product.ptx, 0, record_made(product, assembly, Reasons("", (), "")))


def run(case: Given) -> np.ndarray:
    """The device's result, [M, N], into a buffer of NaN."""
    torch: Any = sys.modules["torch"]
    nest = case.product.nest
    m, n, _ = case.shape
    shape = (n, m) if nest.store.transposed else (m, n)
    element = element_type(nest.store.element)
    # torch fills and checks no 8-bit floats: those start as NaN without a guard around them.
    target = guarded(shape, element.name) if element.bytes > 1 else None
    out = to_torch(np.full(shape, np.nan, element.numpy)) if target is None else target.view
    dense = to_torch(case.dense)
    vectors = {name: to_torch(vector) for name, vector in case.reads.items() if isinstance(vector, np.ndarray)}
    numbers = {name: float(number) for name, number in case.reads.items() if name not in vectors}
    launcher = Launcher(loaded(case.product), TensorState().operand(case.s, 0), case.a.shape)
    bound = Bound({name: vector.data_ptr() for name, vector in vectors.items()}, numbers)
    matrices = rows_of(dense), rows_of(out)
    launch = launcher.bound(launcher.sized(n, *matrices), *matrices, bound)
    for _ in range(3):
        launch.on(torch.cuda.current_stream().cuda_stream)()
    y = to_numpy(out).copy()
    if target is not None:
        target.assert_untouched()
    return y.T if nest.store.transposed else y


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("m", "n", "k"), [(3216, 2576, 1320), (129, 80, 72)])
def test_every_style_of_kernel(rng: np.random.Generator, name: str, m: int, n: int, k: int) -> None:
    product = compiled(name)
    # Bulk copies read rows of whole 16 bytes.
    k -= k % (16 // element_type(product.nest.a.element).bytes)
    case = given(rng, name, product, m, n, k)
    case.assert_close(run(case))
