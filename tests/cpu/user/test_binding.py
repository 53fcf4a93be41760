"""A call that does not fit the first kernel: nothing is lowered for it but the kernel that runs it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import louver
from louver.compile import pipeline
from louver.library.compiled import _loaded
from louver.ptx import assembler
from louver.runtime.cache import KernelCache
from louver.user import compiled
from support.fake_gpu import FakeGpu, FakeTorch, Tensor
from support.jit import kept_kernel
from support.triton.cases import CASES
from support.tuned_calls import K as DEPTH
from support.tuned_calls import M as ROWS
from support.tuned_calls import arguments

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton.equal_elements import block_scales
from support.triton.many_ones import part_with_strides
from support.triton.public.parts import part_of_a_matrix

PARTS, M, N, K = 3, 48, 64, 96
CAPTURING = 0xCA


@pytest.fixture
def kernels(tmp_path: Path) -> KernelCache:
    """Nothing is compiled yet."""
    return KernelCache(tmp_path)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What was read of Triton, lowered and assembled, in order."""
    made: list[str] = []

    def count(module: Any, name: str) -> None:
        real = getattr(module, name)

        def call(*args: Any, **more: Any) -> Any:
            made.append(name)
            return real(*args, **more)

        monkeypatch.setattr(module, name, call)

    count(pipeline, "compile_kernel")
    count(pipeline, "generate")
    count(pipeline, "lower_tiles")
    count(assembler, "Assembling")
    yield made


@pytest.fixture
def known(rng: np.random.Generator) -> dict[str, Any]:
    """Parts of a matrix [N, parts · K]. As a product, and where tiles are described, the matrix has other sizes and strides."""
    w = louver.compress(louver.prune(rng.standard_normal((N, PARTS * K)).astype(np.float16), "2:4"), "2:4")
    arrays = {"x": Tensor((M, K)), "w": w, "y": Tensor((PARTS, M, N), "float32")}
    strides = {"stride_part": K, "stride_wk": 1, "stride_wn": PARTS * K}
    return {**arrays, "M": M, "N": N, "K": K, **strides, "BM": 16, "BN": 32, "BK": 32}


def call(known: dict[str, Any]) -> None:
    louver.jit(part_of_a_matrix)[(M // 16, N // 32, PARTS)](**known)


def test_a_first_call_lowers_one_kernel(
    gpu: FakeGpu, torch: FakeTorch, known: dict[str, Any], steps: list[str]
) -> None:
    call(known)
    tried = "a product, tiles as described, parts of one matrix, computed addresses: the 1 is between neighbours"
    assert steps.count("compile_kernel") == 4, tried
    assert "generate" not in steps and steps.count("lower_tiles") == 1 and len(_loaded()) == 1
    steps.clear()
    call(known | {"x": Tensor((M, K))})
    assert not steps and len(gpu.launches) == 2, "what other kernels need is known"


def test_integers_that_move_no_sparse_tile_are_not_tried(
    gpu: FakeGpu, torch: FakeTorch, known: dict[str, Any], steps: list[str]
) -> None:
    more = {"stride_xk": 1, "stride_yn": 1, "first_row": 0, "scale": 1}
    louver.jit(part_with_strides)[(M // 16, N // 32, PARTS)](**known, **more)
    tried = "tiles as described, parts of one matrix, computed addresses"
    assert steps.count("compile_kernel") == 3, tried


def test_a_warm_start_reads_what_other_kernels_need(
    gpu: FakeGpu,
    torch: FakeTorch,
    known: dict[str, Any],
    steps: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    call(known)
    assert len(list(tmp_path.glob("*.record"))) == 1 and len(list(tmp_path.glob("*.needs"))) == 4
    _loaded.cache_clear()
    steps.clear()
    later = KernelCache(tmp_path)
    for module in (compiled, importlib.import_module("louver.library.compiled")):
        monkeypatch.setattr(module, "kernel_cache", lambda: later)
    call(known)
    assert not steps and len(gpu.launches) == 2


def test_groups_of_whole_tiles_have_one_kernel_and_other_groups_another(
    gpu: FakeGpu, torch: FakeTorch, steps: list[str], rng: np.random.Generator
) -> None:
    w = louver.compress(louver.prune(rng.standard_normal((N, K)).astype(np.float16), "2:4"), "2:4")
    given = {"x": Tensor((M, K)), "w": w, "y": Tensor((M, N), "float32"), "x_scale": Tensor((M, 3), "float32")}
    given |= {"w_scale": Tensor((4, 3), "float32"), "M": M, "N": N, "K": K, "group_k": 32, "TM": 16, "TN": 32, "TK": 32}
    kernel, kernels = louver.jit(block_scales), list[int]()
    for group in (64, 96, 160, 48, 80, 64):
        kernel[3, 2](**given, group_n=group)
        kernels.append(len(_loaded()))
    assert kernels == [1, 1, 1, 2, 2, 2], "multiples of 32 and others, whatever the number"
    assert steps.count("compile_kernel") == 3, "that for multiples is asked for first"


def test_a_kernel_that_did_not_fit_is_compiled_for_a_call_that_fits(
    gpu: FakeGpu, torch: FakeTorch, known: dict[str, Any], steps: list[str], rng: np.random.Generator
) -> None:
    call(known)
    steps.clear()
    one = louver.compress(louver.prune(rng.standard_normal((N, K)).astype(np.float16), "2:4"), "2:4")
    y = Tensor((1, M, N), "float32")
    given = known | {"w": one, "y": y, "stride_part": N * K, "stride_wn": K}
    louver.jit(part_of_a_matrix)[(M // 16, N // 32, 1)](**given)
    assert steps.count("lower_tiles") + steps.count("generate") == 1 and len(_loaded()) == 2


def test_a_capture_takes_a_call_whose_other_kernels_do_not_fit(
    gpu: FakeGpu, torch: FakeTorch, known: dict[str, Any], steps: list[str]
) -> None:
    torch.stream = CAPTURING
    with pytest.raises(RuntimeError, match="must be compiled before its stream is captured"):
        call(known)
    assert not steps
    torch.stream = 0
    call(known)
    steps.clear()
    torch.stream = CAPTURING
    call(known | {"x": Tensor((M, K))})
    assert not steps and len(gpu.launches) == 2


def test_a_wrong_call_is_refused_before_anything_is_lowered(
    gpu: FakeGpu, torch: FakeTorch, known: dict[str, Any], steps: list[str], rng: np.random.Generator
) -> None:
    s = louver.compress(louver.prune(rng.standard_normal((ROWS, DEPTH)).astype(np.float16), "2:4"), "2:4")
    given = arguments(s) | CASES["made_descriptors"].constexprs
    with pytest.raises(ValueError, match="got a grid of 6"):
        kept_kernel("made_descriptors")[(2, 3)](**given)
    assert steps == ["compile_kernel"]
    with pytest.raises(ValueError, match=r"sizes of the dense tensor for 'w', \[64, 286\], got \[3, 64, 96\]"):
        call(known | {"w": louver.compress(known["w"].dense()[:, : PARTS * K - 2], "2:4")})
    assert steps.count("lower_tiles") == 0 and not _loaded() and not gpu.launches
