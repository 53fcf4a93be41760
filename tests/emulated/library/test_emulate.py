from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from louver.choose.configure import choose
from louver.emulator import Earliest, GlobalMemory, Latest, Order, Seeded
from louver.formats.dtypes import element_type
from louver.formats.tensor import row_pitch
from louver.frontend.problem import BLayout, Kind, Problem
from louver.isa.targets import target
from louver.library import emulate as emulation
from louver.library.emulate import emulate
from louver.library.forms import Operand, ProductForms
from louver.library.numerics import compare
from louver.library.reference import exact_product
from louver.library.rows import Rows
from support.compiled import compiled_product

PRODUCTS: list[tuple[Kind, BLayout, bool]] = [
    ("linear", "k_major", True),
    ("linear", "k_major", False),
    ("matmul", "k_major", False),
    ("matmul", "n_major", True),
]


@pytest.mark.parametrize("order", [Earliest(), Latest(), Seeded(7)], ids=["earliest", "latest", "seeded"])
@pytest.mark.parametrize(("kind", "layout", "with_bias"), PRODUCTS)
@pytest.mark.parametrize(("m", "n", "k"), [(128, 64, 128), (200, 17, 150), (1, 1, 3)])
def test_products_agree_with_float64(
    rng: np.random.Generator, kind: Kind, layout: BLayout, with_bias: bool, m: int, n: int, k: int, order: Order
) -> None:
    dtype, out = ("f16", "f32") if n == 17 else ("bf16", "bf16")
    numpy = element_type(dtype).numpy
    problem = Problem(kind, dtype, dtype, out, b_layout=layout, bias="row" if with_bias else None)
    compiled = compiled_product(problem, choose(problem, m, n, target("sm_90a"), 132))
    dense = louver.prune(rng.standard_normal((m, k)).astype(numpy), "2:4")
    b = rng.standard_normal((k, n)).astype(numpy)
    bias = rng.standard_normal(m).astype(numpy) if with_bias else None
    stored = b.T if layout == "k_major" else b
    y, report = emulate(compiled, louver.compress(dense, "2:4"), stored, bias, order=order)
    reference, magnitude = exact_product(dense, b, bias)
    agreement = compare(y.T if kind == "linear" else y, reference, magnitude, k, out)
    assert agreement.ok, agreement
    assert report.products > 0


def test_few_sms_walk_many_tiles(rng: np.random.Generator) -> None:
    problem = Problem("matmul", out="f32")
    compiled = compiled_product(problem, choose(problem, 300, 100, target("sm_90a"), 132))
    dense = louver.prune(rng.integers(-8, 9, (300, 70)).astype(np.float16), "2:4")
    b = rng.integers(-8, 9, (100, 70)).astype(np.float16)
    y, _ = emulate(compiled, louver.compress(dense, "2:4"), b, sm_count=2)
    np.testing.assert_array_equal(y, dense.astype(np.float32) @ b.T.astype(np.float32))


def test_operands_of_another_size_are_refused(rng: np.random.Generator) -> None:
    problem = Problem("linear")
    compiled = compiled_product(problem, choose(problem, 64, 8, target("sm_90a"), 132))
    sparse = louver.compress(louver.prune(rng.standard_normal((64, 32)).astype(np.float16), "2:4"), "2:4")
    with pytest.raises(ValueError, match="axis 1 of the dense operand must have K = 32"):
        emulate(compiled, sparse, rng.standard_normal((8, 36)).astype(np.float16))


@pytest.mark.parametrize("bias", [None, "row"])
def test_values_may_lie_in_rows_of_a_larger_array(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, bias: Any
) -> None:
    """As those of a tensor on a GPU do, which are read where they are: NaN between rows is not seen."""
    gap = 32

    def apart(memory: GlobalMemory, s: louver.SparseTensor, forms: ProductForms, entries: int) -> Operand:
        pitch = row_pitch(s.kept, s.dtype) + gap
        whole = np.full((s.rows, pitch // 2), np.nan, np.float16)
        whole[:, : s.kept] = s.values
        values = memory.add("values", whole, writable=False)
        rows = Rows(values.address, s.kept, s.rows, pitch, 2, values, entries, s.rows * pitch)
        assert forms.metadata is not None
        return Operand(rows, s.size, memory.add("metadata", forms.metadata.host(s), writable=False).address)

    monkeypatch.setattr(emulation, "sparse_operand", apart)
    problem = Problem("linear", "f16", "f16", "f32", bias=bias)
    compiled = compiled_product(problem, choose(problem, 200, 17, target("sm_90a"), 132))
    dense = louver.prune(rng.integers(-8, 9, (200, 150)).astype(np.float16), "2:4")
    x = rng.integers(-8, 9, (17, 150)).astype(np.float16)
    b = rng.integers(-8, 9, 200).astype(np.float16) if bias else None
    y, _ = emulate(compiled, louver.compress(dense, "2:4"), x, b)
    np.testing.assert_array_equal(y, x.astype(np.float32) @ dense.T.astype(np.float32) + (0 if b is None else b))
