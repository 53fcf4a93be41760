"""The number of times that a user's kernel is compiled, read and loaded, and the message where it does not assemble cleanly."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import louver
from louver.compile import pipeline
from louver.compile.passes import Pass
from louver.library.compiled import _loaded
from louver.ptx import assembler
from louver.runtime.cache import KernelCache
from louver.user import units
from louver.user.compiled import Wanted, build_record
from louver.user.hints import Hints
from louver.user.jit_kernel import JitKernel
from support.fake_gpu import FakeGpu, FakeTorch, Tensor
from support.jit import KeptSource, kept_kernel, kept_source, tile_source
from support.triton.cases import CASES
from support.triton.tile_cases import TILE_CASES

M, N, K = 200, 96, 256
GRID = (2, 2)


@pytest.fixture
def kernels(tmp_path: Path) -> KernelCache:
    """Nothing is compiled yet."""
    return KernelCache(tmp_path)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The families that were tried, and the assemblies, in order."""
    made: list[str] = []

    def counted(name: str, real: Any) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            made.append(name)
            return real(*args, **more)

        return call

    for family in ("PRODUCT", "TILES"):
        steps = getattr(pipeline, family)
        monkeypatch.setattr(pipeline, family, (Pass(family, counted(family, lambda state: "begun")), steps))
    monkeypatch.setattr(assembler, "Assembling", counted("Assembling", assembler.Assembling))
    yield made


def tile_arguments(**changes: Any) -> dict[str, Any]:
    known = {"out": Tensor((256,), "float32"), "x": Tensor((720,), "float32"), "STEPS": 4, "ROW": 144}
    return known | TILE_CASES["pointer_loop"].constexprs | changes


def product_arguments(s: louver.SparseTensor, **changes: Any) -> dict[str, Any]:
    sizes = {"M": M, "N": N, "K": K, "stride_a": K, "stride_b": K, "stride_d": N}
    arrays: dict[str, Any] = {"d": Tensor((M, N)), "a": s, "b": Tensor((N, K))}
    return {**arrays, **sizes, **CASES["made_descriptors"].constexprs, **changes}


