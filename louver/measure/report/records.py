"""Draws records of all kinds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from louver.measure.report.accuracy import read_accuracy
from louver.measure.report.gemm import read_gemm
from louver.measure.report.kernels import read_kernels
from louver.measure.report.ladder import read_ladder
from louver.measure.report.model import read_model
from louver.measure.report.nm import read_nm
from louver.measure.report.serve import read_serve


def draw(record: Path, picture: Path) -> Path:
    """Draw a benchmark's JSON record as a PNG. Returns `picture`.

    Raises ValueError with the broken rule and ModuleNotFoundError without Matplotlib.
    """
    from louver.measure.report.accuracy import plot_accuracy
    from louver.measure.report.advice import plot_advice
    from louver.measure.report.gemm_plot import over_tokens, plot_gemm, plot_tokens
    from louver.measure.report.kernels import plot_kernels
    from louver.measure.report.ladder import plot_ladder
    from louver.measure.report.model import plot_model
    from louver.measure.report.nm import plot_nm, plot_nm_ladder
    from louver.measure.report.serve import plot_serve

    match _kind(record):
        case "accuracy":
            return plot_accuracy(read_accuracy(record), picture)
        case "advise":
            return plot_advice(record, picture)
        case "ladder":
            return plot_ladder(read_ladder(record), picture)
        case "kernels":
            return plot_kernels(read_kernels(record), picture)
        case "model":
            return plot_model(read_model(record), picture)
        case "serve":
            return plot_serve(read_serve(record), picture)
        case "nm":
            return plot_nm(read_nm(record), picture)
        case "nm-ladder":
            return plot_nm_ladder(read_nm(record), picture)
        case _:
            found = read_gemm(record)
            return plot_tokens(found, picture) if over_tokens(found) else plot_gemm(found, picture)


def _kind(record: Path) -> str | None:
    try:
        data: Any = json.loads(record.read_text(encoding="utf-8"))
    except ValueError:
        return None
    return cast("dict[str, Any]", data).get("kind") if isinstance(data, dict) else None
