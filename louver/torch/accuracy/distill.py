"""`distill_`: train a pruned model's kept values, norms and biases to predict as the dense model does."""

# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor, nn

from louver.formats.pattern import Pattern
from louver.torch.accuracy.blockwise import BlockRun
from louver.torch.accuracy.course import Options, default_rate, windows
from louver.torch.accuracy.distill_report import Distillation, Point, Shown
from louver.torch.accuracy.faster import Swapped
from louver.torch.accuracy.loop import Run, Saved, fingerprint
from louver.torch.accuracy.moving import start
from louver.torch.accuracy.scores import apart, head_of, logits_of
from louver.torch.accuracy.text import device_of, evaluating, generate_tokens
from louver.torch.accuracy.trained import PRUNED, Trained, trained_parameters, zero_masks
from louver.torch.accuracy.working import compiling, ready, teacher_of, working_copy
from louver.torch.layers import sparse_layers
from louver.torch.swap import PATTERNS

WRITTEN: Final = {"cuda": 1 << 22, "cpu": 1 << 13}
"""Most tokens that the teacher writes for each minute of training, if no text is given. Text that is read too often is learnt by heart."""

MOST_WRITTEN: Final = 1 << 25

WRITTEN_TOGETHER: Final = 1 << 20
"""Tokens of one call: the clock is read between calls."""

WRITING: Final = 0.5
"""Of the minutes of training, the most for writing."""


def distill_(
    model: nn.Module,
    data: Tensor | Mapping[str, Tensor] | None = None,
    *,
    teacher: nn.Module | str | os.PathLike[str] | Callable[[], nn.Module] | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    rate: float | None = None,
    batch: int = 32,
    length: int = 512,
    generate: int | None = None,
    moving: bool = False,
    patterns: Sequence[str | Pattern] | Mapping[str, Any] = PATTERNS,
    parts: str = "model",
    seed: int = 0,
    resume: str | os.PathLike[str] | None = None,
    device: torch.device | str | None = None,
    progress: Callable[[Point], object] | None = None,
) -> Distillation:
    """Train a pruned causal model to give the dense model's next-token distributions, in place. Zeros stay.

    The loss is the mean of KL(dense ‖ pruned). Kept values, weights that are dense, norms and biases train, as far as
    they require grad; embeddings and the head do not. A weight of which 5% or more is zero keeps its zeros; a
    `SparseLinear` keeps its indices, and its values train. On a GPU, products are in bf16, pruned layers train sparse
    where that is measured faster (2:4, most with transposable masks, see docs/training.md), and blocks are
    compiled and run in CUDA graphs where their models allow it, else the report says why; masters are f32 always. Adam with betas 0.9 and 0.95; gradients are clipped to norm 1.

    data: tokens [rows, any length], or several such by name. None: text that the teacher writes (`generate_tokens`).
    teacher: the dense model: a module, a folder of Transformers, or a function that makes it. None: the folder from which
        Transformers loaded the model.
    minutes, steps: where training ends; 2 minutes by default. Text and compilation come before the minutes; the teacher
        writes for half of them at most, without `generate`.
    rate: the peak of the learning rate, after a warm-up and before half a cosine. By default 1.4e-3 up to 576
        features, and less in proportion for wider models.
    batch, length: rows of a step, and tokens of a row.
    generate: tokens that the teacher writes in addition to `data`; by default none with data.
    moving: in the first half, masks move to where magnitude times input norm is greatest, from values that start as
        the teacher's (SR-STE, arXiv 2102.04010). patterns: of such weights, to look for or by layer, as `allocate`
        gives them; others keep their masks.
    parts: "model" trains all at once. "blocks" is for models that do not fit: each block trains alone, on what the
        trained blocks before it give, to the outputs of the dense block on the dense model's stream. Model and teacher
        stay where they are, and two blocks come to `device`. Minutes are shared out; steps are those of each block,
        with 16,384 tokens, or a row, a step. Norms outside of blocks stay.
    seed: of the text and of its order.
    resume: a folder. A call that was killed goes on from there, at most 30 seconds or a block back; with `steps`, on a CPU, with
        the same bits.
    device: where to train, by default where the model is.
    progress: called with each new point of the curve. None: a line, if stderr is a terminal.

    The model changes at the end only, so an error leaves it as it was. Raises ValueError for bad arguments,
    ArithmeticError if the loss is not finite.
    """
    options = Options(
        2.0 if minutes is None and steps is None else minutes, steps, rate, batch, length, generate, moving, parts, seed
    )
    # Weights of inference mode cannot be trained; a caller's no_grad is not meant for this.
    with torch.inference_mode(False), torch.enable_grad():
        return _distilled(model, data, teacher, options, patterns, resume, device, Shown(progress))


