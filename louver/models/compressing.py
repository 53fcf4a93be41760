"""Writes pruned weights compressed, and compressed weights dense: the steps of `louver compress` and `louver decompress`.

Both are lossless, except that a -0.0 that is not stored becomes +0.0.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from louver.formats.bitmask import packed_pieces, written_form
from louver.formats.check import CheckReport, check, joined
from louver.formats.checkpoint import Checkpoint
from louver.formats.compress import compress
from louver.formats.container import DTYPES, type_name
from louver.formats.pattern import Pattern
from louver.formats.schema import BitmaskForm, DenseForm, Form, SparseForm
from louver.formats.tensor import SparseTensor
from louver.models.analyze import analyze
from louver.models.layer_row import LayerRow
from louver.models.output import listed
from louver.models.regions import Region, regions
from louver.models.rewrite import Plan, Progress, Rewritten, rewrite
from louver.models.roles import ModelFacts, TensorFacts
from louver.models.selection import DEFAULT, Choice
from louver.models.source import Source
from louver.models.steps import Piece, Step, Tally, sparse_pieces
from louver.models.weights import known_element

To: TypeAlias = Literal["louver", "sparse24_bitmask"]
"""A compressed form: values and indices of Louver, or the bitmask of compressed-tensors."""

UNIT = Pattern(2, 4)


@dataclass(frozen=True, slots=True)
class CompressOptions:
    """What is compressed: of the tensors that `louver prune` would prune, those that keep the pattern already."""

    pattern: Pattern
    choice: Choice = DEFAULT
    to: To = "louver"

    def __post_init__(self) -> None:
        if self.to == "sparse24_bitmask" and self.pattern != UNIT:
            raise ValueError(f"sparse24_bitmask holds {UNIT}, got {self.pattern}: write Louver's own form")


def compress_checkpoint(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    options: CompressOptions,
    *,
    force: bool = False,
    progress: Progress = lambda share: None,
) -> Rewritten:
    """Compress the weights of a checkpoint that keep a pattern already, bit for bit, and copy all other tensors.

    source, out, force: see `rewrite`. Raises ValueError if no weight keeps the pattern, FormatError and OSError.
    """

    def plan(checkpoint: Checkpoint) -> Plan:
        return compress_plan(checkpoint, analyze(checkpoint.path, options.choice, options.pattern), options)

    return rewrite(source, out, plan, request=repr(options), force=force, progress=progress)


def decompress_checkpoint(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    progress: Progress = lambda share: None,
) -> Rewritten:
    """Write the compressed tensors of a checkpoint dense, with +0.0 in the places that are not stored.

    source, out, force: see `rewrite`. Raises ValueError if no tensor is compressed, FormatError and OSError.
    """
    return rewrite(source, out, decompress_plan, request="decompress", force=force, progress=progress)


def compress_plan(checkpoint: Checkpoint, facts: ModelFacts, options: CompressOptions) -> Plan:
    """The steps that compress a checkpoint. Reads the weights. Raises ValueError if none keeps the pattern."""
    source, unlisted = Source.of(checkpoint), frozenset(checkpoint.unlisted)
    aliased = {name for name in checkpoint.metadata.values() if name in facts.tensors}
    weights = [each for each in facts.pruned if each.name not in unlisted]
    steps: dict[str, Step] = {}
    left: list[str] = []
    for each in weights:
        why = "another name in the metadata stands for it" if each.name in aliased else _why_not(source, each, options)
        if why:
            left.append(f"{each.name} ({why})")
        else:
            steps[each.name] = _compression(each, options)
    if not steps:
        raise ValueError(
            f"none of {len(weights)} weights can be compressed to {options.pattern}: {listed(tuple(left)) or 'see louver prune --dry-run'}"
        )
    notes = (*facts.notes, *([f"weights that are copied: {listed(tuple(left))}"] if left else ()))
    return Plan(steps, notes)


def decompress_plan(checkpoint: Checkpoint) -> Plan:
    """The steps that write a checkpoint dense. Raises ValueError if no tensor is compressed."""
    steps: dict[str, Step] = {}
    for name, tensor in checkpoint.tensors.items():
        if isinstance(tensor.form, SparseForm | BitmaskForm):
            steps[name] = Decompression(tensor.form)
    if not steps:
        raise ValueError(f"none of {len(checkpoint.tensors)} tensors of {checkpoint.path} is compressed")
    return Plan(steps)


def _why_not(source: Source, facts: TensorFacts, options: CompressOptions) -> str:
    """Why a weight is not compressed; an empty text if it is."""
    assert isinstance(facts.form, DenseForm) and facts.axis is not None
    element = known_element(facts.form)
    if element is None:
        return f"sparse tensors have no elements of type {facts.form.dtype}"
    if options.to == "sparse24_bitmask":
        if facts.axis != len(facts.form.shape) - 1:
            return f"a bitmask is along the last axis, its products contract axis {facts.axis}"
        try:
            written_form(facts.name, element, facts.form.shape)
        except ValueError as error:
            return str(error)
    report = joined(_reports(source, facts, options.pattern), options.pattern)
    return "" if report.ok else f"{report.offending} of {report.groups} groups break {options.pattern}"


def _reports(source: Source, facts: TensorFacts, pattern: Pattern) -> Iterator[CheckReport]:
    assert facts.axis is not None
    with source.open(facts.name) as (reader, tensor):
        for region in regions(facts.form.shape, facts.axis, pattern, by_rows=False):
            yield check(region.read(reader, tensor), pattern, axis=region.axis, listed=0)


def _compression(facts: TensorFacts, options: CompressOptions) -> Compression:
    assert isinstance(facts.form, DenseForm) and facts.axis is not None
    element = known_element(facts.form)
    assert element is not None
    if options.to == "sparse24_bitmask":
        return Compression(written_form(facts.name, element, facts.form.shape), facts.axis, options.pattern)
    return Compression(SparseForm(options.pattern, element, facts.form.shape, facts.axis), facts.axis, options.pattern)


@dataclass(frozen=True, slots=True)
class Compression:
    """Compresses a dense tensor that keeps a pattern along an axis."""

    form: SparseForm | BitmaskForm
    axis: int
    pattern: Pattern
    reads: tuple[str, ...] = ()

    def pieces(self, source: Source, name: str, tally: Tally) -> Iterator[Piece]:
        sparse = self._sparse(source, name, tally)
        if isinstance(self.form, BitmaskForm):
            yield from packed_pieces(self.form, (each for _, each in sparse))
        else:
            yield from sparse_pieces(sparse)

    def row(self, name: str, tally: Tally) -> LayerRow:
        dense = _dense(self.form)
        return tally.row(name, dense.shape, _type(self.form), (dense.nbytes, self.form.nbytes))

    def _sparse(self, source: Source, name: str, tally: Tally) -> Iterator[tuple[Region, SparseTensor]]:
        with source.open(name) as (reader, tensor):
            for region in regions(self.form.shape, self.axis, self.pattern, by_rows=True):
                dense = region.read(reader, tensor)
                sparse = compress(dense, self.pattern, axis=region.axis)
                tally.add(dense, dense)
                tally.negative_zeros += sparse.negative_zeros_dropped
                yield region, sparse


@dataclass(frozen=True, slots=True)
class Decompression:
    """Writes a compressed tensor dense."""

    stored: SparseForm | BitmaskForm
    reads: tuple[str, ...] = ()

    @property
    def form(self) -> Form:
        return _dense(self.stored)

    def pieces(self, source: Source, name: str, tally: Tally) -> Iterator[Piece]:
        tally.negative_zeros = self.stored.negative_zeros_dropped if isinstance(self.stored, SparseForm) else 0
        for piece in self._in_order(self._rows(source, name)):
            tally.add(piece, piece)
            yield (piece,)

    def row(self, name: str, tally: Tally) -> LayerRow:
        dense = _dense(self.stored)
        return tally.row(name, dense.shape, _type(self.stored), (dense.nbytes, dense.nbytes))

    def _rows(self, source: Source, name: str) -> Iterator[NDArray[Any]]:
        with source.open(name) as (reader, tensor):
            for piece in reader.pieces(tensor, UNIT):
                yield piece.dense() if isinstance(piece, SparseTensor) else piece

    def _in_order(self, rows: Iterator[NDArray[Any]]) -> Iterator[NDArray[Any]]:
        """Parts of rows along the sparse axis, in the order in which a dense tensor is stored. An axis before the last one
        needs the rows of a whole matrix [sparse axis, other axes behind it].
        """
        shape = self.stored.shape
        axis = self.stored.axis if isinstance(self.stored, SparseForm) else len(shape) - 1
        if axis == len(shape) - 1:
            yield from rows
            return
        size, behind = shape[axis], math.prod(shape[axis + 1 :])
        matrix, done = np.empty(behind * size, DTYPES[_dense(self.stored).dtype]), 0
        for part in rows:
            flat = part.reshape(-1)
            while flat.size:
                taken = flat[: matrix.size - done]
                matrix[done : done + taken.size] = taken
                flat, done = flat[taken.size :], done + taken.size
                if done == matrix.size:
                    yield np.ascontiguousarray(matrix.reshape(behind, size).T)
                    done = 0


def _dense(form: SparseForm | BitmaskForm) -> DenseForm:
    return DenseForm(form.dtype if isinstance(form, BitmaskForm) else type_name(form.dtype.numpy), form.shape)


def _type(form: SparseForm | BitmaskForm) -> str:
    known = form.dtype if isinstance(form, SparseForm) else known_element(form)
    return DTYPES[_dense(form).dtype].name if known is None else known.name
