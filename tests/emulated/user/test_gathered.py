"""Users' products with a pattern whose rows of K are gathered: by the same passes, and refused where nothing can gather."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.dtypes import element_type
from louver.formats.tensor import SparseTensor
from louver.measure.forms import bind
from louver.user.explanation import Explanation
from support.triton.forms.find import forms

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)


def given(
    name: str, rng: np.random.Generator, pattern: str = "2:8"
) -> tuple[Any, Any, dict[str, Any], dict[str, np.ndarray]]:
    """A kernel of PyTorch's, its call, and its arguments with a weight of that pattern."""
    form = forms("pytorch")[name]
    call = form.call(3, form.small)
    known, outs = bind(call, sparse=True)
    sparse = next(key for key, value in known.items() if isinstance(value, SparseTensor))
    w = rng.integers(-4, 5, known[sparse].shape).astype(np.float16)
    known[sparse] = louver.compress(louver.prune(w, pattern), pattern)
    return form.kernel, call, known, outs


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("mm, sparse left", "2:8"),
        ("bmm, sparse left", "2:8@16"),
        ("mm, sparse left", "2:8@64"),
        ("mm, sparse left", "2:8@V64"),
        ("bmm, sparse left", "2:8@V32"),
    ],
)
def test_a_dense_operand_k_by_n(rng: np.random.Generator, name: str, pattern: str) -> None:
    kernel, call, known, outs = given(name, rng, pattern)
    known["b"][...] = rng.integers(-4, 5, known["b"].shape)
    found = louver.jit(kernel).explain(**known)
    assert isinstance(found, Explanation) and found.family == "product"
    longer = rf"64 rows of a weight of {pattern} share a list of \d+ rows of K, where each keeps 34"
    assert (re.search(longer, str(found)) is None) == (pattern in ("2:8@64", "2:8@V64"))
    louver.jit(kernel).emulate[call.grid](**known)
    (y,) = outs.values()
    a, b = (known[key] for key in ("a", "b"))
    expected = a.dense().astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(y.astype(np.float64), expected.astype(y.dtype).astype(np.float64))


@pytest.mark.parametrize("pattern", ["2:8@64", "8:32@32", "3:8"])
def test_f32_runs_on_cuda_cores(rng: np.random.Generator, pattern: str) -> None:
    """Bits that tf32 has not would be missed in the results of f16."""
    kernel, call, known, outs = given("mm, sparse left", rng, pattern)
    known["a"] = louver.compress(known["a"].dense().astype(np.float32), pattern)
    known["b"] = rng.integers(-(2**12), 2**12, known["b"].shape).astype(np.float32)
    known["c"] = np.full(known["c"].shape, np.nan, np.float32)
    assert outs.keys() == {"c"}
    assert louver.jit(kernel).explain(**known).family == "product"
    louver.jit(kernel).emulate[call.grid](**known)
    expected = known["a"].dense().astype(np.float64) @ known["b"].astype(np.float64)
    np.testing.assert_array_equal(known["c"], expected.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize("pattern", ["2:8@64", "3:8"])
def test_8_bit_floats_are_turned(rng: np.random.Generator, pattern: str) -> None:
    """Rows of 104 bytes, 112 bytes apart."""
    kernel, call, known, outs = given("mm, sparse left", rng, pattern)
    e4m3 = element_type("e4m3").numpy
    known["a"] = louver.compress(known["a"].dense().astype(e4m3), pattern)
    wide = np.full((known["b"].shape[0], 112), np.nan, e4m3)
    known["b"] = wide[:, : known["b"].shape[1]]
    known["b"][...] = rng.integers(-4, 5, known["b"].shape)
    known["sbk"] = 112
    assert louver.jit(kernel).explain(**known).family == "product"
    louver.jit(kernel).emulate[call.grid](**known)
    (y,) = outs.values()
    expected = known["a"].dense().astype(np.float64) @ known["b"].astype(np.float64)
    np.testing.assert_array_equal(y.astype(np.float64), expected.astype(y.dtype).astype(np.float64))


def test_tokens_by_k_are_refused(rng: np.random.Generator) -> None:
    kernel, call, known, _ = given("mm, sparse right", rng)
    with pytest.raises(ValueError, match="take the patterns that the hardware multiplies, not 2:8") as caught:
        louver.jit(kernel).emulate[call.grid](**known)
    assert any("rows of K are gathered from a dense operand" in note for note in caught.value.__notes__)


def test_the_interpreter_warns_once_of_what_gpus_refuse(rng: np.random.Generator) -> None:
    kernel, call, known, outs = given("mm, sparse right", rng)
    jitted = louver.jit(kernel)
    with pytest.warns(
        louver.NoKernelWarning, match=r"(?s)GPUs have no kernel for it: .*, not 2:8.*rows of K are gathered"
    ) as seen:
        jitted[call.grid](**known)
        jitted[call.grid](**known)
    assert len(seen) == 1 and seen[0].filename == __file__
    (y,) = outs.values()
    assert np.isfinite(y.astype(np.float32)).all() and y.any()


def test_the_interpreter_says_nothing_of_a_product(rng: np.random.Generator, recwarn: pytest.WarningsRecorder) -> None:
    kernel, call, known, _ = given("mm, sparse left", rng)
    louver.jit(kernel)[call.grid](**known)
    assert not [each for each in recwarn if each.category is louver.NoKernelWarning]


def test_types_that_no_product_has(rng: np.random.Generator) -> None:
    kernel, call, known, _ = given("mm, sparse left", rng, "2:8@V64")
    known["a"] = louver.compress(known["a"].dense().astype(np.float32), "2:8@V64")
    known["b"] = known["b"].astype(np.float32)
    rule = "is for elements of f16, bf16, e4m3, e5m2, s8, u8, got f32"
    with pytest.raises(ValueError, match=rule):
        louver.jit(kernel).emulate[call.grid](**known)
    with pytest.warns(louver.NoKernelWarning, match=rule):
        louver.jit(kernel)[call.grid](**known)


def test_rows_that_are_not_whole_16_bytes_are_refused(rng: np.random.Generator) -> None:
    """A gather copies 16 bytes at a time, and there are no register tiles to go to."""
    kernel, call, known, _ = given("mm, sparse left", rng)
    b = known["b"]
    wide = np.zeros((b.shape[0], b.shape[1] + 1), b.dtype)
    wide[:, :-1] = b
    with pytest.raises(ValueError, match="copies 'b' in pieces of 16 bytes, .* 210 bytes apart: pad the rows"):
        louver.jit(kernel).emulate[call.grid](**{**known, "b": wide[:, :-1], "sbk": wide.shape[1]})
