"""Write docs/results.md from the records: `python docs/results.py`.

A table of the page is an entry of `ENTRIES`. Every number is read from its record; the text beside it has none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import result_tables as made
from louver.measure.report.table import Table, grouped

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "results.md"


@dataclass(frozen=True, slots=True)
class Entry:
    """A table. subject: the heading it stands below. record: below benchmarks/results. text: what is compared."""

    subject: str
    record: str
    text: str
    table: Callable[[Path], Table]


LARGE, FEW, EIGHT, VECTORS = "Large products", "Few tokens", "8-bit operands", "Vectors N:M"
ENTRIES = (
    Entry(LARGE, "h200/gemm.json", "Large published shapes, by element types.", made.products(made.types, "types")),
    Entry(
        LARGE,
        "h200/gemm-models.json",
        "Weights of published models.",
        made.products(made.types_and_tokens, "types, tokens"),
    ),
    Entry(LARGE, "h200/gemm-uneven.json", "Tokens that no tile divides.", made.products(made.types, "types")),
    Entry(LARGE, "h200/gemm-f32.json", "f32 weights, 1:2, read as tf32.", made.products(made.types, "types")),
    Entry(LARGE, "h200/gemm.json", "TFLOP per joule under sustained load.", made.sustained),
    Entry(FEW, "h200/gemm-tokens.json", "Means over the weights below.", made.few_tokens),
    Entry(FEW, "h200/gemm-tokens.json", "Microseconds of `louver.linear` by number of tokens.", made.microseconds),
    Entry(
        EIGHT,
        "h200/gemm-promoted.json",
        "Sums promoted to f32 every few steps. cuSPARSELt has no such sums.",
        made.products(made.types, "types"),
    ),
    Entry(EIGHT, "h200/gemm-f16-e4m3.json", "Sums in f16.", made.products(made.types, "types")),
    Entry(EIGHT, "h200/gathered-e4m3.json", "Vectors of e4m3 on tensor cores, tokens [K, N].", made.gathered),
    Entry(VECTORS, "h200/nm-bf16.json", "Vectors of bf16 on tensor cores, tokens [K, N], × cuBLAS bf16.", made.vectors),
    Entry(VECTORS, "h200/nm.json", "Vectors of f32 on CUDA cores, exact to f32, beside cuBLAS f32.", made.vector_means),
    Entry(
        "Users' Triton kernels",
        "h100/kernels.json",
        "The same kernel with compressed arguments by Louver, and with dense ones by Triton, at one tile.",
        made.kernels,
    ),
    Entry("Models in PyTorch", "h200/model.json", "Blocks after `compress_` and `quantize_`.", made.models),
    Entry(
        "Accuracy",
        "accuracy/h200.json",
        "A small language model; the speeds are those of the patterns in layers of a larger one ([which to take](accuracy.md)).",
        made.accuracy,
    ),
    Entry("Streaming", "h200/compress.json", "Prune, check and compress on the GPU, f16.", made.streaming),
    Entry("Host cost", "h200/host.json", "One thread, a warm call.", made.host),
    Entry("Correctness", "h200/sweep.json", "Random products against float64.", made.checked),
    Entry("Correctness", "h200/random_kernels.json", "Random users' kernels against float64.", made.checked),
)

HEAD = """\
# Current results

`python docs/results.py` writes this page from the [records](../benchmarks/results). Each table names its record, the device, the commit and
the date; [benchmarks/README.md](../benchmarks/README.md) has the command that makes each record again. Older numbers and what led here are
in [the archive](perf-log.md).

- "×" is speed relative to a peer: its time over ours. Cells have the geometric mean, and the least in parentheses.
- "The faster" is the faster of the two libraries for each product.
- "The limit" is the time at the data sheet's 2:4 peak, or that of a memory copy of as many bytes where this was measured and is longer.
  Power keeps large products below the peak.
- "+" after a commit: with the changes that became the next ones.
- Types are those of operands, then of results where they differ.
- A shape M×N×K is rows of the sparse weight, tokens, inner size.
"""


def page() -> str:
    """The page as it follows from the records."""
    parts = [HEAD]
    for subject, entries in grouped(ENTRIES, lambda entry: entry.subject).items():
        parts += [f"\n## {subject}\n", "\n".join(map(section, entries))]
    parts.append("\n## Protocols\n<details><summary>As the records keep them</summary>\n")
    for protocol, records in grouped(dict.fromkeys(entry.record for entry in ENTRIES), protocol_of).items():
        parts.append(f"\n**{', '.join(records)}.** {protocol}\n")
    parts.append("\n</details>\n")
    return "".join(parts)


def protocol_of(record: str) -> str:
    """How a record's numbers were taken."""
    return made.protocol(RECORDS / record)


def section(entry: Entry) -> str:
    """A table with its text and its source."""
    record = RECORDS / entry.record
    link = f"[{entry.record}](../benchmarks/results/{entry.record})"
    return f"{entry.text}\n\n{entry.table(record).markdown()}\n{link}: {made.source(record)}.\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
