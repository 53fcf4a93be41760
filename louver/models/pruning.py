"""Prunes the weights of a checkpoint: the steps of `louver prune`."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.formats.checkpoint import Checkpoint, CheckpointFile, StoredTensor, TensorReader, listed, open_checkpoint
from louver.formats.compress import compress
from louver.formats.container import DTYPES, type_name
from louver.formats.pattern import Pattern
from louver.formats.prune import prune
from louver.formats.regular import FormatError
from louver.formats.schema import DenseForm, Form, SparseForm
from louver.formats.select import Norm
from louver.formats.tensor import SparseTensor
from louver.models.analyze import analyze
from louver.models.rewrite import Plan
from louver.models.roles import ModelFacts, Role, Scale, TensorFacts
from louver.models.scaled import Factors, numbers
from louver.models.selection import DEFAULT, Choice
from louver.models.steps import (
    COMPRESSED,
    LayerRow,
    Piece,
    Region,
    Source,
    Step,
    Tally,
    convert,
    known_element,
    placed,
    regions,
    sparse_pieces,
    written_element,
)
from louver.models.workers import HERE, Workers


@dataclass(frozen=True, slots=True)
class Given:
    """A dense tensor in a file that Louver wrote, under the name that it has in the checkpoint. crc32: of its bytes."""

    crc32: str
    file: CheckpointFile = field(repr=False)
    tensor: StoredTensor = field(repr=False)

    @contextmanager
    def open(self) -> Generator[tuple[TensorReader, StoredTensor]]:
        """A reader of the file, on any machine. Raises FormatError if the file was changed since."""
        with self.file.here().open() as reader:
            yield reader, self.tensor

    def array(self) -> NDArray[Any]:
        """The whole tensor. Raises FormatError for damage."""
        with self.open() as (reader, tensor):
            return np.asarray(reader.read(tensor))


def found(paths: Iterable[Path]) -> dict[str, Given]:
    """The dense tensors of some files by name. Of a name in two files the later one counts. Raises FormatError for a file
    that Louver did not write.
    """
    given: dict[str, Given] = {}
    for path in paths:
        for file in open_checkpoint(path).files:
            for name, tensor in file.tensors.items():
                crc32 = tensor.arrays[0].crc32
                if crc32 is None:
                    raise FormatError(f"{path}: {name!r} has no checksum: Louver did not write this file")
                given[name] = Given(crc32, file, tensor)
    return given


@dataclass(frozen=True, slots=True)
class Replacement:
    """Writes a given tensor in the place of the source's, in its form."""

    form: Form
    given: Given
    reads: tuple[str, ...] = ()

    def pieces(self, source: Source, name: str, tally: Tally) -> Iterator[Piece]:
        with self.given.open() as (reader, tensor):
            yield from reader.chunks(tensor)

    def row(self, name: str, tally: Tally) -> LayerRow | None:
        return None


@dataclass(frozen=True, slots=True)
class PruneOptions:
    """Which tensors are pruned, and the form of the output.

    dtype: element type of pruned weights; None: unchanged, unless compressed (see `COMPRESSED`). compressed: write
    values and indices instead of dense tensors with zeros. norm: see `louver.prune`.
    """

    pattern: Pattern
    dtype: str | None = None
    choice: Choice = DEFAULT
    compressed: bool = False
    norm: Norm = "l2"

    def plan(self, checkpoint: Checkpoint, workers: Workers = HERE) -> Plan:
        """Prunes the weights along their contracted axes. Raises ValueError if `analyze` finds nothing to prune."""
        return prune_plan(checkpoint, analyze(checkpoint.path, self.choice, self.pattern), self)


def prune_plan(
    checkpoint: Checkpoint, facts: ModelFacts, options: PruneOptions, given: Mapping[str, Given] | None = None
) -> Plan:
    """The steps that prune a checkpoint. given: tensors that were pruned apart, and others to write in the place of the
    checkpoint's; None: prune by magnitude. Raises ValueError if no tensor is pruned.
    """
    unlisted = frozenset(checkpoint.unlisted)
    aliased = {name for name in checkpoint.metadata.values() if name in facts.tensors}
    steps: dict[str, Step] = {}
    dense: list[str] = []
    for each in facts.pruned:
        if each.name in unlisted or (given is not None and each.name not in given):
            continue
        why = _why_dense(each, options, aliased) if options.compressed else ""
        steps[each.name] = PruneStep.of(each, options, options.compressed and not why, given or {})
        dense += [f"{each.name} ({why})"] if why else []
    if not steps:
        raise ValueError(
            f"none of {len(facts.tensors)} tensors is pruned ({facts.examples}): see --dry-run for all reasons, name tensors with --include"
        )
    for name, tensor in (given or {}).items():
        if name not in steps:
            steps[name] = Replacement(checkpoint.tensors[name].form, tensor)
    notes = (*facts.notes, *left_notes(facts))
    if dense:
        notes += (f"pruned, but stored dense: {listed(tuple(dense))}",)
    return Plan(steps, notes)


def _why_dense(facts: TensorFacts, options: PruneOptions, aliased: Collection[str]) -> str:
    """Why a pruned tensor is not compressed; an empty text if it is."""
    if facts.name in aliased:
        # The alias names a stored array, which a compressed tensor has not.
        return "another name in the metadata stands for it"
    assert isinstance(facts.form, DenseForm)
    known = options.dtype or known_element(facts.form) or DTYPES[facts.form.dtype].name in COMPRESSED
    return "" if known else f"sparse tensors have no elements of type {facts.form.dtype}"


