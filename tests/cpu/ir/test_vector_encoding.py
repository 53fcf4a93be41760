"""Tensors that are sparse in vectors, N:M@L: read, printed, verified, propagated and interpreted; products gather for them, register tiles refuse them."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
from xdsl.utils.exceptions import ParseError, VerifyException

import louver
from louver.compile.canonical.canonicalize import canonicalize
from louver.compile.canonical.propagate_sparsity import propagate_sparsity
from louver.compile.decompose.decompose_sparse_tensors import decompose_sparse_tensors
from louver.compile.plan.nest import read_nest
from louver.frontend.ttir import read_ttir, sparse_mark
from louver.ir.context import parse_ir
from louver.ir.interpret import run_kernel
from louver.ir.product import Selection
from louver.ir.refusal import UnsupportedKernelError
from louver.ir.tile import SparseAttr
from support.triton.cases import kept

PATTERN = "2:8@16"
ENCODED = f'#tt.sparse<"{PATTERN}">'


def marked(name: str = "made_descriptors") -> str:
    """A kept kernel whose sparse argument is so in vectors."""
    return kept(name).replace("louver.sparse.NV24", f'"{sparse_mark(PATTERN)}"')


def test_the_name_is_the_pattern_s() -> None:
    attribute = SparseAttr.of_pattern(PATTERN)
    assert str(attribute) == ENCODED
    kept_as = attribute.format
    assert (kept_as.pattern, kept_as.group, kept_as.length) == (PATTERN, 8, 16)
    assert "f32" in kept_as.elements and "bf16" in kept_as.elements


@pytest.mark.parametrize("name", ["2:8@1", "9:8@4", "2:4", "2:8@04", "2:300@4", "NV28"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises((VerifyException, ParseError), match=f"one of 'NV24', 'NV12' or of vectors, .*, got '{name}'"):
        parse_ir(f'builtin.module {{ tt.func @f(%a: !tt.ptr<f16, #tt.sparse<"{name}">>) {{ tt.return }} }}')


@pytest.mark.parametrize(
    ("shape", "rule"),
    [((24, 64), "rows to be a multiple of 16, or to divide it, got 24"), ((16, 60), "K to be a multiple of 8")],
)
def test_a_dot_is_of_whole_vectors_and_groups(shape: tuple[int, int], rule: str) -> None:
    m, k = shape
    text = (
        f"builtin.module {{ tt.func @f(%a: tensor<{m}x{k}xbf16, {ENCODED}>, %b: tensor<{k}x8xbf16>, %c: tensor<{m}x8xf32>) {{\n"
        f"%d = tt.dot %a, %b, %c : tensor<{m}x{k}xbf16, {ENCODED}> * tensor<{k}x8xbf16> -> tensor<{m}x8xf32>\n"
        "tt.return } }"
    )
    with pytest.raises((VerifyException, ParseError), match=re.escape(f"{PATTERN} needs") + f".*|{rule}"):
        parse_ir(text).verify()


def test_it_reaches_the_dot_and_is_printed() -> None:
    module = read_ttir(marked())
    propagate_sparsity(module)
    module.verify()
    text = str(module)
    (dot,) = re.findall(r"tt.dot .*", text)
    assert dot.count(ENCODED) == 1
    assert str(parse_ir(text)) == text


def arguments(a: Any, b: np.ndarray[Any, Any], d: np.ndarray[Any, Any]) -> dict[str, Any]:
    (m, k), n = a.shape, b.shape[0]
    sizes = {"M": m, "N": n, "K": k, "stride_a": k, "stride_b": k, "stride_d": n}
    return {"a": a, "b": b, "d": d, **sizes}


def test_the_interpreter_takes_a_tensor_of_the_pattern(rng: np.random.Generator) -> None:
    module = read_ttir(marked())
    propagate_sparsity(module)
    a, b = (rng.standard_normal((rows, 77)).astype(np.float16) for rows in (150, 70))
    a = louver.prune(a, PATTERN)
    s = louver.compress(a, PATTERN)
    d = np.full((150, 70), np.nan, np.float16)
    run_kernel(module, (2, 2), arguments(s, b, d))
    np.testing.assert_allclose(d, a.astype(np.float64) @ b.T.astype(np.float64), rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match=re.escape(f"'a' is sparse in {PATTERN}, got 2:8@8")):
        run_kernel(module, (2, 2), arguments(louver.compress(a, "2:8@8"), b, d))
    with pytest.raises(ValueError, match=r"'a' is a sparse tensor, .*, got ndarray: compress it"):
        run_kernel(module, (2, 2), arguments(a, b, d))


def test_a_user_s_kernel_takes_it_without_a_gpu(rng: np.random.Generator) -> None:
    pytest.importorskip("triton")
    from support.triton.kernels import made_descriptors

    a, b = (rng.standard_normal((rows, 77), np.float32).astype(np.float16) for rows in (150, 70))
    a = louver.prune(a, "1:4@32", norm="l1")
    d = np.full((150, 70), np.nan, np.float16)
    s = louver.compress(a, "1:4@32")
    kernel: Any = louver.jit(made_descriptors)
    with warnings.catch_warnings(action="ignore"):
        kernel[(5, 2)](d, s, b, 150, 70, 77, 77, 77, 70, BM=32, BN=64, BK=32)
    np.testing.assert_allclose(d, a.astype(np.float64) @ b.T.astype(np.float64), rtol=1e-3, atol=1e-3)


def test_products_select_by_it_and_register_tiles_refuse_it() -> None:
    module = read_ttir(marked())
    nest = read_nest(canonicalize(module.clone()))
    assert (nest.a.pattern, nest.a.selection) == (PATTERN, Selection(indexed=True))
    propagate_sparsity(module)
    with pytest.raises(
        UnsupportedKernelError, match=f"patterns that the hardware multiplies, not {PATTERN}, got at .*: prune to"
    ):
        decompose_sparse_tensors(module)
