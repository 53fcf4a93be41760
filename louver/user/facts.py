"""Facts that a call of a compiled product binds, by the user's arguments: kept beside the cubin, so that a warm start needs no IR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from louver.ir.polynomial import Polynomial, Size
from louver.ir.product import (
    Batch,
    LoadMatrix,
    LoadScalar,
    LoadVector,
    Number,
    ProductNest,
    Split,
    walk,
)
from louver.library.configure import Demand


@dataclass(frozen=True, slots=True)
class MatrixFacts:
    """A matrix in the memory of an argument: rows of `inner` elements, `pitch` elements apart; of a batch `entries` matrices,
    `entry_pitch` elements apart (None without one; entries are None too where the tensor alone says how many there are).
    """

    argument: str
    rows: Size
    inner: Size
    pitch: Size
    entries: Size | None = None
    entry_pitch: Size | None = None


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """An array with the number of an entry of the sparse operand for each tile along an axis of the product."""

    argument: str
    axis: Literal["m", "n"]


@dataclass(frozen=True, slots=True)
class VectorFacts:
    """So many contiguous elements of an argument: one for a scalar."""

    argument: str
    size: Size


@dataclass(frozen=True, slots=True)
class ProductFacts:
    """A product's operands and sizes.

    a: the sparse operand's dense matrix [m, k]. pair: the two arguments that it is made of, gate and up, or None for one. b: the dense operand where it is, [k, n] or [n, k]. d: the output. batch: entries,
    None without. index: what says which of a's entries a tile takes, None where nothing does. reads: matrices, vectors and scalars of the
    epilogue; numbers: its f32 arguments. equal, at_most, multiples, programs, split, positive, guarded, rows_apart: what a launch must
    check, see `ProductNest`. tile_m, tile_n: elements of the product that a tile of the kernel has. demand: by which a schedule may have
    another tile; None where an array says what each of the kernel's tiles reads.
    """

    m: Size
    n: Size
    k: Size
    batch: Size | None
    index: IndexFacts | None
    a: MatrixFacts
    pair: tuple[str, str] | None
    b: MatrixFacts
    d: MatrixFacts
    matrices: tuple[MatrixFacts, ...]
    vectors: tuple[VectorFacts, ...]
    numbers: tuple[str, ...]
    equal: tuple[tuple[Size, Size], ...]
    at_most: tuple[tuple[Size, int], ...]
    multiples: tuple[tuple[str, int], ...]
    programs: int | None
    tile_m: int
    tile_n: int
    split: Split | None
    demand: Demand | None
    positive: tuple[str, ...]
    guarded: bool
    rows_apart: tuple[tuple[str, Size], ...]

    @property
    def sparse(self) -> tuple[str, ...]:
        """The sparse arguments."""
        return (self.a.argument,) if self.pair is None else self.pair

    @classmethod
    def of(cls, nest: ProductNest) -> ProductFacts:
        """The facts of a nest."""
        out = {"m": nest.m // 2 if nest.gated else nest.m, "n": nest.n}

        def stored(argument: str, stride: Size, transposed: bool, batch: Batch | None) -> MatrixFacts:
            axes: tuple[Literal["m", "n"], ...] = ("n", "m") if transposed else ("m", "n")
            return _matrix(argument, out[axes[0]], out[axes[1]], stride, batch)

        nodes = list(dict.fromkeys(walk(nest.epilogue)))
        vectors = [VectorFacts(each.argument, out[each.axis]) for each in nodes if isinstance(each, LoadVector)]
        vectors += [VectorFacts(each.argument, Polynomial.number(1)) for each in nodes if isinstance(each, LoadScalar)]
        b_sizes = (nest.n, nest.k) if nest.b.k_major else (nest.k, nest.n)
        return cls(
            m=nest.m,
            n=nest.n,
            k=nest.k,
            batch=None if nest.store.batch is None else nest.store.batch.extent,
            index=None if nest.a.index is None else IndexFacts(nest.a.index.argument, nest.a.index.axis),
            a=_matrix(nest.a.argument, nest.m, nest.k, nest.a.stride, nest.a.batch),
            pair=nest.a.gated,
            b=_matrix(nest.b.argument, *b_sizes, nest.b.stride, nest.b.batch),
            d=stored(nest.store.argument, nest.store.stride, nest.store.transposed, nest.store.batch),
            matrices=tuple(
                stored(each.argument, each.stride, each.transposed, each.batch)
                for each in nodes
                if isinstance(each, LoadMatrix)
            ),
            vectors=tuple(vectors),
            numbers=tuple(each.argument for each in nodes if isinstance(each, Number)),
            equal=nest.equal,
            at_most=nest.at_most,
            multiples=nest.multiples,
            programs=nest.programs,
            tile_m=nest.tile_m,
            tile_n=nest.tile_n,
            split=nest.split,
            demand=None if nest.a.index is not None else Demand.of_nest(nest),
            positive=nest.positive,
            guarded=nest.guarded,
            rows_apart=nest.rows_apart,
        )


def _matrix(argument: str, rows: Size, inner: Size, stride: Size, batch: Batch | None) -> MatrixFacts:
    entries = (None, None) if batch is None else (batch.extent, batch.stride)
    return MatrixFacts(argument, rows, inner, stride, *entries)
