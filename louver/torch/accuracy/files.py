"""`prune_folder`: calibrated pruning of a model in a folder of Transformers, block by block, to another folder."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from louver.formats.checkpoint import Checkpoint, listed, open_checkpoint
from louver.formats.regular import Target
from louver.models.analyze import analyze
from louver.models.output import Output, output_of
from louver.models.pruning import Given, PruneOptions, found, prune_plan
from louver.models.rewrite import Plan, Rewritten, rewrite
from louver.models.roles import ModelFacts
from louver.models.workers import HERE, Workers, workers_of
from louver.torch.accuracy.calibrate import Options, calibrate, split
from louver.torch.accuracy.distill_report import Distillation
from louver.torch.accuracy.folder import Folder
from louver.torch.accuracy.matrix import Method
from louver.torch.accuracy.passes import Site, identity_of
from louver.torch.accuracy.prune import OWN_LENGTH, OWN_ROWS, checked_texts, own_text
from louver.torch.accuracy.spread import SpreadStreams, place_of
from louver.torch.accuracy.streams import Streams
from louver.torch.accuracy.text import Evaluation
from louver.torch.accuracy.texts import read_tokens
from louver.torch.accuracy.written import Written, distill_folder, evaluate_folder
from louver.torch.layers import linear_layers
from louver.torch.report import Report

ROWS: Final = 128
LENGTH: Final = 2048
"""Rows of a text from a file, and tokens of a row. A model of fewer positions takes shorter rows."""

OWN: Final = "self"
"""In the place of a file: text that the model writes itself."""

Progress = Callable[[str, float], object]
"""Is called with what is done now, and the finished share of it."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """How `prune_folder` prunes. See `louver.torch.prune_` for method, tune and permute.

    texts: files to calibrate on, or `OWN` alone. held_out: files that choose the damping and measure errors; none: the
    last eighth of each text. judged: files whose perplexity is measured before and after.
    rows: of each text, at most; None: 128. length: tokens of a row; None: 2,048, or what the model takes. Of text that the
    model writes itself None means 256 and 512.
    distill: minutes of `louver.torch.distill_` afterwards.
    """

    method: Method
    texts: tuple[str, ...] = (OWN,)
    held_out: tuple[str, ...] = ()
    judged: tuple[str, ...] = ()
    rows: int | None = None
    length: int | None = None
    tune: int = 0
    permute: bool = False
    distill: float | None = None
    blocks: str | None = None

    @property
    def speaks(self) -> bool:
        """Whether the model must predict text."""
        return self.texts == (OWN,) or bool(self.judged) or self.distill is not None

    def __post_init__(self) -> None:
        if not self.texts or (OWN in self.texts and len(self.texts) > 1):
            raise ValueError(f'texts are files, or "{OWN}" alone, got {", ".join(self.texts) or "none"}')
        for name, value, least in (("rows", self.rows, 1), ("length", self.length, 2)):
            if value is not None and value < least:
                raise ValueError(f"{name} is {least} or more, got {value}")
        for files in (self.texts, self.held_out, self.judged):
            names = [Path(file).name for file in files]
            if len({*names}) < len(names):
                raise ValueError(f"texts have names of their own, got {listed(names)}: rename a file")


@dataclass(frozen=True, slots=True)
class Pruning:
    """What `prune_folder` did. written: the files. report: of the layers. judged: by text, the evaluation before and after.

    distilled: report of the training. notes: what a user should know.
    """

    written: Rewritten
    report: Report
    judged: Mapping[str, tuple[Evaluation, Evaluation]]
    distilled: Distillation | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Request:
    """Writes a checkpoint with tensors that were pruned apart."""

    options: PruneOptions
    given: Mapping[str, Given]
    facts: ModelFacts = field(repr=False)

    def plan(self, checkpoint: Checkpoint, workers: Workers = HERE) -> Plan:
        return prune_plan(checkpoint, self.facts, self.options, self.given)


def prune_folder(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    options: PruneOptions,
    calibration: Calibration,
    *,
    resume: str | os.PathLike[str] | None = None,
    device: str | torch.device | None = None,
    force: bool = False,
    workers: int | str = 1,
    progress: Progress = lambda what, share: None,
) -> Pruning:
    """Prune a causal model in a folder of Transformers by calibration, and write it to another folder.

    The model is never in memory as a whole, but for text that it writes itself: blocks are read from the files, pruned
    and written one at a time. What is pruned, `louver.models.analyze` decides; all else is copied.

    out: the new folder. resume: a folder for finished blocks, kept at the end; None: one beside `out`, removed at the
    end. The same call goes on after an interruption, with the same bits. device: "cuda" if there is one. workers: as for
    `louver.models.prune`. A batch of texts is a task, with the bits of one process; and so is a file of `out`.
    Raises ValueError for a model that has no blocks or that Transformers does not load, for texts that do not fit, and
    as `louver.models.prune`; ArithmeticError for NaN and infinity, with the layer's name.
    """
    folder_in, folder_out, opened = Path(source), Path(out), workers_of(workers)
    checkpoint = open_checkpoint(folder_in)
    facts = analyze(folder_in, options.choice, options.pattern)
    prune_plan(checkpoint, facts, options)
    work = Path(resume) if resume is not None else folder_out.with_name(f".{folder_out.name}.blocks")
    # Workers have other working directories.
    work = work.absolute()
    if not work.exists():
        # An interrupted run may have placed some files.
        _check_output(output_of(folder_in, checkpoint, folder_out), force)
    progress("loading", 0)
    model = _model(checkpoint, facts, _place(device), calibration)
    texts = _Texts(model, folder_in, calibration, work)
    judged = texts.read(calibration.judged, None)
    with _streamed(opened, checkpoint, options, model, work) as streamed:
        report, given = _pruned(model, options, calibration, texts, work, streamed, progress)
    distilled = None
    if calibration.distill is not None:
        progress("distilling", 0)
        data = None if calibration.texts == (OWN,) else texts.read(calibration.texts, None)
        other = Folder(checkpoint, facts, model.device, model.chain.name)
        told = functools.partial(progress, "distilling")
        given, distilled = distill_folder(model, other, given, data, calibration.distill, work, told)
    results: dict[str, tuple[Evaluation, Evaluation]] = {}
    for at, (name, tokens) in enumerate(judged.items()):
        progress("evaluating", at / len(judged))
        results[name] = evaluate_folder(model, given, tokens)
    told = functools.partial(progress, "writing")
    written = rewrite(
        folder_in, folder_out, _Request(options, given, facts), force=force, workers=workers, progress=told
    )
    if resume is None:
        shutil.rmtree(work)
    return Pruning(written, report, results, distilled, _left(facts, given))


def _model(checkpoint: Checkpoint, facts: ModelFacts, device: torch.device, calibration: Calibration) -> Folder:
    """The model of a call. Raises ValueError for one that does not do what the call asks for."""
    model = Folder(checkpoint, facts, device, calibration.blocks)
    if calibration.speaks and not model.model.can_generate():
        kind = type(model.model).__name__
        raise ValueError(
            f"perplexity, distillation and a text of its own are for a causal language model, got {kind}: leave out --eval "
            "and --distill, and give --calibration FILE"
        )
    return model


def _pruned(
    model: Folder,
    options: PruneOptions,
    asked: Calibration,
    texts: _Texts,
    work: Path,
    streamed: Callable[..., Streams],
    progress: Progress,
) -> tuple[Report, dict[str, Given]]:
    """Prune block after block. Returns the report and the written tensors."""
    skipped = dict(_skipped(model))
    skip = tuple(skipped)
    chosen = Options(options.pattern, asked.method, asked.tune, skip, None, model.chain.name, asked.permute)
    kept: list[Written] = []

    def made(key: Mapping[str, str]) -> Written:
        kept.append(Written(work, model, key))
        return kept[0]

    def told(done: int, total: int, left: float) -> None:
        progress("pruning", done / total)

    report = calibrate(
        model.model,
        chosen,
        *texts.calibration(),
        source=lambda chain: model,
        streamed=streamed,
        resume=made,
        device=model.device,
        progress=told,
    )
    rows = tuple(replace(row, reason=skipped.get(row.name, row.reason)) for row in report)
    return Report(rows), found(kept[0].files())


@contextmanager
def _streamed(
    opened: AbstractContextManager[Workers], checkpoint: Checkpoint, options: PruneOptions, model: Folder, work: Path
) -> Generator[Callable[..., Streams]]:
    """What makes the streams of a run by workers."""
    with opened as them:
        if them is HERE:
            yield Streams
            return
        with place_of(work) as place:
            site = Site(
                checkpoint.path.absolute(),
                identity_of(checkpoint),
                options,
                model.chain.name,
                str(model.device),
                torch.get_num_threads(),
                torch.__version__,
                place,
            )
            yield functools.partial(SpreadStreams, workers=them, site=site)


def _place(device: str | torch.device | None) -> torch.device:
    """The device. Raises ValueError for one that this machine does not have."""
    count = torch.cuda.device_count()
    try:
        place = torch.device(device or ("cuda" if count else "cpu"))
    except RuntimeError:
        place = None
    if place is None or place.type not in ("cpu", "cuda") or (place.type == "cuda" and (place.index or 0) >= count):
        raise ValueError(f"a device is cpu, cuda, or cuda:N below {count} (the GPUs here), got {device}")
    return place


def _check_output(output: Output, force: bool) -> None:
    """Raises before any work what writing would raise: for files that exist, and for a folder that cannot be made."""
    if not output.is_folder:
        raise ValueError(f"a model in a folder is written to a folder, got {output.target}: name a folder")
    if output.folder.is_dir():
        output.check(force)
    else:
        Target.of(output.folder)


class _Texts:
    """The texts of a call, as tokens on the model's device. work: keeps text that the model writes."""

    def __init__(self, model: Folder, path: Path, calibration: Calibration, work: Path) -> None:
        self._model, self._path, self._calibration, self._work = model, path, calibration, work
        limit = getattr(model.model.config.get_text_config(), "max_position_embeddings", None) or LENGTH
        self._length = calibration.length or min(LENGTH, limit)

    def read(self, files: Sequence[str], rows: int | None) -> dict[str, Tensor]:
        """The files' tokens by the file's name."""
        texts = {Path(file).name: read_tokens(Path(file), self._path, self._length, rows) for file in files}
        return checked_texts(self._model.model, texts, "text") if texts else {}

    def calibration(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The texts to calibrate on, and those that are held out."""
        asked, rows = self._calibration, self._calibration.rows or ROWS
        if asked.texts == (OWN,):
            with self._model.whole() as model:
                texts = own_text(model, self._work, asked.rows or OWN_ROWS, asked.length or OWN_LENGTH)
        else:
            texts = self.read(asked.texts, rows)
        return (texts, self.read(asked.held_out, rows)) if asked.held_out else split(texts)


def _skipped(model: Folder) -> Iterator[tuple[str, str]]:
    """The layers and stacks that stay dense, and why: `analyze` prunes none of their tensors."""
    names = [(layer.name, f"{layer.name}.weight") for layer in linear_layers(model.model)]
    for block in model.chain.names:
        parameters = model.model.get_submodule(block).named_parameters()
        names += [(f"{block}.{name}",) * 2 for name, parameter in parameters if parameter.dim() == 3]
    for name, parameter in names:
        facts = [model.facts.tensors[tensor] for tensor in sorted(model.behind[parameter])]
        dense = [each for each in facts if not each.prune]
        if dense and len(dense) < len(facts):
            raise ValueError(
                f"{parameter} is one parameter of {len(facts)} tensors, pruned all or none, got {dense[0].name} left "
                f"({dense[0].reason}): choose all of them"
            )
        if dense:
            yield name, dense[0].reason


def _left(facts: ModelFacts, given: Mapping[str, Given]) -> tuple[str, ...]:
    """A note on tensors that magnitude would prune, and that no block multiplies by."""
    names = [each.name for each in facts.pruned if each.name not in given]
    return (f"left dense, because they are outside of the blocks: {listed(names)}",) if names else ()
