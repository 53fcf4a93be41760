"""PyTorch tensors that are no plain memory are refused by what they are, before anything is read."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.tensor import SparseTensor

torch = pytest.importorskip("torch")

M, N, K = 8, 16, 32


class Wrapped(torch.Tensor):
    """A tensor of its own operations, such as those of quantization libraries."""

    @staticmethod
    def __new__(cls, x: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype, device=x.device)

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError


class Scaled(torch.Tensor):
    """A tensor whose functions mean something else than its memory."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(function, types, args, kwargs or {})


class Named(torch.Tensor):
    """A tensor with a name for its type only."""


def fake() -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode().from_tensor(torch.randn(M, K))


def quantized() -> Any:
    return torch.quantize_per_tensor(torch.randn(M, K), 0.1, 0, torch.qint8)


def freed(rows: int = 0) -> Any:
    w = torch.randn(M + rows, K)[rows:]
    w.untyped_storage().resize_(0)
    return w


def shrunk() -> Any:
    w = torch.randn(M, K)
    w.untyped_storage().resize_(4 * (M * K - 1))
    return w


KINDS: dict[str, tuple[Callable[[], Any], str]] = {
    "fake": (fake, "type is torch.Tensor .* got torch._subclasses.fake_tensor.FakeTensor: give the plain tensor"),
    "dispatch": (lambda: Wrapped(torch.randn(M, K)), r"type is torch.Tensor .* got .*Wrapped: give the plain tensor"),
    "function": (lambda: torch.randn(M, K).as_subclass(Scaled), "type is torch.Tensor .* got .*Scaled: give the plain"),
    "lazy": (lambda: torch.nn.UninitializedParameter(), "type is torch.Tensor .* got .*UninitializedParameter: give"),
    "meta": (lambda: torch.empty(M, K, device="meta"), "on a CUDA device or on the CPU, got meta: move"),
    "functional": (
        lambda: torch._to_functional_tensor(torch.randn(M, K)),
        "memory of its own, got one that .* transform",
    ),
    "zero": (lambda: torch._efficientzerotensor((M, K)), "memory of its own, got one"),
    "coo": (lambda: torch.eye(M, K).to_sparse(), "only strided tensors .* got layout torch.sparse_coo: call to_dense"),
    "csr": (
        lambda: torch.eye(M, K).to_sparse_csr(),
        "only strided tensors .* got layout torch.sparse_csr: call to_dense",
    ),
    "mkldnn": (
        lambda: torch.randn(M, K).to_mkldnn(),
        "only strided tensors .* got layout torch._mkldnn: call to_dense",
    ),
    "nested": (
        lambda: torch.nested.nested_tensor([torch.randn(M, K)] * 2),
        "got a nested tensor: call to_padded_tensor",
    ),
    "jagged": (
        lambda: torch.nested.nested_tensor([torch.randn(M, K)] * 2, layout=torch.jagged),
        "type is torch.Tensor .* got .*NestedTensor: give the plain",
    ),
    "quantized": (quantized, "quantized tensor's elements need its scale, got one: call dequantize"),
    "negated": (
        lambda: torch.randn(M, K, dtype=torch.complex64).conj().imag,
        "negation is still pending: call resolve_neg",
    ),
    "conjugated": (
        lambda: torch.randn(M, K, dtype=torch.complex64).conj(),
        "conjugation is still pending: call resolve_c",
    ),
    "freed": (freed, r"storage must hold its elements, 1024 bytes, got a storage of 0 bytes: it was freed"),
    "freed with an offset": (lambda: freed(3), r"hold its elements, 1408 bytes, got a storage of 0 bytes"),
    "shrunk": (shrunk, r"hold its elements, 1024 bytes, got a storage of 1020 bytes"),
}


@pytest.fixture
def s(rng: np.random.Generator) -> SparseTensor:
    return louver.compress(louver.prune(rng.standard_normal((N, K)).astype(np.float32), "2:8"), "2:8")


@pytest.mark.parametrize("kind", KINDS)
def test_every_entry_refuses_them(s: SparseTensor, kind: str) -> None:
    make, message = KINDS[kind]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        w = make()
    calls = {
        "linear": lambda: louver.linear(w, s),
        "matmul": lambda: louver.matmul(w, s.T),
        "bias": lambda: louver.linear(torch.randn(3, K), s, w),
        "out": lambda: louver.linear(torch.randn(M, K), s, out=w),
        "prune": lambda: louver.prune(w, "2:4"),
        "compress": lambda: louver.compress(w, "2:4", method="magnitude"),
        "check": lambda: louver.check(w, "2:4"),
        "update_": lambda: s.update_(w),
    }
    before = np.asarray(s)
    for name, call in calls.items():
        with pytest.raises((TypeError, ValueError), match=message):
            call()
            pytest.fail(name)
    np.testing.assert_array_equal(np.asarray(s), before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sparse_tensor_does_not_adopt_them(s: SparseTensor, kind: str) -> None:
    make, message = KINDS[kind]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        w = make()
    with pytest.raises((TypeError, ValueError), match=message):
        louver.SparseTensor(s.pattern, s.dtype, s.shape, s.axis, w, torch.from_numpy(s.indices.copy()))


def test_tensors_inside_transforms_are_refused(s: SparseTensor) -> None:
    def product(x: Any) -> Any:
        return louver.linear(x, s).sum()

    x = torch.randn(3, M, K)
    for transform in (torch.vmap(product), torch.func.grad(product), torch.func.functionalize(product)):
        with pytest.raises(ValueError, match="x: a tensor needs memory of its own, got one that a PyTorch transform"):
            transform(x)


def test_a_distributed_tensor_is_refused(s: SparseTensor) -> None:
    distributed = pytest.importorskip("torch.distributed")
    if not distributed.is_available():
        pytest.skip("PyTorch without distributed")
    from torch.distributed.tensor import DTensor, Replicate, init_device_mesh

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        x = DTensor.from_local(torch.randn(M, K), init_device_mesh("cpu", (1,)), [Replicate()])
        with pytest.raises(TypeError, match="x: .* got torch.distributed.tensor.DTensor: give the plain tensor"):
            louver.linear(x, s)
    finally:
        distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore:louver computes")
def test_subclasses_that_leave_the_operations_are_read(s: SparseTensor) -> None:
    x = torch.randn(M, K)
    expected = louver.linear(x, s)
    for given in (x.as_subclass(Named), torch.nn.Buffer(x), torch.nn.Parameter(x, requires_grad=False)):
        assert torch.equal(louver.linear(given, s), expected)
    empty = torch.empty(0, K)
    empty.untyped_storage().resize_(0)
    assert louver.linear(empty, s).shape == (0, N), "no elements need no storage"
