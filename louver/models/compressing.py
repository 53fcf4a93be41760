"""Writes pruned weights compressed, and compressed weights dense: the steps of `louver compress` and `louver decompress`.

Both are lossless, except that a -0.0 that is not stored becomes +0.0.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from louver.formats.bitmask import packed_pieces, written_form
from louver.formats.check import CheckReport, check, joined
from louver.formats.checkpoint import Checkpoint, CheckpointFile, listed
from louver.formats.compress import compress
from louver.formats.container import DTYPES, type_name
from louver.formats.pattern import Pattern
from louver.formats.schema import BitmaskForm, DenseForm, Form, SparseForm
from louver.formats.tensor import SparseTensor
from louver.models.analyze import analyze
from louver.models.rewrite import Plan
from louver.models.roles import TensorFacts
from louver.models.selection import DEFAULT, Choice
from louver.models.shards import seen_here
from louver.models.steps import LayerRow, Piece, Region, Source, Step, Tally, known_element, regions, sparse_pieces
from louver.models.workers import HERE, Workers

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

    def plan(self, checkpoint: Checkpoint, workers: Workers = HERE) -> Plan:
        """Compresses weights that keep the pattern, bit for bit. Reads the weights. Raises ValueError if none keeps it."""
        facts = analyze(checkpoint.path, self.choice, self.pattern)
        unlisted = frozenset(checkpoint.unlisted)
        aliased = {name for name in checkpoint.metadata.values() if name in facts.tensors}
        weights = [each for each in facts.pruned if each.name not in unlisted]
        found: dict[str, Compression | str] = dict.fromkeys(aliased, "another name in the metadata stands for it")
        read = [each for each in weights if each.name not in aliased]
        tasks = [CheckShard.of(file, read, self) for file in checkpoint.files]
        with closing(workers.each([task for task in tasks if task.weights])) as checked:
            for _, results in checked:
                found.update(results)
        steps: dict[str, Step] = {}
        left: list[str] = []
        for name, step in ((each.name, found[each.name]) for each in weights):
            if isinstance(step, str):
                left.append(f"{name} ({step})")
            else:
                steps[name] = step
        if not weights:
            raise ValueError(
                f"none of {len(facts.tensors)} tensors can be compressed ({facts.examples}): see louver prune --dry-run for all reasons"
            )
        if not steps:
            raise ValueError(
                f"none of {len(weights)} weights can be compressed to {self.pattern}: {listed(left)}: prune them first"
            )
        return Plan(steps, (*facts.notes, *([f"weights that are copied: {listed(left)}"] if left else ())))


@dataclass(frozen=True, slots=True)
class CheckShard:
    """A task that reads weights of a shard, and yields the step that compresses each, or why there is none."""

    file: CheckpointFile
    weights: tuple[TensorFacts, ...]
    options: CompressOptions

    @classmethod
    def of(cls, file: CheckpointFile, weights: Iterable[TensorFacts], options: CompressOptions) -> CheckShard:
        """weights: of this shard and others."""
        own = tuple(each for each in weights if each.name in file.tensors)
        return cls(replace(file, path=file.path.absolute()), own, options)

    def run(self) -> Generator[tuple[str, Compression | str]]:
        source = Source.of([seen_here(self.file)])
        for each in self.weights:
            yield each.name, _compression(source, each, self.options)


@dataclass(frozen=True, slots=True)
class DecompressOptions:
    """What is decompressed: all compressed tensors."""

    def plan(self, checkpoint: Checkpoint, workers: Workers = HERE) -> Plan:
        """Writes compressed tensors dense, with +0.0 in the places that are not stored. Raises ValueError if there are none."""
        steps: dict[str, Step] = {}
        for name, tensor in checkpoint.tensors.items():
            if isinstance(tensor.form, SparseForm | BitmaskForm):
                steps[name] = Decompression(tensor.form)
        if not steps:
            raise ValueError(
                f"none of {len(checkpoint.tensors)} tensors of {checkpoint.path} is compressed: use it as it is"
            )
        return Plan(steps)


def _compression(source: Source, facts: TensorFacts, options: CompressOptions) -> Compression | str:
    """The step that compresses a weight, or why there is none."""
    assert isinstance(facts.form, DenseForm) and facts.axis is not None
    element, form = known_element(facts.form), None
    if element is None:
        return f"sparse tensors have no elements of type {facts.form.dtype}"
    if options.to == "sparse24_bitmask":
        if facts.axis != len(facts.form.shape) - 1:
            return f"a bitmask is along the last axis, its products contract axis {facts.axis}"
        try:
            form = written_form(facts.name, element, facts.form.shape)
        except ValueError as error:
            return str(error)
    report = joined(_reports(source, facts, options.pattern), options.pattern)
    if not report.ok:
        return f"{report.offending} of {report.groups} groups break {options.pattern}"
    form = form or SparseForm(options.pattern, element, facts.form.shape, facts.axis)
    return Compression(form, facts.axis, options.pattern)


def _reports(source: Source, facts: TensorFacts, pattern: Pattern) -> Iterator[CheckReport]:
    assert facts.axis is not None
    with source.open(facts.name) as (reader, tensor):
        for region in regions(facts.form.shape, facts.axis, pattern, by_rows=False):
            yield check(region.read(reader, tensor), pattern, axis=region.axis, listed=0)


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
    known = known_element(form)
    return DTYPES[_dense(form).dtype].name if known is None else known.name