def _distilled(
    model: nn.Module,
    data: Tensor | Mapping[str, Tensor] | None,
    teacher: object,
    options: Options,
    patterns: Sequence[str | Pattern] | Mapping[str, Any],
    resume: str | os.PathLike[str] | None,
    device: torch.device | str | None,
    shown: Shown,
) -> Distillation:
    begin = time.monotonic()
    place = torch.device(device) if device is not None else device_of(model)
    dense = teacher_of(teacher, model)
    vocabulary = _vocabulary(model, dense)
    parameters = trained_parameters(model)
    masks = zero_masks(parameters)
    if not masks and not sparse_layers(model):
        raise ValueError(
            f"a model to distill has pruned weights, got {type(model).__name__} without one of {PRUNED:.0%} zeros: call prune_ first"
        )
    given = None if data is None else windows(data, options.length, vocabulary)
    key = {} if resume is None else _key(model, dense, given, options, patterns)
    rate = options.rate or default_rate(head_of(dense).weight.shape[1])

    def saved(name: str) -> Saved | None:
        return None if resume is None else Saved(resume, name, key)

    if options.parts == "blocks":
        blocks = BlockRun(model, dense, parameters, masks, options, rate, saved)
        text = _text(dense, given, options, saved("text"))
        prepared = time.monotonic() - begin
        blocks.go(text, place, shown)
        _write(model, blocks.values)
        return blocks.report(prepared)
    dense = ready(dense, place)
    text = _text(dense, given, options, saved("text"))
    working = working_copy(model, place)
    masks = {name: mask.to(place) for name, mask in masks.items()}
    masked, swapped = list(masks.values()), Swapped()
    if not options.moving:
        swapped.swap_(working, masks, patterns, options.batch * text.shape[1], saved("sparse"))
    trainable = trained_parameters(working)
    for parameter in working.parameters():
        parameter.requires_grad_(any(parameter is each for each in trainable.values()))
    masters, moves = {name: p.detach().float() for name, p in trainable.items()}, {}
    if options.moving:
        masters, moves = start(masters, working, dense, masks, patterns, text)
    trained = Trained(trainable, list(masters.values()), masks, moves)
    sparse = len(sparse_layers(working))
    notes = [f"{sparse} sparse layers train their values"] if sparse else []
    probe = torch.zeros(1, 4, dtype=torch.long, device=place)
    with apart(working, probe) as head, apart(dense, probe) as dense_head, compiling(working, dense, place, notes):
        run = Run(head, dense_head, trained, text, options, rate, saved("distill"), notes)
        try:
            run.warm()
            run.go(time.monotonic() - begin, shown)
        finally:
            run.close()
    _write(model, swapped.dense(trained.values()))
    report = run.report()
    if swapped:
        # Their masks are those of the dense weights, and stay.
        kept, size = sum(int(mask.sum()) for mask in masked), sum(mask.numel() for mask in masked)
        report = replace(report, masked=len(masked), zeros=1 - kept / size)
    return report


def _vocabulary(model: nn.Module, dense: nn.Module) -> int:
    """The tokens that both models score."""
    probe = torch.zeros(1, 2, dtype=torch.long)
    with evaluating(model, dense):
        mine, theirs = (logits_of(each, probe.to(device_of(each))).shape[-1] for each in (model, dense))
    if mine != theirs:
        raise ValueError(f"a model and its teacher are of one vocabulary, got {mine:,} and {theirs:,} tokens")
    return mine


def _text(dense: nn.Module, given: Tensor | None, options: Options, saved: Saved | None) -> Tensor:
    """The rows to train on: those that are given, and those that the teacher writes. saved: where the latter are kept."""
    device = device_of(dense)
    wanted, length, limit = options.generate, options.length if given is None else given.shape[1], math.inf
    if wanted is None:
        steps, minutes = options.steps, options.minutes or 0
        needed = steps * options.batch * length if steps else int(WRITTEN[device.type] * minutes)
        wanted, limit = 0 if given is not None else min(MOST_WRITTEN, needed), WRITING * 60 * minutes or math.inf
    if not wanted:
        if given is None:
            raise ValueError("a distillation needs text, got data=None and generate=0")
        return given
    known = None if saved is None else saved.load()
    if known is None:
        known = {"text": _written(dense, -(-wanted // length), length, limit, options.seed)}
        if saved is not None:
            saved.save(known)
    return known["text"] if given is None else torch.cat([given, known["text"]])


def _written(dense: nn.Module, rows: int, length: int, limit: float, seed: int) -> Tensor:
    """Rows that the teacher writes, int64 [at most `rows`, length] on the host. limit: seconds after which it stops."""
    together, begin = max(1, WRITTEN_TOGETHER // length), time.monotonic()
    made: list[Tensor] = []
    for at in range(0, rows, together):
        made.append(generate_tokens(dense, min(together, rows - at), length, seed=seed + at).cpu())
        if time.monotonic() - begin >= limit:
            break
    if device_of(dense).type == "cuda":
        torch.cuda.empty_cache()
    return torch.cat(made)


def _key(model: nn.Module, dense: nn.Module, given: Tensor | None, options: Options, patterns: Any) -> dict[str, Any]:
    """What a resumed run has in common with the one that was killed."""
    return {
        **{name: getattr(options, name) for name in Options.__dataclass_fields__},
        "patterns": str(dict(patterns) if isinstance(patterns, Mapping) else list(patterns)),
        "model": fingerprint(model.named_parameters()),
        "teacher": fingerprint(dense.named_parameters()),
        "data": None if given is None else fingerprint([("data", given)]),
    }


def _write(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    parameters = dict(model.named_parameters())
    for name, value in values.items():
        # A parameter that was made in inference mode is written there.
        with torch.inference_mode(parameters[name].is_inference()), torch.no_grad():
            parameters[name].copy_(value)
