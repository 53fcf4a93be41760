"""Evaluation of a folder's model and of its pruned one, block by block, in one pass over the files."""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from louver.models.given import Given
from louver.torch.accuracy.blocks import patched, run
from louver.torch.accuracy.folder import Folder
from louver.torch.accuracy.scores import logits_of
from louver.torch.accuracy.streams import Batch, Streams
from louver.torch.accuracy.text import Evaluation, check_tokens, chunks, evaluation_of, sums_of


def evaluate_folder(folder: Folder, given: Mapping[str, Given], tokens: Tensor) -> tuple[Evaluation, Evaluation]:
    """How the folder's model predicts tokens [rows, length], and how it does with given tensors in the place of its own.

    The second one is compared with the first. See `evaluate`.
    """
    text = check_tokens(tokens).long().to(folder.device)
    model, names = folder.model, folder.chain.names
    parts = [Batch(rows, "", False) for rows in chunks(text, folder.vocabulary, folder.device)]
    with torch.no_grad():
        streams = Streams(model, folder.chain, folder, parts, folder.device, dense=True)
        for index, name in enumerate(names[:-1]):
            block = folder.load(index)
            streams.advance(block, folder.over(name, given))
            folder.store(index, block)
        last = len(names) - 1
        block = folder.load(last)
        weights = folder.over(names[last], given)
        sums = torch.zeros(2, 3, dtype=torch.float64, device=folder.device)
        for batch, part in enumerate(parts):
            dense = run(block, {}, streams.arguments(batch, dense=True))
            dense = _scores(folder, part.rows, dense)
            scores = run(block, weights, streams.arguments(batch))
            with folder.outside(given):
                scores = _scores(folder, part.rows, scores)
            sums[0] += sums_of(part.rows, dense, None)
            sums[1] += sums_of(part.rows, scores, dense)
        folder.store(last, block)
    return evaluation_of(sums[0], text, False), evaluation_of(sums[1], text, True)


def _scores(folder: Folder, rows: Tensor, result: Any) -> Tensor:
    """The model's scores for rows, from what its last block gave."""
    blocks = [folder.model.get_submodule(name) for name in folder.chain.names]
    with patched(blocks, lambda index, args, kwargs: result):
        return logits_of(folder.model, rows)
