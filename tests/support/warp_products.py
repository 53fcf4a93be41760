"""Small products for the tests of mma.sync and mma.sp: natural data, placed as a kernel would place it, and the kernel.

A `WarpProduct` is 64 rows of A, sparse or dense, 16 for each of four warps, times B [k, 8], over as much of K as one 16-byte
metadata load serves: the words are those that `prepack` makes for a warpgroup.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from louver.emulator import GlobalMemory, run
from louver.formats.dtypes import element_type
from louver.isa.catalogue import narrow_shapes, warp_shapes
from louver.isa.fragments import Fragment
from louver.isa.instruction import RegType
from louver.isa.metadata import columns_per_load, prepack
from louver.isa.mma import ACCUMULATORS, Mma
from louver.isa.mma_fragments import COLUMNS
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Kernel, Module, Param, Reg
from louver.ptx.printer import print_module
from support.warpgroup import ROWS, DenseForm, integers, natural_indices, random_codes

THREADS = 128
WARPS = [slice(16 * warp, 16 * warp + 16) for warp in range(4)]
"""The rows of each warp."""

TYPES = [(a, b, d) for (a, b), sums in ACCUMULATORS.items() for d in sums]


def shapes() -> Iterator[Mma]:
    """Every shape of types that tensors have, selector 0."""
    return warp_shapes()


def every_form() -> Iterator[Mma]:
    """Every legal form, and some selectors of scales."""
    for form in (*warp_shapes(), *narrow_shapes()):
        for selector in range(form.selectors):
            saturations = (False, True) if form.d == "s32" else (False,)
            yield from (replace(form, selector=selector, satfinite=saturate) for saturate in saturations)
        if form.scale:
            last = range(0, 4, form.blocks)[-1]
            yield replace(form, scale_a=(last, 1), scale_b=(last, 3))


def over_warps(fragment: Fragment, matrix: np.ndarray) -> np.ndarray:
    """Registers, uint32 [count, 128], that hold 16 rows of [64, columns] in each warp."""
    raw = np.ascontiguousarray(matrix).view(f"u{fragment.bits // 8}")
    return np.concatenate([fragment.gather(raw[rows]) for rows in WARPS], axis=1)


@dataclass(frozen=True)
class WarpProduct(DenseForm):
    """values: A's stored ones, [64, columns]. b: [k, 8]. codes: [64, groups] or None.

    steps: per instruction, the form (its selector set), the registers of A and B, uint32 [count, 128], and the metadata
    words, uint32 [128] (None when dense; [3, 128] with the words of both scales).
    """

    form: Mma
    values: np.ndarray
    b: np.ndarray
    codes: np.ndarray | None
    steps: tuple[tuple[Mma, np.ndarray, np.ndarray, np.ndarray | None], ...]

    def reference(self, c: np.ndarray) -> np.ndarray:
        """The exact result, float64 [64, 8], before any rounding."""
        return self.dense_a() @ self.exact_b() + c.astype(np.float64)

    def matrix(self, registers: np.ndarray) -> np.ndarray:
        """D, [64, 8] of its dtype, from its registers, uint32 [count, 128]."""
        fragment = self.form.d_fragment
        parts = [fragment.scatter(np.ascontiguousarray(registers[:, 32 * w : 32 * w + 32])) for w in range(4)]
        return np.concatenate(parts).view(element_type(self.form.d).numpy)

    def meaning(self, c: np.ndarray) -> np.ndarray:
        """D after all steps by `Mma.meaning`, [64, 8]."""
        registers = over_warps(self.form.d_fragment, c)
        for form, a, b, meta in self.steps:
            parts = [slice(32 * warp, 32 * warp + 32) for warp in range(4)]
            registers = np.concatenate(
                [form.meaning(a[:, p], b[:, p], registers[:, p], *(word[p] for word in _words(meta))) for p in parts],
                axis=1,
            )
        return self.matrix(registers)


def _words(meta: np.ndarray | None) -> np.ndarray:
    """The words of a step, uint32 [count, 128]."""
    return np.zeros((0, THREADS), np.uint32) if meta is None else np.atleast_2d(meta)


def starting(rng: np.random.Generator, form: Mma) -> np.ndarray:
    """Small integers of C's dtype, [64, 8]."""
    return rng.integers(-50, 50, (ROWS, COLUMNS)).astype(element_type(form.d).numpy)


