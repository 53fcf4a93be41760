"""Operands and their verification, with PyTorch on the CPU in the place of the GPU."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.dtypes import element_type
from louver.formats.pattern import lifted_pattern
from louver.measure import operands as verifying
from louver.measure.operands import INT8_MOST, in_f16_range, make_operands, pruned, reference_of, verify
from louver.measure.problems import GemmProblem
from louver.runtime.arrays import view
from louver.runtime.cache import KernelCache
from support.fake_gpu import FakeTorch, Tensor, recording
from support.torch_on_cpu import OnCpu

KINDS = [("f16", "f16"), ("bf16", "bf16"), ("e4m3", "f16"), ("s8", "f16"), ("s8", "s32"), ("f32", "f32")]


@pytest.fixture
def torch() -> Any:
    return OnCpu(pytest.importorskip("torch"))


def product(torch: Any, operands: Any, index: int) -> Any:
    """The right result, rounded once."""
    exact = operands.x.double() @ operands.dense[index].double().t()
    return exact.to(operands.y.dtype)


@pytest.mark.parametrize(("dtype", "out"), KINDS)
def test_both_forms_hold_the_same_bits(torch: Any, dtype: str, out: str) -> None:
    operands = make_operands(torch, GemmProblem(64, 32, 224, dtype, out), sets=2)
    for dense, sparse in zip(operands.dense, operands.sparse, strict=True):
        bits = dense.view(torch.uint8).numpy()
        assert sparse.dtype.name == dtype
        found = view(sparse.dense()).to_numpy()
        assert np.array_equal(found.view(np.uint8), bits)
        # Normal numbers cut to integers are 0 now and then.
        assert louver.check(found, lifted_pattern(dtype), exact=dtype != "s8").ok
        assert torch.count_nonzero(dense.float()) > 0.45 * dense.numel()
    assert not np.array_equal(operands.sparse[0].values, operands.sparse[1].values)
    assert operands.x.shape == (32, 224)
    assert operands.y.shape == (32, 64)


@pytest.mark.parametrize("dtype", ["e4m3", "f32"])
def test_weights_stay_on_the_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rng: np.random.Generator, dtype: str
) -> None:
    w = rng.standard_normal((64, 96)).astype(np.float32).astype(element_type(dtype).numpy)
    with recording(monkeypatch, KernelCache(tmp_path)) as gpu:
        monkeypatch.setitem(sys.modules, "torch", FakeTorch())
        dense, sparse = pruned(Tensor.of(w), dtype)
        counts = [arguments[2] for arguments in gpu.called("cuMemcpyDtoHAsync")]
        assert counts == [16] and not gpu.called("cuMemcpyHtoDAsync")
        assert isinstance(dense, Tensor) and (str(sparse.pattern), sparse.device) == (lifted_pattern(dtype), 0)
        kept = louver.prune(w, lifted_pattern(dtype))
        for there in (dense, sparse.dense()):
            assert np.array_equal(view(there).to_numpy().view(np.uint8), kept.view(np.uint8))


def test_integers_fill_their_range_evenly_signed(torch: Any) -> None:
    x = make_operands(torch, GemmProblem(32, 512, 512, "s8", "s32"), sets=1).x.double()
    assert x.abs().max() == INT8_MOST
    assert abs(float(x.mean())) < 0.5
    assert 28 < float(x.std()) < 31


@pytest.mark.parametrize(("dtype", "out"), KINDS)
def test_verification_accepts_the_right_weight_only(torch: Any, dtype: str, out: str) -> None:
    operands = make_operands(torch, GemmProblem(64, 48, 416, dtype, out), sets=2)
    y = product(torch, operands, 1)
    assert verify(torch, operands, 1, y).ok
    assert not verify(torch, operands, 0, y).ok
    operands.poison()
    assert verify(torch, operands, 1, operands.y).violations == 32 * 64


def test_a_weights_product_is_computed_once_and_not_kept_by_changed_operands(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    operands = make_operands(torch, GemmProblem(64, 48, 64, "f16"), sets=2)
    made: list[int] = []
    monkeypatch.setattr(verifying, "reference_of", lambda *given: made.append(1) or reference_of(*given))
    for index in (0, 1, 0, 1):
        assert verify(torch, operands, index, product(torch, operands, index)).ok
    assert len(made) == 2
    fewer = replace(operands, problem=replace(operands.problem, n=16), x=operands.x[:16], y=operands.y[:16])
    assert verify(torch, fewer, 0, product(torch, fewer, 0)).ok
    assert len(made) == 3


@pytest.mark.parametrize(("dtype", "out"), KINDS)
def test_few_tokens_are_padded_with_zeros(torch: Any, dtype: str, out: str) -> None:
    operands = make_operands(torch, GemmProblem(64, 5, 64, dtype, out), sets=1)
    assert tuple(operands.x.shape) == (5, 64) and tuple(operands.padded.shape) == (16, 64)
    assert torch.equal(operands.padded[:5].view(torch.uint8), operands.x.view(torch.uint8))
    assert not operands.padded[5:].view(torch.uint8).any()
    assert verify(torch, operands, 0, product(torch, operands, 0)).ok


def test_integers_are_exact_to_the_last_bit(torch: Any) -> None:
    """Sums beyond 2^24 differ by one where f32 would see no difference."""
    operands = make_operands(torch, GemmProblem(32, 16, 4096, "s8", "s32"), sets=1)
    operands.x.fill_(127)
    operands.dense[0][:, ::2] = 127
    y = product(torch, operands, 0)
    assert int(y.min()) > 2**24
    assert verify(torch, operands, 0, y).ok
    y[:, 7] += 1
    assert not verify(torch, operands, 0, y).ok


@pytest.mark.parametrize(("bits", "right"), [(13, True), (16, False)])
def test_products_of_f32_are_right_when_both_operands_are_cut_to_tf32(torch: Any, bits: int, right: bool) -> None:
    """13 bits less are tf32, 16 are bf16."""
    operands = make_operands(torch, GemmProblem(64, 32, 4096, "f32"), sets=1)
    x, w = (
        (each.view(torch.int32) >> bits << bits).view(torch.float32).double()
        for each in (operands.x, operands.dense[0])
    )
    assert verify(torch, operands, 0, (x @ w.t()).float()).ok is right


@pytest.mark.parametrize("beyond", [np.inf, 65504.0])
def test_beyond_the_range_of_f16_either_end_is_right(torch: Any, beyond: float) -> None:
    operands = make_operands(torch, GemmProblem(64, 32, 8192, "s8", "f16"), sets=1)
    y = product(torch, operands, 0)
    out_of_range = y.isinf()
    assert out_of_range.any()
    y[out_of_range] = y[out_of_range].sign() * beyond
    assert verify(torch, operands, 0, y).ok
    y[out_of_range] *= -1
    assert not verify(torch, operands, 0, y).ok


def test_the_range_of_f16_has_no_place_for_nan() -> None:
    found = in_f16_range(np.array([np.inf, -np.inf, 70000.0, 1.5, np.nan]))
    assert np.array_equal(found, [65504.0, -65504.0, 65504.0, 1.5, np.nan], equal_nan=True)
