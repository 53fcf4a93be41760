"""What one product costs on an H200 in clocks, beside document 000's cycles; the smallest weights that gain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from claims.document_000.coefficients import LATENCY
from claims.shown import file_of, record, speeds

RECORD = "h200/claims.json"


def instruction(start: str, dtype: str, sparse: bool, metadata: str | None = None) -> Mapping[str, Any]:
    """The row of a product: `start` of its mnemonic, metadata in a register by default."""
    held = metadata or ("in a register" if sparse else None)
    return next(
        row
        for row in record(RECORD)["instructions"]
        if row["instruction"].startswith(start)
        and (row["dtype"], row["sparse"], row["metadata"]) == (dtype, sparse, held)
    )


def latencies() -> str:
    warp = [instruction("mma", "f16", sparse)["latency"] for sparse in (False, True)]
    group = [instruction("wgmma", "f16", sparse)["latency"] for sparse in (False, True)]
    assert min(*warp, *group) > 3 * LATENCY[90]
    return (
        f"On an H200 a product of a warp takes {warp[0]:.0f} clocks dense and {warp[1]:.0f} sparse (f16), the least of a warpgroup "
        f"{group[0]:.0f} and {group[1]:.0f} with its wait ({file_of(RECORD)}); no other card is here."
    )


def rates() -> str:
    ratios = {
        start: instruction(start, "f16", True)["products_per_clock"]
        / instruction(start, "f16", False)["products_per_clock"]
        for start in ("mma", "wgmma")
    }
    return ", ".join(f"{ratio:.2f} × by {start}" for start, ratio in ratios.items())


def metadata() -> str:
    """Clocks that a load of metadata from shared memory adds to a product."""
    added = {
        start: instruction(start, "f16", True, "loaded")["clocks"] / instruction(start, "f16", True)["clocks"] - 1
        for start in ("mma", "wgmma")
    }
    return ", ".join(f"{share:+.0%} of the time of {start}" for start, share in added.items())


def small() -> str:
    found = [(row["shape"][0], row["cublas_us"] / row["ours_us"]) for row in record(RECORD)["rows"]]
    listed = ", ".join(f"{side}: {speed:.2f}" for side, speed in found)
    least = min(side for side, speed in found if speed > 1)
    assert least < max(side for side, _ in found)
    return f"f16 squares on an H200, × cuBLAS: {listed} ({file_of(RECORD)}). Larger ones: at least {min(speeds('h200/gemm-models.json')):.2f}."
