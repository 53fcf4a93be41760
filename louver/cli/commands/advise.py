"""`louver advise`: which format, for a product and for a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import louver.models
from louver.cli.commands.notes import progress
from louver.isa.targets import TARGETS
from louver.measure.advise import advise, timer
from louver.measure.machine import require_torch
from louver.measure.report.advice import model_result, product_result
from louver.measure.report.table import Result


def parse_tokens(text: str) -> tuple[int, ...]:
    """Numbers of tokens from text such as "1,64,4096". Raises ValueError for other text."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 10 and int(part) for part in parts):
        raise ValueError(
            f"tokens are positive numbers of at most 9 digits, separated by commas, such as 1,64,4096, got {text!r}"
        )
    return tuple(int(part) for part in parts)


def advise_product(sizes: Sequence[int], formats: Sequence[str], device: str | None, *, measure: bool) -> Result:
    """The advice for one product. Raises ValueError for bad options, and CannotMeasureError."""
    return product_result(advise(*sizes, formats=formats or None, device=device, measure=measure))


def advise_model(folder: Path, tokens: str, formats: Sequence[str], device: str | None, *, measure: bool) -> Result:
    """The advice for a model in a folder. Raises ValueError and OSError for unusable input, and CannotMeasureError."""
    counts = parse_tokens(tokens)
    if measure and device is not None:
        raise ValueError(f"formats are measured on the GPU at hand: leave out --measure or --on, got {device!r}")
    run = timer(require_torch(TARGETS)) if measure else None
    with progress("reading") as shown:
        found = louver.models.advise(folder, counts, device=device, formats=formats or None, timer=run, progress=shown)
    return model_result(found, str(folder))
