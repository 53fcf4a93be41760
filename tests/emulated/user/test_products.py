"""Kernels of plain products, however they are written, run as products; calls that break what these take for granted do not."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import louver
from louver.compile.compiled import CompiledProduct
from louver.measure.forms import Form, bind
from louver.user.bind_product import bind_product
from louver.user.checked_call import PartError
from louver.user.compiled import Wanted
from louver.user.descriptor import TensorDescriptor
from support.triton.forms.find import forms

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

SIDES = ("sparse left", "sparse right")
PRODUCTS = [
    *(
        ("tutorials", f"{name}, {side}")
        for name in (
            "grouped order", "naive product", "persistent", "host descriptors", "persistent host descriptors",
            "halves by host descriptors", "persistent descriptors", "halves by descriptors", "sizes of its own",
        )
        for side in SIDES
    ),
    *(("pytorch", f"{name}, {side}") for name in ("mm", "addmm", "bmm", "mm by descriptors", "unmasked") for side in SIDES),
    *(("vllm", name) for name in ("repeatable product, bias", "scaled product, f16", "scaled product, 8-bit integers")),
    *(("splits", name) for name in ("a peeled tail", "a tail in a branch", "split K in rounds", "split K, scaled")),
    *(
        ("sparse_tiles", f"weight{name}")
        for name in (" K by N", " K by N without a mask along K", " K by N by descriptors", "s K by N of a batch")
    ),
]  # fmt: skip


@pytest.mark.parametrize(("file", "name"), PRODUCTS)
def test_it_is_a_product(file: str, name: str) -> None:
    form = forms(file)[name]
    known, _ = bind(form.call(1, form.small), sparse=True)
    found = louver.jit(form.kernel).explain(**known)
    assert (found.family, found.refusal) == ("product", None)


def run(form: Form, changes: dict[str, Any], grid: tuple[int, ...] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """What the emulator finds, and what is expected of the call as it was."""
    call = form.call(3, form.small)
    known, outs = bind(call, sparse=True)
    louver.jit(form.kernel).emulate[grid or call.grid](**{**known, **changes})
    ((name, expected),) = call.expected().items()
    return outs[name].astype(np.float64), expected


def test_a_tensor_that_is_smaller_than_the_counted_tiles_is_read_by_its_own_size() -> None:
    form = forms("tutorials")["sizes of its own, sparse left"]
    found, expected = run(form, {"rows": form.small.n - 9})
    np.testing.assert_allclose(found[:, :-9], expected[:, :-9], atol=0.2)
    assert not found[:, -9:].any()


def test_an_output_that_is_smaller_than_the_counted_tiles_is_written_within_it() -> None:
    form = forms("tutorials")["host descriptors, sparse right"]
    call = form.call(3, form.small)
    m, n = call.arguments["c"].shape
    whole = np.full((m, n), np.nan, np.float16)
    part = TensorDescriptor(whole, (m - 80, n), (n, 1), [form.small.BM, form.small.BN])
    _, expected = run(form, {"c": part})
    np.testing.assert_allclose(whole[:-80].astype(np.float64), expected[:-80], atol=0.2)
    assert np.isnan(whole[-80:]).all()


def test_programs_outside_of_the_output_return() -> None:
    form = forms("splits")["a peeled tail"]
    rows, columns = form.small.grid
    found, expected = run(form, {}, (rows + 1, columns))
    np.testing.assert_allclose(found, expected, atol=0.2)


def test_too_few_programs_are_refused() -> None:
    form = forms("splits")["a peeled tail"]
    with pytest.raises(ValueError, match="peeled_product has a program for each of its tiles of 64×64"):
        run(form, {}, (1, 1))


def test_an_empty_output_stays_as_it_is() -> None:
    form = forms("splits")["a peeled tail"]
    found, _ = run(form, {"M": 0}, (1, 1))
    assert np.isnan(found).all()


def test_matrices_of_a_batch_by_an_axis_of_their_own() -> None:
    form = forms("pytorch")["bmm, sparse right"]
    call = form.call(3, form.small)
    with pytest.raises(ValueError, match="bmm has a program for each of its tiles of 64×64, .*got a grid of"):
        run(form, {}, (call.grid[0] + 1, call.grid[1]))


def test_rows_of_a_weight_k_by_n_are_as_far_apart_as_in_the_dense_tensor() -> None:
    form = forms("sparse_tiles")["weight K by N"]
    with pytest.raises(
        ValueError, match="given the strides of the dense tensor for 'w'.*for a kernel that walks along"
    ):
        run(form, {"stride_wk": form.small.n + 8})


def test_an_array_without_memory_is_null() -> None:
    form = forms("vllm")["scaled product, 8-bit integers"]
    call = form.call(3, form.small)
    known, _ = bind(call, sparse=True)
    kernel = louver.jit(form.kernel)
    made, hints = kernel._call((), known)
    compiled = kernel._compile(Wanted.of(kernel._source, hints, made, "bulk", "sm_90a")).made
    assert isinstance(compiled, CompiledProduct)
    bind_product("scaled", compiled.nest, made, call.grid)
    null = replace(made, arrays={**made.arrays, "bias": replace(made.arrays["bias"], address=0)})
    with pytest.raises(PartError, match="scaled runs as a product only if bias is above 0, got 0"):
        bind_product("scaled", compiled.nest, null, call.grid)
