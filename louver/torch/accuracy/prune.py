"""`prune_`: prune the linear layers of a model in place, by magnitude or by calibration."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

import louver
from louver.formats.pattern import Pattern
from louver.torch.accuracy.calibrate import Options, Progress, calibrate, split
from louver.torch.accuracy.matrix import Method
from louver.torch.accuracy.resume import Resume, write
from louver.torch.accuracy.text import generate_tokens
from louver.torch.held import host
from louver.torch.layers import dense_layers
from louver.torch.report import Report, Row
from louver.torch.swap import as_lines, row_of

OWN_ROWS: Final = 128
OWN_LENGTH: Final = 512
"""Rows and tokens of the text that a model writes itself, if no calibration is given."""


def prune_(
    model: nn.Module,
    pattern: str | Pattern = "2:4",
    *,
    method: str = "magnitude",
    calibration: Tensor | Mapping[str, Tensor] | None = None,
    held_out: Tensor | Mapping[str, Tensor] | None = None,
    correct: bool = False,
    reconstruct: int = 0,
    swaps: int = 0,
    tune: int = 0,
    permute: bool = False,
    damping: float | None = None,
    transposable: bool = False,
    skip: Collection[str] = (),
    per_layer: Mapping[str, str | Pattern | None] | None = None,
    blocks: str | None = None,
    resume: str | os.PathLike[str] | None = None,
    device: torch.device | str | None = None,
    progress: Progress | None = None,
) -> Report:
    """Prune the weights of a model's linear layers, in place. `compress_` then makes them sparse.

    pattern: along the input features, see `louver.prune`.
    method: "magnitude", which needs no text and takes the layers of any model; "wanda" (arXiv 2306.11695), "sparsegpt"
        (arXiv 2301.00774) or "admm" (arXiv 2406.07831), which prune block after block by the inputs that a text gives each layer.
    calibration: token ids [rows, length] without padding; floating [rows, …] for a model that reads no ids; or several
        texts by name. None, for a calibrated method: text that the model writes itself.
    held_out: other texts, to choose the damping and to measure errors; None: the last eighth of each text.
    correct: aim at the dense model's outputs from the pruned model's inputs. For experts, the dense block sends tokens
        where the pruned one does.
    reconstruct: steps of conjugate gradients on the kept values; 30 are as good as exact.
    swaps: sweeps in which each group takes its best elements given the others.
    tune: steps of Adam on the kept values of the attention and of the MLP of each block, against the dense model's.
    permute: first reorder channels where the block computes the same, such as the rows of gate and up with the columns of
        down, so that the patterns keep more. Layers then have other rows and columns than in the dense model.
    damping: of the inputs' Gram matrix, in units of its mean diagonal; None: chosen by the held-out texts.
    transposable: masks keep 2:4 along both axes, so that the gradient of x is a sparse product too (docs/training.md). They
        keep less: a 4 × 4 block has 90 such masks, of 1,296.
    skip: names of layers to leave, with `*` and `?` as in file names.
    per_layer: other patterns by the name of a layer; None leaves it dense.
    blocks: the name of the list of blocks, if it is not found by its structure.
    resume: a folder that keeps each finished block. The same call goes on there, with the same bits.
    device: where blocks are pruned, one at a time; None: where they are.
    progress: called with the finished blocks, all blocks and seconds left; None: a line, if stderr is a terminal.

    Heads, routers, tied weights and layers with hooks stay dense; so do embeddings, norms and, with a text, layers
    outside of the blocks. Returns a report with the reason for each layer.

    Raises TypeError and ValueError for bad arguments, for a pattern or an element type that is not supported, and if no
    layer is left to prune; then nothing has changed. Raises ArithmeticError for NaN and infinity, with the layer's name;
    then the blocks before its block are pruned.
    """
    made = Method(
        method,
        correct=correct,
        reconstruct=reconstruct,
        swaps=swaps,
        damping=damping,
        transposable=transposable,
    )
    patterns = None if per_layer is None else {n: p if p is None else Pattern.parse(p) for n, p in per_layer.items()}
    options = Options(Pattern.parse(pattern), made, tune, tuple(skip), patterns, blocks, permute)
    if not made.calibrated and not tune and calibration is None:
        given = {"held_out": held_out, "blocks": blocks, "resume": resume, "permute": permute or None}
        unused = next((name for name, value in given.items() if value is not None), None)
        if unused is not None:
            raise ValueError(f"{unused}= goes with a calibration, got none: method={method!r} alone reads no text")
        return _by_magnitude(model, options)
    # Weights that are made in inference mode could never be trained.
    with torch.inference_mode(False):
        texts = own_text(model, resume) if calibration is None else checked_texts(model, calibration, "calibration")
        judged = None if held_out is None else checked_texts(model, held_out, "held_out")
        if judged is None:
            texts, judged = split(texts)
        place = _device(model) if device is None else torch.device(device)
        kept = None if resume is None else functools.partial(Resume, resume)
        return calibrate(model, options, texts, judged, resume=kept, device=place, progress=progress)


def _by_magnitude(model: nn.Module, options: Options) -> Report:
    """Prune each layer by `louver.prune`."""
    layers = dense_layers(model)
    options.check_names([layer.name for layer in layers])
    rows = [(layer, options.refusal(layer, loaded=True)) for layer in layers]
    if all(reason is not None for _, reason in rows):
        raise ValueError(f"no linear layer is left to prune to {options.pattern}, got\n{as_lines(rows)}")
    done: list[Row] = []
    for layer, reason in rows:
        pattern = options.pattern_of(layer.name)
        if reason is not None or pattern is None:
            done.append(row_of(layer, "dense", reason or ""))
            continue
        w = layer.weight.detach()
        with torch.no_grad():
            w.copy_(_pruned(w, pattern, transposable=options.method.transposable))
        row = row_of(layer, "pruned", "by magnitude", str(pattern))
        done.append(replace(row, method="magnitude", zeros=float((w == 0).double().mean())))
    return Report(tuple(done))


def _pruned(w: Tensor, pattern: Pattern, *, transposable: bool) -> Tensor:
    if w.is_cuda:
        return louver.prune(w, pattern, transposable=transposable)
    pruned: Any = np.ascontiguousarray(louver.prune(host(w), pattern, transposable=transposable))
    return torch.from_numpy(pruned.view(np.uint8)).view(w.dtype).reshape(w.shape)


def own_text(
    model: nn.Module, resume: str | os.PathLike[str] | None, rows: int = OWN_ROWS, length: int = OWN_LENGTH
) -> dict[str, Tensor]:
    """Text that the model writes itself, kept in `resume`. Raises TypeError for a model that writes none."""
    kept = None if resume is None else Path(resume) / "text.tokens"
    if kept is not None and kept.exists():
        return {"own": torch.load(kept, weights_only=True, map_location=_device(model))}
    limit = getattr(getattr(model, "config", None), "max_position_embeddings", None) or length
    tokens = generate_tokens(model, rows, min(length, limit))
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write(kept, tokens)
    return {"own": tokens}


def checked_texts(model: nn.Module, texts: object, name: str) -> dict[str, Tensor]:
    """Texts by name, on the device of the model's embedding. Raises TypeError or ValueError for what is none."""
    named: Mapping[Any, object] = texts if isinstance(texts, Mapping) else {name: texts}
    if not named:
        raise ValueError(f"{name} has one text at least, got none")
    table = _table(model)
    return {
        str(text): _checked(model, rows, f"{name} {text!r}" if text != name else name, table)
        for text, rows in named.items()
    }


