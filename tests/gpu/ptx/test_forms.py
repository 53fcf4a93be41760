"""The hardware computes what each form's `compute` says, bit for bit; NaN payloads and approximations apart."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import pytest

from louver.isa.convert import FromF32, PairFromF32
from louver.isa.floating import Approximate, approximation_error
from louver.isa.instruction import Pure
from louver.isa.packed import PackedBinary
from louver.ptx.assembler import assemble
from louver.ptx.module import Module
from louver.ptx.printer import print_module
from louver.runtime.memory import DeviceArray
from louver.runtime.module import ArgumentPack, load
from support.forms import (
    THREADS,
    as_memory,
    empty_outputs,
    expected_outputs,
    form_name,
    pure_forms,
    pure_kernel,
    random_inputs,
)

FORMS = list(pure_forms())


@functools.cache
def cubin() -> bytes:
    return assemble(print_module(Module("sm_90a", [pure_kernel(form) for form in FORMS]))).cubin


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.mnemonic)
def test_the_hardware_agrees(form: Pure, rng: np.random.Generator) -> None:
    inputs, empty = random_inputs(form, rng), empty_outputs(form)
    given = [DeviceArray.of(as_memory(bits).view(np.uint8)) for bits in inputs]
    made = [DeviceArray.of(array.view(np.uint8)) for array in empty]
    arguments = ArgumentPack(["u64"] * (len(given) + len(made)))
    arguments.bind(*(array.buffer.address for array in (*given, *made)))
    load(cubin(), form_name(form), threads=256).launch(THREADS // 256, arguments)
    for array, like, expected in zip(made, empty, expected_outputs(form, inputs), strict=True):
        _compare(form, array.numpy().view(like.dtype), expected)


def _compare(form: Pure, got: np.ndarray, expected: np.ndarray) -> None:
    dtype = _float_type(form)
    if dtype is None:
        np.testing.assert_array_equal(got, expected)
        return
    first, second = (np.ascontiguousarray(bits).view(dtype).astype(np.float64) for bits in (got, expected))
    np.testing.assert_array_equal(np.isnan(first), np.isnan(second))
    number = ~np.isnan(second)
    if isinstance(form, Approximate):
        tolerance = approximation_error(form.op, second)
        assert (np.abs(first - second)[number] <= tolerance[number]).all()
        return
    unsigned = got.dtype.type if got.dtype.itemsize == np.dtype(dtype).itemsize else np.uint16
    np.testing.assert_array_equal(got.view(unsigned)[number], expected.view(unsigned)[number])


def _float_type(form: Pure) -> type | None:
    """The type of the output's bits, where they are floats whose NaN payload is open."""
    if isinstance(form, PackedBinary):
        kind: str = form.type
    elif isinstance(form, FromF32 | PairFromF32):
        kind = form.to
    else:
        (result, *_) = form.operands
        return np.float32 if result.type == "f32" else None
    return np.float16 if kind == "f16" else ml_dtypes.bfloat16
