"""The demo's products: one is compiled to all levels; all run and are checked against float64."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import louver
from louver.cli.commands.compile import compile_for
from louver.cli.commands.notes import note
from louver.compile.compiled import CompiledProduct, ProductLevel
from louver.formats.regular import Target
from louver.formats.schema import Tensor
from louver.formats.tensor import SparseTensor
from louver.isa.targets import SM_90A
from louver.library.emulate import emulate
from louver.library.numerics import compare
from louver.library.reference import exact_product
from louver.measure.report.products import ProductRow
from louver.ptx.assembler import assemble

TOKENS = 256
"""Rows of activations for every weight."""

SLICE = (512, 256, 1536)
"""Most rows of the weight, tokens and inner elements for the emulator: a few seconds of work."""

LEVEL_FILES: Mapping[ProductLevel, str] = {
    "tile": "product.tile.mlir",
    "sched": "product.sched.mlir",
    "ptx": "product.ptx",
}

Array = NDArray[Any]


def compile_stages(name: str, shape: tuple[int, int], dtype: str, out: Path) -> CompiledProduct:
    """Compile and assemble `linear` with the named weight of `shape`, write its levels to `out`, and print a note."""
    rows, columns = shape
    compiled = compile_for((rows, TOKENS, columns), dtype, "linear", SM_90A.name, bias=True)
    for level, file in LEVEL_FILES.items():
        Target.of(out / file).write(compiled.text(level).encode())
    assembly = assemble(compiled.ptx, SM_90A.name)
    Target.of(out / "product.cubin").write(assembly.cubin)
    note(
        f"compiled linear with {name} for {SM_90A.name}: {compiled.ptx.count(chr(10))} lines of PTX, "
        f"{len(assembly.cubin)} bytes of machine code, {len(assembly.warnings)} warnings"
    )
    return compiled


def check_products(
    tensors: Mapping[str, Tensor], weights: Mapping[str, SparseTensor], path: str
) -> Iterator[ProductRow]:
    """Run `linear` of random tokens with each weight and its bias, if any. All results are checked."""
    for index, (name, sparse) in enumerate(weights.items()):
        tokens = random_tokens(TOKENS, sparse, seed=index)
        bias = bias_of(name, tensors, sparse)
        start = time.perf_counter()
        y = louver.linear(tokens, sparse, bias)
        seconds = time.perf_counter() - start
        yield checked(name, path, seconds, y, sparse.dense(), tokens, bias)


def emulate_slice(name: str, compiled: CompiledProduct, dense: Array, bias: Array | None) -> ProductRow:
    """Run the compiled PTX on the emulator with the first rows and columns of a pruned weight, and check it."""
    rows, count, columns = SLICE
    part = np.ascontiguousarray(dense[:rows, :columns])
    sparse = louver.compress(part, "2:4")
    tokens = random_tokens(count, sparse, seed=0)
    vector = np.zeros(len(part), part.dtype) if bias is None else bias[:rows]
    start = time.perf_counter()
    y, _ = emulate(compiled, sparse, tokens, vector)
    return checked(f"{name} (slice)", "emulator", time.perf_counter() - start, y, part, tokens, vector)


def checked(
    name: str, path: str, seconds: float, y: Array, dense: Array, tokens: Array, bias: Array | None
) -> ProductRow:
    """Compare y [tokens, out] with the float64 product of the same operands."""
    reference, magnitude = exact_product(dense, tokens.T, bias)
    m, k = dense.shape
    agreement = compare(y.T, reference, magnitude, k, "f16")
    return ProductRow(name, (m, len(tokens), k), path, seconds, agreement.worst, agreement.ok)


def random_tokens(count: int, sparse: SparseTensor, seed: int) -> Array:
    """Normally distributed activations [count, K] of the weight's element type."""
    numbers = np.random.default_rng(seed).standard_normal((count, sparse.shape[1]))
    return numbers.astype(sparse.dtype.numpy)


def bias_of(name: str, tensors: Mapping[str, Tensor], sparse: SparseTensor) -> Array | None:
    """The bias of a weight by its name (`x.weight`, `x.bias`), in the weight's element type; None if there is none."""
    found = tensors.get(name.removesuffix("weight") + "bias") if name.endswith("weight") else None
    if not isinstance(found, np.ndarray) or found.shape != (sparse.shape[0],):
        return None
    return found.astype(sparse.dtype.numpy)
