"""The tables of docs/results.md, read from the records; `python docs/generate.py` writes them.

A table is an entry of `ENTRIES`. Every number is read from its record; the text beside it has none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import result_tables as made
from louver.measure.report.judged import judged_record
from louver.measure.report.table import Table, grouped

RECORDS = Path(__file__).resolve().parent.parent / "benchmarks" / "results"


@dataclass(frozen=True, slots=True)
class Entry:
    """A table. subject: the heading it stands below. record: below benchmarks/results. text: what is compared."""

    subject: str
    record: str
    text: str
    table: Callable[[Path], Table]


LARGE, FEW, EIGHT, VECTORS = "Large products", "Few tokens", "8-bit operands, and other sums", "Vectors N:M"
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
    Entry(
        FEW,
        "h200/gemm-tokens.json",
        "Means over the weights below. Dependent launches overlap, copies do not: they can pass a copy's speed.",
        made.few_tokens,
    ),
    Entry(
        FEW,
        "h200/gemm-tokens.json",
        "Microseconds of `louver.linear` by number of tokens, and × the faster library.",
        made.microseconds,
    ),
    Entry(
        EIGHT,
        "h200/gemm-promoted.json",
        "e4m3, sums promoted to f32 every few steps. cuSPARSELt has no such sums.",
        made.products(made.types, "types"),
    ),
    Entry(EIGHT, "h200/gemm-f16-e4m3.json", "e4m3, sums in f16.", made.products(made.types, "types")),
    Entry(
        EIGHT, "h200/gemm-f16.json", "f16, sums in f16; the libraries' are in f32.", made.products(made.types, "types")
    ),
    Entry(EIGHT, "h200/gathered-e4m3.json", "Vectors of e4m3 on tensor cores, tokens [K, N].", made.gathered),
    Entry(VECTORS, "h200/nm-bf16.json", "Vectors of bf16 on tensor cores, tokens [K, N], × cuBLAS bf16.", made.vectors),
    Entry(VECTORS, "h200/nm.json", "Vectors of f32 on CUDA cores, exact to f32, beside cuBLAS f32.", made.vector_means),
    Entry(
        VECTORS,
        "h200/nm-ladder.json",
        "Versions of NM-SpMM's kernel for f32, each with its best tile, × cuBLAS f32.",
        made.versions,
    ),
    Entry(
        "Users' Triton kernels",
        "h100/kernels.json",
        "The same kernel with compressed arguments by Louver, and with dense ones by Triton, at one tile.",
        made.kernels,
    ),
    Entry(
        "Users' Triton kernels",
        "h200/public-kernels.json",
        "The same of kernels with the structures of those in public repositories, parts of matrices, chosen weights and addresses among them.",
        made.kernels,
    ),
    Entry(
        "Products on an H100",
        "h100/gemm-tokens.json",
        "Few tokens: a part of the suite.",
        made.products(made.types_and_tokens, "types, tokens"),
    ),
    Entry(
        "Products on an H100",
        "h100/gemm-256.json",
        "More tokens.",
        made.products(made.types_and_tokens, "types, tokens"),
    ),
    Entry("Products on an H100", "h100/nm-bf16.json", "Vectors of bf16, tokens [K, N], × cuBLAS bf16.", made.vectors),
    Entry(
        "Models in PyTorch",
        "h200/model.json",
        "Models with random weights after `compress_` and `quantize_`.",
        made.models,
    ),
    Entry(
        "Models in PyTorch",
        "h200/serve.json",
        "The products of a layer as a server calls them, × the dense side of the same type, at the numbers of tokens that vLLM captures.",
        made.served,
    ),
    Entry(
        "Training",
        "h200/training.json",
        "Parts of a training step of Llama 3 8B's shapes with 16,384 tokens, bf16, by kinds of masks ([training](training.md)).",
        made.training,
    ),
    Entry(
        "Training",
        "h200/training-loss.json",
        "The held-out loss of a small language model after 2,000 steps, with the same masks, data and seeds.",
        made.losses,
    ),
    Entry(
        "Several GPUs",
        "h200/parallel.json",
        "A layer of Llama 3 70B's shapes by tensor parallel, sparse beside dense ([parallel](parallel.md)).",
        made.parallel,
    ),
    Entry(
        "Several GPUs",
        "h200/parallel-one-shot.json",
        "The same at 16 tokens, with PyTorch's one-shot all-reduce beside NCCL's.",
        made.parallel,
    ),
    Entry(
        "Accuracy",
        "accuracy/h200.json",
        "A small language model; the speeds are those of the patterns in layers of a larger one ([which to take](accuracy.md)).",
        made.accuracy,
    ),
    Entry(
        "Register tiles",
        "h200/mma.json",
        "2:4 of f16 by `mma.sp`: kernels of other targets on this GPU, beside cuBLAS and a loop of the instruction; tiles as chosen then: the model was fitted to this record's tiles after it.",
        made.register_tiles,
    ),
    Entry(
        "Users' Triton kernels",
        "h200/find.json",
        "The tutorial's matmul with a dense argument that holds 2:4, `find=` without and with `frozen=` ([find](find.md)).",
        made.found,
    ),
    Entry("Epilogues", "h200/epilogues.json", "A linear product of f16 with a step after it.", made.epilogues),
    Entry(
        "Advice", "h200/advise.json", "Choices between two formats, as predicted ([advise](advise.md)).", judged_record
    ),
    Entry("Streaming", "h200/compress.json", "Prune, check and compress on the GPU, f16.", made.streaming),
    Entry("Streaming", "h100/compress-vectors.json", "The same of vectors.", made.streaming),
    Entry("Host cost", "h200/host.json", "One thread, a warm call.", made.host),
    Entry("Correctness", "h200/sweep.json", "Random products against float64.", made.checked),
    Entry("Correctness", "h200/random_kernels.json", "Random users' kernels against float64.", made.checked),
)


def tables() -> str:
    """All tables by subject, with a line of links before and the protocols behind."""
    subjects = grouped(ENTRIES, lambda entry: entry.subject)
    parts = [" · ".join(f"[{subject}](#{anchor(subject)})" for subject in subjects), "\n"]
    for subject, entries in subjects.items():
        parts += [f"\n## {subject}\n", "\n".join(map(section, entries))]
    parts.append("\n## Protocols\n<details><summary>As the records keep them</summary>\n")
    for protocol, records in grouped(dict.fromkeys(entry.record for entry in ENTRIES), protocol_of).items():
        parts.append(f"\n**{', '.join(records)}.** {protocol}\n")
    parts.append("\n</details>\n")
    return "".join(parts)


def anchor(heading: str) -> str:
    """The name that GitHub gives a heading in a link."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def protocol_of(record: str) -> str:
    """How a record's numbers were taken."""
    return made.protocol(RECORDS / record)


def section(entry: Entry) -> str:
    """A table with its text and its source."""
    record = RECORDS / entry.record
    link = f"[{entry.record}](../benchmarks/results/{entry.record})"
    picture = Path(entry.record).with_suffix(".png")
    if (RECORDS / picture).exists():
        link += f" ([picture](../benchmarks/results/{picture}))"
    return f"{entry.text}\n\n{entry.table(record).markdown()}\n{link}: {made.source(record)}.\n"