def make_product(form: Mma, rng: np.random.Generator, values_of=integers) -> WarpProduct:
    """A random product of `form` over one metadata load of K, as many columns when dense."""
    k = columns_per_load(form.a)
    values = values_of(rng, form.a, (ROWS, k // 2 if form.sparse else k))
    codes = random_codes(rng, form, k // form.metadata_map.group) if form.sparse else None
    return place(form, values, values_of(rng, form.b, (k, COLUMNS)), codes)


def place(form: Mma, values: np.ndarray, b: np.ndarray, codes: np.ndarray | None) -> WarpProduct:
    """The product of given data: k is whole metadata loads when sparse."""
    k = b.shape[0]
    words = None if codes is None else prepack(natural_indices(codes), ROWS, k, form.a)
    steps = []
    for i in range(k // form.k):
        stored = values[:, i * form.k_stored : (i + 1) * form.k_stored]
        part = np.ascontiguousarray(b[i * form.k : (i + 1) * form.k])
        b_registers = form.b_fragment.gather(part.view(element_type(form.b).bits_dtype))
        meta = None if words is None else words[0, i // form.selectors]
        step = replace(form, selector=i % form.selectors)
        steps.append((step, over_warps(form.a_fragment, stored), np.tile(b_registers, 4), meta))
    return WarpProduct(form, values, b, codes, tuple(steps))


# --- the kernel ----------------------------------------------------------------------------------------------------
def product_kernel(name: str, product: WarpProduct) -> Kernel:
    """Runs all steps of `product`; the operands are [steps · count, 128] words each, one after the other in `x`, sums in `y`."""
    k = KernelBuilder(name, (Param("x", "u64"), Param("y", "u64")), threads=THREADS)
    tid = k.special("%tid.x")
    x, y = (k.mad_wide(tid, 4, k.ld_param(name)) for name in "xy")
    kind: RegType = "f32" if product.form.d == "f32" else "b32"
    sums = tuple(k.regs(kind, product.form.d_fragment.registers))
    for index, register in enumerate(sums):
        k.load_global((register,), Address(y, 4 * THREADS * index))
    row = 0
    for form, a, b, meta in product.steps:
        operands: list[tuple[Reg, ...]] = []
        for count in (len(a), len(b), len(_words(meta))):
            operands.append(tuple(k.regs("b32", count)))
            for register in operands[-1]:
                k.load_global((register,), Address(x, 4 * THREADS * row))
                row += 1
        k.emit(form, sums, operands[0], operands[1], sums, *operands[2])
    for index, register in enumerate(sums):
        k.store_global(Address(y, 4 * THREADS * index), register)
    return k.finish()


def operand_words(product: WarpProduct) -> np.ndarray:
    """The words that `product_kernel` reads from `x`, uint32 [rows, 128]."""
    rows = [np.concatenate([a, b, _words(meta)]) for _, a, b, meta in product.steps]
    return np.ascontiguousarray(np.concatenate(rows))


def run_emulated(product: WarpProduct, c: np.ndarray) -> np.ndarray:
    """D, [64, 8], by the emulator."""
    memory = GlobalMemory()
    y = over_warps(product.form.d_fragment, c)
    arguments = {"x": memory.add("x", operand_words(product), writable=False), "y": memory.add("y", y)}
    run(product_kernel("product", product), 1, arguments, memory=memory)
    return product.matrix(y)


def run_on_gpu(products: list[WarpProduct], starts: list[np.ndarray]) -> list[np.ndarray]:
    """D of each, [64, 8], by the hardware."""
    from louver.ptx.assembler import assemble
    from louver.runtime.device import require_device
    from louver.runtime.memory import DeviceArray
    from louver.runtime.module import ArgumentPack, load

    target = require_device().target
    kernels = [product_kernel(f"k{i}", product) for i, product in enumerate(products)]
    cubin = assemble(print_module(Module(target, kernels)), target).cubin
    results = []
    for kernel, product, c in zip(kernels, products, starts, strict=True):
        words = (operand_words(product), over_warps(product.form.d_fragment, c))
        x, y = (DeviceArray.of(array.reshape(-1).view(np.uint8)) for array in words)
        arguments = ArgumentPack(["u64", "u64"])
        arguments.bind(x.buffer.address, y.buffer.address)
        load(cubin, kernel.name, threads=THREADS).launch(1, arguments)
        results.append(product.matrix(y.numpy().view(np.uint32).reshape(-1, THREADS)))
    return results
