"""Small products for the tests of the warpgroup instructions: natural data, placed as a kernel would place it.

A `Product` is 64 rows of A, sparse or dense, times B, over as many instructions as one 16-byte metadata load serves.
The CPU tests run it through `Wgmma.meaning`, the GPU tests through the hardware; both compare with float64.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from louver.formats.dtypes import element_type
from louver.isa.metadata import MetadataMap, columns_per_load, prepack
from louver.isa.swizzle import Swizzle, SwizzledTile, describe
from louver.isa.wgmma import Wgmma

ROWS = 64


def integers(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Values whose products and sums are exact in every accumulator: small integers, or any for the integer types."""
    dtype = element_type(name).numpy
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max + 1, shape).astype(dtype)
    return rng.integers(-3, 4, shape).astype(np.float32).astype(dtype)


def read_as(name: str, values: np.ndarray) -> np.ndarray:
    """The values as a product reads them: tf32 drops the lowest 13 bits."""
    return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) if name == "tf32" else values


def normals(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Random values: normal, or any integer."""
    dtype = element_type(name).numpy
    if dtype.kind in "iu":
        return integers(rng, name, shape)
    return rng.standard_normal(shape).astype(np.float32).astype(dtype)


def random_codes(rng: np.random.Generator, form: Wgmma, groups: int) -> np.ndarray:
    """Legal metadata codes, uint8 [64, groups]."""
    return rng.choice(form.metadata_map.legal, (ROWS, groups)).astype(np.uint8)


def natural_indices(codes: np.ndarray) -> np.ndarray:
    """Codes two a byte, first in the low nibble; the nibble beyond an odd count is 0."""
    even = np.pad(codes, ((0, 0), (0, codes.shape[1] % 2)))
    return even[:, ::2] | even[:, 1::2] << 4


def densify(codes: np.ndarray, values: np.ndarray, group: int) -> np.ndarray:
    """The dense matrix, float64, one group at a time: written for clarity, as an oracle for the maps."""
    rows, groups = codes.shape
    dense = np.zeros((rows, groups * group))
    for row in range(rows):
        for g in range(groups):
            code = int(codes[row, g])
            if group == 4:
                dense[row, 4 * g + (code & 3)] = values[row, 2 * g]
                dense[row, 4 * g + (code >> 2)] = values[row, 2 * g + 1]
            else:
                dense[row, 2 * g + (code == 0xE)] = values[row, g]
    return dense


class DenseForm:
    """What a product computes, by its operands in natural form."""

    form: Any
    values: np.ndarray
    b: np.ndarray
    codes: np.ndarray | None

    def exact_b(self) -> np.ndarray:
        """B as float64 [k, n]."""
        return read_as(self.form.b, self.b).astype(np.float64)

    def dense_a(self) -> np.ndarray:
        """A as float64 [64, k]."""
        values = read_as(self.form.a, self.values).astype(np.float64)
        return values if self.codes is None else densify(self.codes, values, self.form.metadata_map.group)

    def magnitude(self, d: np.ndarray | None) -> np.ndarray:
        """The sum of the terms' magnitudes, float64 [64, n], for error bounds. d: what is added to."""
        total = np.abs(self.dense_a()) @ np.abs(self.exact_b())
        return total if d is None else total + np.abs(d.astype(np.float64))


@dataclass(frozen=True)
class Product(DenseForm):
    """Operands in natural form, and in the form that the instructions read.

    values: [64, stored columns]. b: [k, n]. codes: [64, groups] or None. window: the shared-memory image.
    steps: per instruction, the form (its selector set), the operand A (descriptor or registers), B's descriptor and the
    metadata words of the 128 threads (None when dense).
    """

    form: Wgmma
    values: np.ndarray
    b: np.ndarray
    codes: np.ndarray | None
    window: np.ndarray
    steps: tuple[tuple[Wgmma, int | np.ndarray, int, np.ndarray | None], ...]

    def reference(self, d: np.ndarray | None) -> np.ndarray:
        """The exact result, float64 [64, n], before any rounding."""
        sign = -1 if self.form.negate_a != self.form.negate_b else 1
        total = sign * (self.dense_a() @ self.exact_b())
        return total if d is None else total + d.astype(np.float64)

    def registers(self, d: np.ndarray | None) -> np.ndarray:
        """Accumulator registers, uint32 [count, 128], that hold d [64, n]; NaNs for None."""
        fragment = self.form.d_fragment
        if d is None:
            return np.full((fragment.registers, 128), 0x7FC07E01, dtype=np.uint32)
        return fragment.gather(d.view(element_type(self.form.d).bits_dtype))

    def matrix(self, registers: np.ndarray) -> np.ndarray:
        """D, [64, n] of its dtype, from the accumulator registers."""
        return self.form.d_fragment.scatter(registers).view(element_type(self.form.d).numpy)

    def meaning(self, d: np.ndarray | None) -> np.ndarray:
        """D after all steps by `Wgmma.meaning`; None starts with scale-d false over garbage."""
        registers = self.registers(d)
        for i, (step, a, b_desc, meta) in enumerate(self.steps):
            registers = step.meaning(registers, a, b_desc, meta, d is not None or i > 0, self.window)
        return self.matrix(registers)


def starting(rng: np.random.Generator, form: Wgmma) -> np.ndarray:
    """Small integers of D's dtype, [64, n], to accumulate onto."""
    return rng.integers(-50, 50, (ROWS, form.n)).astype(element_type(form.d).numpy)


def tiny_operand(which: int):
    """Values of f32 for `make_product`: of operand `which`, 0 or 1, half are near 2^-126 and half below it, subnormal. Those
    of the other operand are large enough to show them. All sums are exact.
    """
    number = iter(range(2))

    def values_of(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
        tiny = next(number) == which
        scale = np.where(rng.random(shape) < 0.5, 2.0**-126, 2.0**-128) if tiny else np.full(shape, 2.0**100)
        return (rng.integers(-3, 4, shape) * scale).astype(np.float32)

    return values_of


def make_product(form: Wgmma, rng: np.random.Generator, values_of=integers, swizzle_a: int = 128, swizzle_b: int = 128):
    """A random `Product` of `form` over one metadata load of K (as many columns when dense), 16-byte-aligned garbage around."""
    k = columns_per_load(form.a)
    stored = k // 2 if form.sparse else k
    values, b = values_of(rng, form.a, (ROWS, stored)), values_of(rng, form.b, (k, form.n))
    codes = random_codes(rng, form, k // form.metadata_map.group) if form.sparse else None
    tile_a, image_a = _placed(values, form.transpose_a, swizzle_a)
    tile_b, image_b = _placed(b.T, form.transpose_b, swizzle_b)
    base_a, base_b = 1024, 1024 + -(-image_a.size // 1024) * 1024 + 1024
    window = rng.integers(0, 256, base_b + image_b.size, dtype=np.uint8)
    window[base_a : base_a + image_a.size] = image_a
    window[base_b : base_b + image_b.size] = image_b
    words = None
    if codes is not None:
        words = prepack(natural_indices(codes), ROWS, k, form.a)
    steps = []
    for i in range(k // form.k):
        selectors = form.metadata_map.selectors if form.sparse else 1
        step = replace(form, selector=i % selectors)
        a: int | np.ndarray = _at(tile_a, base_a, i * form.k_stored, element_type(form.a).bytes)
        if form.a_source == "registers":
            part = values[:, i * form.k_stored : (i + 1) * form.k_stored]
            a = form.a_fragment.gather(np.ascontiguousarray(part).view(element_type(form.a).bits_dtype))
        meta = None if words is None else words[0, i // selectors]
        steps.append((step, a, _at(tile_b, base_b, i * form.k, element_type(form.b).bytes), meta))
    return Product(form, values, b, codes, window, tuple(steps))


def _placed(lines: np.ndarray, transposed: bool, span: int) -> tuple[SwizzledTile, np.ndarray]:
    """The tile, and its bytes, of an operand given as [M or N, K]; N-major lines are padded to whole boxes."""
    lines = lines.T if transposed else lines
    raw = np.ascontiguousarray(lines).view(np.uint8)
    swizzle = Swizzle(span)
    raw = np.pad(raw, ((0, 0), (0, -raw.shape[1] % swizzle.width)))
    tile = SwizzledTile("mn" if transposed else "k", *raw.shape, swizzle)
    return tile, shared_image(tile, raw)


def shared_image(tile: SwizzledTile, matrix: np.ndarray) -> np.ndarray:
    """The tile's bytes in shared memory, uint8 [bytes], from its logical bytes, uint8 [lines, line_bytes]."""
    placed = np.empty(tile.bytes, dtype=np.uint8)
    placed[tile.offset(np.arange(tile.lines)[:, None], np.arange(tile.line_bytes)[None, :])] = matrix
    return placed


def contributing(layout: MetadataMap, selector: int) -> np.ndarray:
    """The threads whose metadata word the product with that selector reads: bool [threads]."""
    return (layout.coordinates()[1] // layout.groups == selector).all(axis=1)


def _at(tile: SwizzledTile, base: int, k: int, size: int) -> int:
    """The descriptor of the part of the tile that starts at step k of K."""
    if tile.major == "k":
        return describe(tile, base, byte=k * size).encode()
    return describe(tile, base, line=k).encode()