def left_notes(facts: ModelFacts) -> tuple[str, ...]:
    """Notes on the tensors that are left because Louver does not read or know them."""
    notes: list[str] = []
    for role, what in ((Role.PACKED, "packed"), (Role.UNKNOWN, "of unknown use")):
        names = tuple(name for name, each in facts.tensors.items() if each.role is role and not each.prune)
        for name in names[:1]:
            stay = "tensors are" if len(names) > 1 else "tensor is"
            notes.append(
                f"{len(names)} {stay} {what}, left byte for byte ({facts.tensors[name].reason}): {listed(names)}"
            )
    return tuple(notes)


@dataclass(frozen=True, slots=True)
class PruneStep:
    """Prunes one tensor. axis: of its groups. form: as written. stored: as read. scale: of a quantized weight.

    given, given_scale: the tensor and its scales as pruned apart; None: it is pruned by magnitude, or its scales stay.
    """

    form: DenseForm | SparseForm
    stored: DenseForm
    axis: int
    pattern: Pattern
    norm: Norm
    scale: Scale | None = None
    given: Given | None = None
    given_scale: Given | None = None

    @classmethod
    def of(cls, facts: TensorFacts, options: PruneOptions, compressed: bool, given: Mapping[str, Given]) -> PruneStep:
        """The step for a tensor that is pruned. Raises ValueError for a type that the options do not allow."""
        assert isinstance(facts.form, DenseForm) and facts.axis is not None
        if facts.scale is not None and options.dtype is not None:
            raise ValueError(
                f"{facts.name} is quantized, with scales in {facts.scale.name}: it keeps its element type, leave out --dtype or --exclude it"
            )
        element = written_element(facts.form, options.dtype, compressed)
        form = facts.form if element is None else DenseForm(type_name(element.numpy), facts.form.shape)
        if compressed:
            assert element is not None
            form = SparseForm(options.pattern, element, facts.form.shape, facts.axis)
        scales = None if facts.scale is None else given.get(facts.scale.name)
        pruned = given.get(facts.name)
        return cls(form, facts.form, facts.axis, options.pattern, options.norm, facts.scale, pruned, scales)

    @property
    def reads(self) -> tuple[str, ...]:
        return () if self.scale is None else (self.scale.name,)

    def pieces(self, source: Source, name: str, tally: Tally) -> Iterator[Piece]:
        if isinstance(self.form, SparseForm):
            yield from sparse_pieces(self._compressed(source, name, tally))
        else:
            yield from (placed(*pruned) for pruned in self._pruned(source, name, tally))

    def row(self, name: str, tally: Tally) -> LayerRow:
        sparse = known_element(self.form)
        dtype = DTYPES[self.stored.dtype] if sparse is None else sparse.numpy
        sizes = DenseForm(type_name(dtype), self.form.shape).nbytes, self.form.nbytes
        return tally.row(name, self.form.shape, dtype.name if sparse is None else sparse.name, sizes)

    def _pruned(self, source: Source, name: str, tally: Tally) -> Iterator[tuple[Region, NDArray[Any]]]:
        shape, by_rows = self.form.shape, isinstance(self.form, SparseForm)
        factors = after = None
        if self.scale is not None:
            factors = after = Factors.of(source.array(self.scale.name), self.scale, shape)
            if self.given_scale is not None:
                after = Factors.of(self.given_scale.array(), self.scale, shape)
        with ExitStack() as stack:
            original = stack.enter_context(source.open(name))
            given = None if self.given is None else stack.enter_context(self.given.open())
            for region in regions(shape, self.axis, self.pattern, by_rows=by_rows):
                stored, factor = region.read(*original), region.factor(factors)
                if given is None:
                    pruned = self._prune(name, stored, region.axis, factor)
                else:
                    pruned = self._converted(name, region.read(*given))
                tally.add(numbers(stored, factor), numbers(pruned, region.factor(after)))
                yield region, pruned

    def _compressed(self, source: Source, name: str, tally: Tally) -> Iterator[tuple[Region, SparseTensor]]:
        for region, pruned in self._pruned(source, name, tally):
            sparse = compress(pruned, self.pattern, axis=region.axis)
            tally.negative_zeros += sparse.negative_zeros_dropped
            yield region, sparse

    def _prune(self, name: str, stored: NDArray[Any], axis: int, factor: NDArray[Any] | None) -> NDArray[Any]:
        """The pruned elements in the written type, of stored elements. The magnitude of an element includes its scale."""
        written, converted = known_element(self.form), self._converted(name, stored)
        if factor is None and written is not None:
            return prune(converted, self.pattern, axis=axis, norm=self.norm)
        whole = numbers(stored, factor).astype(np.float32, copy=False)
        kept = prune(whole, self.pattern, axis=axis, norm=self.norm).view(np.uint32) != 0
        return np.where(kept, converted, np.zeros((), converted.dtype))

    def _converted(self, name: str, stored: NDArray[Any]) -> NDArray[Any]:
        written = known_element(self.form)
        return stored if written is None else convert(name, stored, written)
