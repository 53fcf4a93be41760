"""Calls of the kernels in `support.triton` by `louver.jit`: from their kept texts, or by the Triton that is installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from louver.formats.dtypes import element_type
from louver.frontend.ttir import read_ttir
from louver.user.descriptor import TensorDescriptor
from louver.user.hints import Hints
from louver.user.kernel import JitKernel
from louver.user.source import Parameter
from support.triton.cases import CASES, kept
from support.triton.products import Given

Array = NDArray[Any]

ORDER = {
    "made_descriptors": ("d", "a", "b", "M", "N", "K", "stride_a", "stride_b", "stride_d", "BM", "BN", "BK"),
    "given_descriptors": ("d_tiles", "a_tiles", "b_tiles", "K", "BM", "BN", "BK"),
    "block_pointers": ("d", "a", "b", "M", "N", "K", "stride_a", "stride_b", "stride_d", "BM", "BN", "BK"),
    "grouped_pointers": (
        *("a", "b", "d", "M", "N", "K", "stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_dm", "stride_dn"),
        *("BM", "BN", "BK", "GROUP", "ACTIVATION"),
    ),
    "indexed_pointers": (
        *("a", "b", "d", "bias", "scale", "M", "N", "K", "stride_a", "stride_b", "stride_d"),
        *("BM", "BN", "BK"),
    ),
    "eight_bit_blocks": ("d", "a", "b", "M", "N", "K", "stride_a", "stride_b", "stride_d", "BM", "BN", "BK"),
}
"""The kernels' parameters."""

CONSTEXPRS = ("BM", "BN", "BK", "GROUP", "ACTIVATION")


@dataclass(frozen=True)
class KeptSource:
    """A kernel as a text that Triton made of it, for the types that it was made for. asked: what it was asked to compile."""

    name: str
    text: str
    order: tuple[str, ...]
    native: Any = None
    asked: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list, compare=False)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return tuple(Parameter(name, name in CONSTEXPRS) for name in self.order)

    @property
    def key(self) -> str:
        return f"kept {self.text}"

    def tile_ir(
        self, signature: Mapping[str, str], constexprs: Mapping[str, Any], sparse: Mapping[str, str], target: str
    ) -> ModuleOp:
        self.asked.append((dict(signature), dict(constexprs)))
        return read_ttir(self.text)


def kept_kernel(name: str, version: str = "3.6", **hints: Any) -> JitKernel:
    return JitKernel(KeptSource(name, kept(name, version), ORDER[name]), Hints.of(hints))


def poisoned(shape: tuple[int, int], element: str, padding: int) -> Array:
    """An output with `padding` more columns, every element NaN."""
    rows, columns = shape
    return np.full((rows, columns + padding), np.nan).astype(element_type(element).numpy)[:, :columns]


def arguments(case: Given, out: Array) -> dict[str, Any]:
    """The call's arguments by name; integers that the kept text has as arguments are never 1."""
    (m, k), n = case.a.shape, case.b.shape[1]
    dense = case.dense
    width = dense.strides[0] // dense.itemsize
    pitch = out.strides[0] // out.itemsize
    known: dict[str, Any] = {"a": case.s, "b": dense, "d": out, "M": m, "N": n, "K": k, **case.reads}
    known |= {"stride_a": k, "stride_b": width, "stride_d": pitch, "stride_am": k, "stride_bk": width}
    known |= {"stride_dm": pitch, "stride_ak": 1, "stride_bn": 1, "stride_dn": 1}
    known |= CASES[case.name].constexprs
    if case.name == "given_descriptors":
        known["a_tiles"] = TensorDescriptor.from_tensor(case.s, [128, 64])
        known["b_tiles"] = TensorDescriptor.from_tensor(dense, [64, 64])
        known["d_tiles"] = TensorDescriptor(out, out.shape, (pitch, 1), [128, 64])
    return {name: known[name] for name in ORDER[case.name]}


def grid_of(case: Given) -> tuple[int, ...]:
    """A program for each tile, as the kernel numbers them."""
    (m, _), n, tile = case.a.shape, case.b.shape[1], CASES[case.name].constexprs
    tiles_m, tiles_n = -(-m // tile["BM"]), -(-n // tile["BN"])
    if case.name in ("grouped_pointers", "eight_bit_blocks"):
        return (tiles_m * tiles_n,)
    return (tiles_n, tiles_m) if case.name == "indexed_pointers" else (tiles_m, tiles_n)


def output(case: Given, padding: int = 0) -> Array:
    (m, _), n = case.a.shape, case.b.shape[1]
    store = case.product.nest.store
    return poisoned((n, m) if store.transposed else (m, n), store.element, padding)


def result(case: Given, out: Array) -> Array:
    return out.T if case.product.nest.store.transposed else out