@pytest.fixture
def s(rng: np.random.Generator) -> louver.SparseTensor:
    return louver.compress(louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4"), "2:4")


ONCE_TILES = ["PRODUCT", "TILES", "Assembling"]


def test_the_first_call_of_what_is_no_product_compiles_once(gpu: FakeGpu, torch: FakeTorch, steps: list[str]) -> None:
    source = tile_source("pointer_loop")
    JitKernel(source, Hints())[(1,)](**tile_arguments())
    assert steps == ONCE_TILES and len(source.asked) == 1
    assert len(gpu.launches) == 1 and len(_loaded()) == 1
    kernel = JitKernel(source, Hints())
    kernel[(1,)](**tile_arguments(ROW=160))
    assert steps == ONCE_TILES and len(_loaded()) == 1, "a call of the same alignment is the same kernel"
    kernel[(1,)](**tile_arguments(ROW=161))
    assert steps == 2 * ONCE_TILES and len(_loaded()) == 2


def test_the_first_emulated_call_of_what_is_no_product_compiles_once(
    steps: list[str], rng: np.random.Generator
) -> None:
    source = tile_source("pointer_loop")
    kernel = JitKernel(source, Hints())
    known = tile_arguments(out=np.full(256, np.nan, np.float32), x=rng.standard_normal(720, np.float32))
    for _ in range(2):
        kernel.emulate[(1,)](**known)
    assert steps == ONCE_TILES[:2] and len(source.asked) == 1 and not np.isnan(known["out"]).any()


def test_a_warm_start_of_register_tiles_reads_the_record(gpu: FakeGpu, torch: FakeTorch, steps: list[str]) -> None:
    JitKernel(tile_source("pointer_loop"), Hints())[(1,)](**tile_arguments())
    _loaded.cache_clear()
    steps.clear()
    source = tile_source("pointer_loop")
    JitKernel(source, Hints())[(1,)](**tile_arguments())
    assert not steps and not source.asked and len(gpu.launches) == 2


def test_a_kernel_warns_when_it_is_loaded_where_dense_may_be_faster(
    gpu: FakeGpu, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "reasons_for_dense", lambda found: ("most products are dense",))
    for _ in range(2):
        kernel = JitKernel(tile_source("pointer_loop"), Hints())
        with pytest.warns(UserWarning, match="^pointer_loop: most products are dense$") as said:
            kernel[(1,)](**tile_arguments())
        assert [Path(each.filename).name for each in said] == ["test_compiled.py"]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            kernel[(1,)](**tile_arguments())
        # A later process reads the record.
        _loaded.cache_clear()


def test_a_product_is_one_kernel_whatever_is_aligned(
    gpu: FakeGpu, torch: FakeTorch, s: louver.SparseTensor, steps: list[str]
) -> None:
    source = kept_source("made_descriptors")
    kernel, known = JitKernel(source, Hints()), product_arguments(s)
    kernel[GRID](**known)
    once = ["PRODUCT", "Assembling"]
    assert steps == once and len(source.asked) == 1
    fewer = known | {"M": 200 - 7, "a": louver.compress(s.dense()[:-7], "2:4")}
    kernel[GRID](**fewer)
    assert steps == once and len(_loaded()) == 1
    _loaded.cache_clear()
    JitKernel(source, Hints())[GRID](**fewer)
    assert steps == once and len(source.asked) == 1, "its record is found too"
    kernel[GRID](**known | {"d": Tensor((M, N), strides=(N + 3, 1)), "stride_d": N + 3})
    assert steps == 2 * once, "an output that bulk copies cannot write has a kernel of its own"


def test_an_emulated_product_compiles_once(steps: list[str], s: louver.SparseTensor, rng: np.random.Generator) -> None:
    b = rng.standard_normal((N, K), np.float32).astype(np.float16)
    known = product_arguments(s, b=b, d=np.full((M, N), np.nan, np.float16))
    kernel = kept_kernel("made_descriptors")
    kernel.emulate[GRID](**known)
    assert kernel.explain[GRID](**known).family == "product"
    assert steps == ["PRODUCT", "Assembling"], "the emulator needs no assembler"


def wanted(source: KeptSource, s: louver.SparseTensor, **hints: Any) -> Wanted:
    call, given = JitKernel(source, Hints.of(hints))._call((), product_arguments(s))
    return Wanted(source, call.kind, given, "bulk", "sm_90a")


UNCLEAN = {
    "spill": r"a thread spills 8 bytes of registers and reads 12 back, in 16 bytes of stack",
    "remark": r"C7510: Potential Performance Loss: products in turn \(line 7 of the PTX\)",
}


@pytest.mark.parametrize(("what", "said"), UNCLEAN.items())
@pytest.mark.parametrize("hints", [{}, {"stages": 3, "store": "direct"}], ids=["", "hints"])
def test_a_product_that_does_not_assemble_cleanly_is_refused(
    gpu: FakeGpu,
    torch: FakeTorch,
    s: louver.SparseTensor,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    said: str,
    hints: dict[str, Any],
) -> None:
    real = assembler.assemble

    def spoilt(ptx: str, target: str) -> assembler.Assembly:
        made = real(ptx, target)
        if what == "remark":
            remark = assembler.Remark("C7510", "Potential Performance Loss: products in turn", 7, True)
            return replace(made, warnings=(remark,))
        spilling = replace(made.kernels[0], spill_store_bytes=8, spill_load_bytes=12, stack_bytes=16)
        return replace(made, kernels=(spilling,))

    monkeypatch.setattr(assembler, "assemble", spoilt)
    rule = "a product must assemble without spills and serialized products; made_descriptors does not"
    advice = "Give the kernel a smaller tile, or its epilogue fewer arrays"
    end = ", or leave out the hints stages, store$" if hints else "$"
    with pytest.raises(RuntimeError, match=rf"{rule}: {said} \(ptxas \d.*Schedule\(.*\)\)\. {advice}{end}"):
        build_record(wanted(kept_source("made_descriptors"), s, **hints))
    with pytest.raises(RuntimeError, match=said):
        kept_kernel("made_descriptors", **hints)[GRID](**product_arguments(s))
    assert not gpu.launches and not _loaded()
