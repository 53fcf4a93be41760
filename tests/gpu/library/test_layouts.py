"""Operands and outputs in place where they can be, copied where they cannot: views of any alignment, pitch and order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from louver.runtime.memory import DeviceArray
from support.device_products import (
    FORMS,
    Form,
    compute,
    dense_operand,
    filled,
    guarded,
    output_shape,
    result,
    to_numpy,
    to_torch,
)
from support.products import assert_exact, operands

pytestmark = pytest.mark.sampled(3)

LAYOUTS: dict[str, dict[str, int]] = {
    "aligned": {"gap": 0},
    "aligned pitch": {"gap": 8 + 40},
    "odd pitch": {"gap": 1},
    "offset by one element": {"offset": 1},
    "offset and odd pitch": {"offset": 3, "gap": 5},
    "every other element": {"step": 2},
    "every third, offset": {"step": 3, "offset": 1, "gap": 2},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("m", "n", "k"), [(130, 72, 200), (65, 33, 131), (3, 1, 77), (70, 130, 1)])
def test_dense_operands(rng: np.random.Generator, form: Form, layout: str, m: int, n: int, k: int) -> None:
    given = operands(rng, m, n, k)
    dense = dense_operand(form, given.b, **LAYOUTS[layout])
    assert_exact(result(form, compute(form, given, dense, out_dtype="f32")), given)


@pytest.mark.parametrize("layout", ["aligned", "offset and odd pitch"])
def test_linear_takes_transposed_tokens(rng: np.random.Generator, layout: str) -> None:
    given = operands(rng, 130, 70, 200, "bf16")
    x = filled(given.b, **LAYOUTS[layout]).T
    assert x.stride(0) == 1
    assert_exact(to_numpy(louver.linear(x, given.s, out_dtype="f32")).T, given)


def test_a_repeated_dense_operand(rng: np.random.Generator) -> None:
    given = operands(rng, 130, 70, 200)
    given.b[...] = given.b[:, :1]
    column = to_torch(given.b[:, :1])
    assert_exact(to_numpy(louver.matmul(given.s, column.expand(200, 70))), given)
    given.b[...] = given.b[:1]
    assert_exact(to_numpy(louver.linear(to_torch(given.b[:1, :1]).expand(70, 200), given.s)).T, given)


@pytest.mark.parametrize("out", ["f16", "f32"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("offset", "gap"), [(0, 0), (0, 64), (8, 0), (1, 0), (0, 1), (3, 7)])
def test_outputs_of_any_pitch(rng: np.random.Generator, form: Form, out: str, offset: int, gap: int) -> None:
    given = operands(rng, 200, 136, 90)
    target = guarded(output_shape(form, given), out, offset=offset, gap=gap)
    compute(form, given, dense_operand(form, given.b), out=target.view)
    assert_exact(result(form, target.view), given)
    target.assert_untouched()


@pytest.mark.parametrize("form", FORMS)
def test_an_output_of_one_row_or_column(rng: np.random.Generator, form: Form) -> None:
    for m, n in ((1, 70), (70, 1), (1, 1)):
        given = operands(rng, m, n, 90)
        target = guarded(output_shape(form, given), "f32", gap=5)
        compute(form, given, dense_operand(form, given.b), out=target.view)
        assert_exact(result(form, target.view), given)
        target.assert_untouched()


@pytest.mark.parametrize("leading", [(), (1,), (2, 3), (2, 1, 3), (4, 5, 6)])
def test_linear_keeps_leading_axes(rng: np.random.Generator, leading: tuple[int, ...]) -> None:
    given = operands(rng, 130, int(np.prod(leading, dtype=int)), 70)
    x = to_torch(np.ascontiguousarray(given.b.T)).reshape(*leading, 70)
    y = louver.linear(x, given.s, to_torch(given.bias))
    assert tuple(y.shape) == (*leading, 130) and y.dtype == x.dtype and y.device == x.device
    assert_exact(to_numpy(y).reshape(-1, 130).T, given, bias=True)


def test_columns_of_one_matrix_as_operand_and_output(rng: np.random.Generator) -> None:
    given = operands(rng, 64, 40, 64)
    whole = filled(np.concatenate([given.b.T, np.zeros((40, 64), np.float16)], axis=1))
    louver.linear(whole[:, :64], given.s, out=whole[:, 64:])
    assert_exact(to_numpy(whole[:, 64:]).T, given)
    np.testing.assert_array_equal(to_numpy(whole[:, :64]), given.b.T)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_host_arrays_are_copied_in_and_out(rng: np.random.Generator, dtype: str) -> None:
    given = operands(rng, 130, 70, 133, dtype)
    y = louver.matmul(given.s, given.b, out_dtype="f32")
    assert isinstance(y, np.ndarray)
    assert_exact(y, given)
    whole = np.full((74, 140), np.nan, np.float32)
    out = whole[2:72, 5:135]
    assert louver.linear(given.b.T, given.s, given.bias, out=out) is out
    assert_exact(out.T, given, bias=True)
    out[...] = np.nan
    assert np.isnan(whole).all()


def test_host_tensors_of_torch(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 65, 9, 40)
    y = louver.matmul(given.s, torch.from_numpy(given.b))
    assert isinstance(y, torch.Tensor) and not y.is_cuda
    assert_exact(y.numpy(), given)


def test_louver_s_own_arrays(rng: np.random.Generator) -> None:
    given = operands(rng, 65, 9, 40, "bf16")
    y = louver.linear(DeviceArray.of(given.b.T), given.s, DeviceArray.of(given.bias))
    assert isinstance(y, DeviceArray)
    assert_exact(y.numpy().T, given, bias=True)


def test_cupy_arrays(rng: np.random.Generator) -> None:
    cupy: Any = pytest.importorskip("cupy")
    given = operands(rng, 65, 9, 40)
    y = louver.matmul(given.s, cupy.asarray(given.b))
    assert isinstance(y, cupy.ndarray)
    assert_exact(cupy.asnumpy(y), given)


def test_arrays_by_dlpack(rng: np.random.Generator) -> None:
    class Exported:
        """A tensor of which only the exchange protocol shows."""

        def __init__(self, tensor: Any) -> None:
            self.tensor = tensor

        def __dlpack__(self, **options: Any) -> Any:
            return self.tensor.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.tensor.__dlpack_device__()

    given = operands(rng, 65, 9, 40, "bf16")
    y = louver.matmul(given.s, Exported(to_torch(given.b)))
    assert isinstance(y, DeviceArray)
    assert_exact(y.numpy(), given)
