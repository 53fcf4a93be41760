"""Calls without sparse tensors, which are Triton's own: what Triton's launcher is given, and what is refused."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

import louver
from louver.user.hints import Hints
from louver.user.jit_kernel import JitKernel
from support.fake_gpu import FakeGpu, FakeTorch, Tensor
from support.jit import KeptSource, kept_source
from support.triton.cases import CASES
from support.triton.tuples import LARGE, Sizes, tuple_source

GRID = (2, 2)
M, N, K = 200, 96, 256


class Native:
    """Stands in for Triton's launcher. seen: grids and arguments."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, dict[str, Any]]] = []

    def __getitem__(self, grid: Any) -> Any:
        return lambda **given: self.seen.append((grid, given))


@dataclass
class TritonDescriptor:
    """Triton's own, which checks by assertions."""

    base: Any
    shape: list[int]
    strides: list[int]
    block_shape: list[int]
    padding: str = "zero"

    def __post_init__(self) -> None:
        assert self.base.data_ptr() % 16 == 0, "base must be 16-byte aligned"


@pytest.fixture
def native() -> Native:
    return Native()


@pytest.fixture
def source(native: Native) -> KeptSource:
    return kept_source("made_descriptors", native=native)


def arguments(**changes: Any) -> dict[str, Any]:
    arrays: dict[str, Any] = {"d": Tensor((M, N)), "a": Tensor((M, K)), "b": Tensor((N, K))}
    sizes = {"M": M, "N": N, "K": K, "stride_a": K, "stride_b": K, "stride_d": N}
    return {**arrays, **sizes, **CASES["made_descriptors"].constexprs, **changes}


def test_options_of_triton_s_are_passed_on(gpu: FakeGpu, torch: FakeTorch, source: KeptSource, native: Native) -> None:
    known = arguments()
    JitKernel(source, Hints.of({"num_warps": 4, "num_stages": 3}))[GRID](**known, num_warps=8, num_ctas=1)
    assert native.seen == [(GRID, {**known, "num_warps": 8, "num_stages": 3, "num_ctas": 1})]
    assert not source.asked and not gpu.launches


@pytest.mark.parametrize("where", ["call", "kernel"])
def test_hints_of_products_are_refused(
    gpu: FakeGpu, torch: FakeTorch, source: KeptSource, native: Native, where: str
) -> None:
    hints: dict[str, Any] = {"stages": 4, "consumers": 2, "num_warps": 8}
    kernel = JitKernel(source, Hints.of(hints if where == "kernel" else {}))
    with pytest.raises(
        ValueError,
        match="is Triton's own, whose options are num_warps and num_stages; made_descriptors got the hints consumers, stages, "
        "which are for products of sparse tensors: leave them out of this call and of louver.jit",
    ):
        kernel[GRID](**arguments(), **(hints if where == "call" else {}))
    assert not native.seen and not gpu.launches


def descriptors(**changes: Any) -> tuple[KeptSource, Native, dict[str, Any]]:
    """A call of a kernel that is given descriptors."""
    native = Native()
    a, b, d = (
        louver.TensorDescriptor(Tensor(shape), shape, (shape[1], 1), block)
        for shape, block in (((M, K), (128, 64)), ((N, K), (64, 64)), ((M, N), (128, 64)))
    )
    known: dict[str, Any] = {"d_tiles": d, "a_tiles": a, "b_tiles": b, "K": K, **CASES["given_descriptors"].constexprs}
    source = kept_source("given_descriptors", native=native)
    return source, native, {name: (known | changes)[name] for name in source.order}


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        sys.modules, "triton.tools.tensor_descriptor", SimpleNamespace(TensorDescriptor=TritonDescriptor)
    )


def test_descriptors_become_triton_s(gpu: FakeGpu, torch: FakeTorch, triton: None) -> None:
    source, native, known = descriptors()
    theirs = TritonDescriptor(known["b_tiles"].base, [N, K], [K, 1], [64, 64])
    JitKernel(source, Hints())[(4,)](**known | {"b_tiles": theirs}, num_warps=4)
    ((grid, given),) = native.seen
    assert grid == (4,) and list(given) == [*known, "num_warps"] and given["b_tiles"] is theirs
    for name in ("a_tiles", "d_tiles"):
        mine, made = known[name], given[name]
        assert made == TritonDescriptor(mine.base, list(mine.shape), list(mine.strides), list(mine.block_shape))
        assert made.base is mine.base and type(made.shape) is list
    assert {name: given[name] for name in known if "tiles" not in name} == {
        name: value for name, value in known.items() if "tiles" not in name
    }


def test_descriptors_that_triton_does_not_take_are_refused(gpu: FakeGpu, torch: FakeTorch, triton: None) -> None:
    odd = louver.TensorDescriptor(Tensor((M, K), address=(1 << 39) + 2), (M, K), (K, 1), (128, 64))
    source, native, known = descriptors(a_tiles=odd)
    with pytest.raises(
        ValueError, match="the argument 'a_tiles': .* does not take this descriptor: base must be 16-byte aligned"
    ):
        JitKernel(source, Hints())[(4,)](**known)
    assert not native.seen


@pytest.mark.parametrize("module", [None, SimpleNamespace()], ids=["no module", "no class"])
def test_a_triton_without_descriptors_is_named(
    gpu: FakeGpu, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch, module: Any
) -> None:
    monkeypatch.setitem(sys.modules, "triton.tools.tensor_descriptor", module)
    source, native, known = descriptors()
    with pytest.raises(RuntimeError, match="the argument '._tiles': .*the Triton that is installed has none: install"):
        JitKernel(source, Hints())[(4,)](**known)
    assert not native.seen


def test_triton_s_real_descriptor_is_made(gpu: FakeGpu, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch) -> None:
    real = pytest.importorskip("triton.tools.tensor_descriptor").TensorDescriptor
    source, native, known = descriptors()
    # What Triton asks of a dtype, besides its name.
    monkeypatch.setattr(type(known["a_tiles"].base.dtype), "itemsize", 2, raising=False)
    JitKernel(source, Hints())[(4,)](**known)
    ((_, given),) = native.seen
    assert type(given["a_tiles"]) is real and given["a_tiles"].block_shape == [128, 64]
    narrow = louver.TensorDescriptor(Tensor((M, K)), (M, K), (K, 1), (100, 64))
    with pytest.raises(ValueError, match="the argument 'a_tiles': .*power of 2"):
        JitKernel(source, Hints())[(4,)](**known | {"a_tiles": narrow})


def test_tuples_are_passed_on_unchanged(
    gpu: FakeGpu, torch: FakeTorch, native: Native, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = SimpleNamespace(TensorDescriptor=TritonDescriptor)
    monkeypatch.setitem(sys.modules, "triton.tools.tensor_descriptor", tools)
    a, b = Tensor((M, K)), Tensor((N, K))
    known: dict[str, Any] = {
        "d": Tensor((M, N)),
        "operands": (a, b),
        "sizes": Sizes(M, N, K),
        "strides": ((N, 1), ((K, 1), (1, K))),
        "scale": (0.5,),
        **LARGE,
    }
    kernel = JitKernel(tuple_source(native=native), Hints())
    kernel[GRID](**known)
    ((_, seen),) = native.seen
    assert all(seen[name] is value for name, value in known.items())
    # Only descriptors of Louver's become Triton's, in tuples too.
    kernel[GRID](**{**known, "operands": (louver.TensorDescriptor(a, [M, K], [K, 1], [64, 64]), b)})
    made, other = native.seen[1][1]["operands"]
    assert isinstance(made, TritonDescriptor) and made.base is a and other is b