def _checked(model: nn.Module, rows: object, name: str, table: nn.Embedding | None) -> Tensor:
    if not isinstance(rows, Tensor):
        raise TypeError(f"{name} is a tensor of token ids [rows, length], got {type(rows).__name__}")
    kind = f"{rows.dtype} {list(rows.shape)}"
    if table is None:
        if rows.dim() < 2 or 0 in rows.shape:
            raise ValueError(f"{name} is what the model reads, [rows, …], got {kind}")
        return rows.to(_device(model))
    if rows.dtype not in (torch.int64, torch.int32) or rows.dim() != 2 or 0 in rows.shape:
        raise ValueError(f"{name} has token ids as int64 [rows, length], got {kind}: pack text without padding")
    least, most = int(rows.min()), int(rows.max())
    if least < 0 or most >= table.num_embeddings:
        raise ValueError(
            f"{name} has ids from 0 to {table.num_embeddings - 1}, the model's vocabulary, got {least} to {most}: "
            "use the model's own tokenizer"
        )
    return rows.to(table.weight.device)


def _table(model: nn.Module) -> nn.Embedding | None:
    """The embedding of token ids: the one that a model of Transformers names, else the largest; None without one."""
    find: Any = getattr(model, "get_input_embeddings", None)
    found = find() if find is not None else None
    tables = [m for m in model.modules() if isinstance(m, nn.Embedding)] if found is None else [found]
    tables = [table for table in tables if isinstance(table, nn.Embedding)]
    return max(tables, key=lambda table: table.num_embeddings, default=None)


def _device(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters() if not p.is_meta), torch.device("cpu"))
