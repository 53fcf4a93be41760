"""Whether weights keep a pattern: on a GPU all weights are checked before the first count is read."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import louver
from louver.formats.pattern import Pattern
from louver.formats.rows import Windows
from louver.library.streaming.launches import check_into
from louver.library.streaming.record import COUNTERS
from louver.runtime.arrays import view


def offending(weights: Sequence[Tensor], pattern: Pattern) -> list[tuple[int, int]]:
    """Of each weight [..., K]: groups with more non-zeros than the pattern keeps, and all groups.

    The counts of a GPU's weights lie in one tensor, so that the call waits once for each GPU. The host counts patterns
    of vectors.
    """
    counts: list[Any] = [None] * len(weights)
    devices = dict.fromkeys(w.device for w in weights if _by_kernel(w, pattern))
    for device in devices:
        places = [place for place, w in enumerate(weights) if w.device == device]
        found = _counted([weights[place] for place in places], pattern, device)
        for place, nonzeros in zip(places, found, strict=True):
            shape = tuple(weights[place].shape)
            windows = Windows(shape, len(shape) - 1, pattern)
            # One count for each number of non-zeros from 1 to M.
            counts[place] = sum(nonzeros[pattern.n :]), windows.count * windows.groups
    for place, w in enumerate(weights):
        if counts[place] is None:
            report = louver.check(w if w.is_cuda else host(w), pattern)
            counts[place] = report.offending, report.groups
    return counts


def host(w: Tensor) -> Any:
    """A weight on the CPU as NumPy array."""
    return view(w).to_numpy()


def _by_kernel(w: Tensor, pattern: Pattern) -> bool:
    return w.is_cuda and len(pattern.levels) == 1


def _counted(weights: Sequence[Tensor], pattern: Pattern, device: torch.device) -> list[list[int]]:
    counters = torch.zeros(len(weights), len(COUNTERS) + pattern.m, dtype=torch.int64, device=device)
    for w, row in zip(weights, counters, strict=True):
        source = view(w)
        check_into(source, pattern, row.data_ptr()).send(source.device or 0, source.stream or 0)
    return counters[:, len(COUNTERS) :].tolist()
