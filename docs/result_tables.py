"""Records as short tables of docs/results.md: one function from a record's file to a table, for each kind of record."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any, TypeVar

from louver.formats.dtypes import element_type
from louver.measure.report.accuracy import read_accuracy
from louver.measure.report.gemm import GemmRow, read_gemm
from louver.measure.report.kernels import read_kernels
from louver.measure.report.model import DENSE_BF16, SIDES, read_model, speedups
from louver.measure.report.nm import CUBLAS, NmRow, read_nm
from louver.measure.report.roofline import DATASHEET, ROOFS
from louver.measure.report.serve import ratios, read_serve
from louver.measure.report.table import NONE, Column, Table, grouped, number

R = TypeVar("R")

LIBRARIES = ("cublas", "cusparselt")
WAYS = ("ordinary", "transposable")
SHOWN = (1, 16, 64, 256)
"""Numbers of tokens in the table of means."""


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], names: int = 1) -> Table:
    """A table whose first `names` columns are names and the others numbers."""
    columns = tuple(Column(heading, right=place >= names) for place, heading in enumerate(headings))
    return Table("", columns, [tuple(row) for row in rows])


def mean(values: Iterable[float | None], form: str = ".2f") -> str:
    """Geometric mean of the values, and the least of several in parentheses; a dash without values."""
    found = [value for value in values if value is not None]
    if not found:
        return NONE
    least = f" ({min(found):{form}})" if len(found) > 1 else ""
    return f"{geometric_mean(found):{form}}{least}"


def over(row: GemmRow, *others: str, of: str = "ours") -> float | None:
    """The speed relative to the fastest of the others; None if none of them was timed."""
    times = [row.times_us[other] for other in others if other in row.times_us]
    return min(times) / row.times_us[of] if times and of in row.times_us else None


def products(key: Callable[[GemmRow], str], heading: str) -> Callable[[Path], Table]:
    """Products by a key: speed relative to the libraries, and to the limit of the device."""

    def made(path: Path) -> Table:
        record = read_gemm(path)
        rows = [
            (
                name,
                str(len(same)),
                *(mean(over(row, other) for row in same) for other in LIBRARIES),
                mean(over(row, *LIBRARIES) for row in same),
                mean((limit(row, record.device) for row in same), ".0%"),
            )
            for name, same in grouped(record.rows, key).items()
        ]
        headings = (heading, "products", "× cuBLAS dense", "× cuSPARSELt", "× the faster", "of the limit")
        return table(headings, rows)

    return made


def types(row: GemmRow) -> str:
    """A key of `products`."""
    return row.types


def types_and_tokens(row: GemmRow) -> str:
    """A key of `products`."""
    return f"{row.types}, {row.shape[1]:,}"


def limit(row: GemmRow, device: str) -> float | None:
    """Share of the limit: the time at the device's peak, or of a copy of as many bytes if it is longer, over ours.

    None for a device whose peak is not in `louver/measure/report/roofline.py`.
    """
    if device not in ROOFS:
        return None
    bits, ours = element_type(row.dtype).bits, row.times_us["ours"]
    peak = DATASHEET[device].get(bits) or ROOFS[device].peak(bits)
    at_peak = 2 * row.shape[0] * row.shape[1] * row.shape[2] / peak * 1e-6
    return max(at_peak, row.times_us.get("copy", 0.0)) / ours


def sustained(path: Path) -> Table:
    """TFLOP per joule of products under sustained load."""
    record = read_gemm(path)
    rows: list[tuple[str, ...]] = []
    for name, same in grouped(record.sustained, lambda each: each.row.types).items():
        efficiency = {
            contender: [each.tflops / each.power_w for each in same if each.contender == contender and each.power_w]
            for contender in ("ours", *LIBRARIES)
        }
        rows.append((name, *(mean(values) for values in efficiency.values())))
    return table(("types", "Louver", "cuBLAS dense", "cuSPARSELt"), rows)


def few_tokens(path: Path) -> Table:
    """Few tokens by types and number of tokens."""
    record = read_gemm(path)
    shown = grouped((row for row in record.rows if row.shape[1] in SHOWN), lambda row: (row.types, row.shape[1]))
    rows = [
        (
            name,
            f"{tokens:,}",
            mean(over(row, "cublas") for row in same),
            mean(over(row, "cusparselt") for row in same),
            mean(over(row, *LIBRARIES, of="dependent") for row in same),
            *(
                mean((copied(row, record.rows) / row.times_us[of] for row in same), ".0%")
                for of in ("ours", "dependent")
            ),
        )
        for (name, tokens), same in shown.items()
    ]
    rows.sort(key=lambda row: row[0])
    headings = ("types", "tokens", "× cuBLAS dense", "× cuSPARSELt", "dependent, × the faster")
    return table((*headings, "of a copy's speed", "dependent, of a copy's speed"), rows)


def copied(row: GemmRow, rows: Sequence[GemmRow]) -> float:
    """The time of a copy of as many bytes: the least of the weight's copies of so many bytes or more.

    Some numbers of bytes are copied more slowly than larger ones.
    """
    (m, n, k), dtype = row.shape, row.dtype
    same = (each for each in rows if each.dtype == dtype and each.shape[::2] == (m, k) and each.shape[1] >= n)
    return min(each.times_us["copy"] for each in same)


def microseconds(path: Path) -> Table:
    """The time of each weight by number of tokens, and in parentheses the speed relative to the faster library."""
    record = read_gemm(path)
    tokens = sorted({row.shape[1] for row in record.rows})
    rows: list[tuple[str, ...]] = []
    for (m, k, name), same in grouped(record.rows, lambda row: (row.shape[0], row.shape[2], row.types)).items():
        cells = {row.shape[1]: f"{row.times_us['ours']:.1f} ({number(over(row, *LIBRARIES), '.2f')})" for row in same}
        rows.append((f"{m}×{k}", name, *(cells.get(n, NONE) for n in tokens)))
    rows.sort(key=lambda row: row[1])
    return table(("weight", "types", *(f"{n:,}" for n in tokens)), rows, names=2)


def vectors(path: Path) -> Table:
    """Vectors by pattern: speed relative to cuBLAS, at few tokens also to a copy of as many bytes."""
    record = read_nm(path)
    shapes = sorted({row.shape for row in record.rows}, key=lambda shape: (-shape[1], shape))
    found = {(row.pattern, row.shape): row for row in record.rows}

    def cell(row: NmRow | None) -> str:
        if row is None:
            return NONE
        share = row.copy_share("matmul")
        return number(row.speedup("matmul"), ".2f") + ("" if share is None else f" ({share:.0%} of a copy)")

    rows = [
        (str(pattern), same[0].sparsity, *(cell(found.get((pattern, shape))) for shape in shapes))
        for pattern, same in grouped(record.rows, lambda row: row.pattern).items()
    ]
    rows.sort(key=lambda row: float(row[1].rstrip("%")))
    return table(("pattern", "zeros", *("×".join(map(str, shape)) for shape in shapes)), rows, names=2)


def vector_means(path: Path) -> Table:
    """Vectors by sparsity, over all weights: speed relative to cuBLAS in both layouts of tokens, beside M / N."""
    record = read_nm(path)
    rows = [
        (
            str(pattern),
            same[0].sparsity,
            str(len(same)),
            *(mean(row.speedup(kind) for row in same) for kind in ("matmul", "linear")),
            f"{pattern.rescaling:.2f}",
        )
        for pattern, same in grouped(record.rows, lambda row: row.pattern).items()
    ]
    headings = ("pattern", "zeros", "products", "× cuBLAS, tokens [K, N]", "× cuBLAS, tokens [N, K]", "M / N")
    return table(headings, rows, names=2)


def versions(path: Path) -> Table:
    """Versions of the published kernel for vectors, each with its best tile, over all cases: speed relative to cuBLAS."""
    record = read_nm(path)
    names = list(dict.fromkeys(name for row in record.rows for name in row.us if name != CUBLAS))
    rows = [
        (str(pattern), same[0].sparsity, *(mean(row.speedup(name) for row in same) for name in names))
        for pattern, same in grouped(record.rows, lambda row: row.pattern).items()
    ]
    return table(("pattern", "zeros", *names), rows, names=2)


def gathered(path: Path) -> Table:
    """The best schedule of gathered products beside cuBLAS."""
    rows: list[tuple[str, ...]] = []
    for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
        ours = min(us for name, us in row["us"].items() if name.startswith("gathered"))
        shape = "×".join(map(str, row["shape"]))
        rows.append((row["pattern"], row["dtype"], shape, f"{ours:.1f}", f"{row['us']['cublas'] / ours:.2f}"))
    return table(("pattern", "types", "M×N×K", "µs", "× cuBLAS"), rows, names=3)


def kernels(path: Path) -> Table:
    """Users' kernels by kind: speed relative to Triton's dense ones at the same tile, and to cuBLAS."""
    timed = [row for row in read_kernels(path).rows if row.problem is None]
    groups = {**grouped(timed, lambda row: row.kind), "all": timed}
    rows = [
        (
            name,
            str(len({row.form for row in same})),
            str(len(same)),
            mean(row.times_dense for row in same),
            mean(row.times("cublas") for row in same),
            str(sum((row.times_dense or 1) < 1 for row in same)),
        )
        for name, same in groups.items()
    ]
    return table(("kind", "kernels", "calls", "× Triton dense", "× cuBLAS", "slower than dense"), rows)


def models(path: Path) -> Table:
    """A model's blocks: milliseconds by side, and the speed of the sparse sides."""
    record = read_model(path)
    timed = [row for row in record.rows if row.ms]
    faster = ("sparse bf16", "sparse e4m3")
    rows = [
        (
            row.title,
            *(number(row.ms.get(side), ".3f") for side in SIDES),
            *(number(speedups(row.ms).get(side), ".2f") for side in faster),
        )
        for row in timed
    ]
    named = (f"{side} ms" for side in SIDES)
    case = f"case (Llama 3 8B: {record.blocks} blocks{' and the head' * record.head})"
    return table((case, *named, f"sparse bf16 × {DENSE_BF16}", "sparse e4m3 × the fastest dense"), rows)


def accuracy(path: Path) -> Table:
    """A pruned language model: perplexity relative to dense, and the speed of its patterns."""
    record = read_accuracy(path)
    rows = [
        (
            row.pattern,
            row.method,
            f"{row.zeros:.0%}",
            number(row.ratio[record.first], ".2f"),
            f"{row.worst:.2f}",
            f"{row.kl:.3f}",
            f"{row.top1:.1%}",
            *(number(row.speed(times) if row.shares else None, ".2f") for times in record.times.values()),
        )
        for row in record.rows
    ]
    speeds = (f"speed, {tokens:,} tokens" for tokens in record.times)
    headings = ("pattern", "method", "zeros", f"perplexity × dense, {record.first}", "of the worst text")
    return table((*headings, "KL", "top-1", *speeds), rows, names=2)


def epilogues(path: Path) -> Table:
    """A product with an epilogue: its time, and over that of the plain product."""
    found = json.loads(path.read_text(encoding="utf-8"))["rows"]
    plain = found[0]["bulk_us"]
    rows = [(row["epilogue"], f"{row['bulk_us']:.1f}", f"{row['bulk_us'] / plain:.2f}") for row in found]
    return table(("epilogue", "µs", "of the plain product's time"), rows)


def streaming(path: Path) -> Table:
    """Kernels that prune, check and compress: share of a copy's speed, and speed relative to the library's function."""
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    peers = {"compress pruned": "cuSPARSELt compress", "both orientations": "CUTLASS both orientations"}

    def row(name: str) -> tuple[str, ...]:
        timed = [(each["kernels"][name], each["libraries"].get(peers.get(name))) for each in found]
        times = [library / kernel["kernel"] for kernel, library in timed if library]
        peer = peers[name] if times else ""
        return name, mean((kernel["share"] for kernel, _ in timed), ".0%"), mean(times, ".1f"), peer

    return table(
        (f"kernel, {found[0]['pattern']}", "of a copy's speed", "× the library's", "library's function"),
        map(row, found[0]["kernels"]),
    )


def host(path: Path) -> Table:
    """Host time of calls, and of a kernel's way into memory. Parts of the runtime alone are left out."""
    found = json.loads(path.read_text(encoding="utf-8"))["rows"]
    calls = [row for row in found if "dtype" in row or row["us"] > 100]
    rows = [(row["name"], *(f"{row[each]:,.1f}" for each in ("us", "least_us", "p90_us"))) for row in calls]
    return table(("call", "median µs", "least", "90th percentile"), rows)


def checked(path: Path) -> Table:
    """Counts of a run that compares random products or kernels with float64."""
    record = json.loads(path.read_text(encoding="utf-8"))
    counts = {name: record[name] for name in ("cases", "launches", "kernels", "right", "wrong") if name in record}
    refused = record["refused"]
    counts["refused"] = refused if isinstance(refused, int) else sum(refused.values())
    return table(tuple(counts), [[f"{count:,}" for count in counts.values()]], names=0)


def source(path: Path) -> str:
    """Where a table's numbers are from: device, commits and date of the record."""
    record = json.loads(path.read_text(encoding="utf-8"))
    commits = Counter(short(row.get("commit", record["versions"]["commit"])) for row in record.get("rows", [{}]))
    named = ", ".join(
        f"`{commit}` ({count} rows)" if len(commits) > 1 else f"`{commit}`" for commit, count in commits.items()
    )
    cards = Counter(record.get("cards", [record.get("device")]))
    device = " and ".join(f"{count} {card}" if count > 1 else f"{card}" for card, count in cards.items())
    return f"{device}, commit {named}, {record['date'][:10]}"


def short(commit: str) -> str:
    """A commit's first digits, with the mark of changes on top of it."""
    return commit[:8] + "+" * commit.endswith("+")


def protocol(path: Path) -> str:
    """The protocol that the record keeps, as one line."""
    return " ".join(json.loads(path.read_text(encoding="utf-8"))["protocol"].split())


def served(path: Path) -> Table:
    """A layer's products as a server calls them: mean and least speed over the dense side of the same type."""
    rows = [
        (each.side, each.case, f"{each.mean:.2f}", f"{each.least[1]:.2f}", f"{each.least[0]:,}", str(len(each.found)))
        for each in ratios(read_serve(path).rows)
    ]
    return table(("side", "case", "× dense, mean", "least", "at tokens", "numbers of tokens"), rows, names=2)


def register_tiles(path: Path) -> Table:
    """Register tiles beside cuBLAS and a loop of the instruction."""
    rows = [
        (f"{row['m']}×{row['n']}×{row['k']}", each["contender"], f"{each['us']:.1f}", f"{each['share_of_loop']:.0%}")
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]
        for each in row["contenders"]
        if "loop" not in each["contender"]
    ]
    return table(("M×N×K", "contender", "µs", "of the instruction's rate"), rows, names=2)


def found(path: Path) -> Table:
    """A dense weight that a kernel finds sparse: microseconds, and × the same kernel by stock Triton, dense."""
    names = ("triton", "louver dense", "find", "find, frozen")
    rows = [
        (
            f"{row['outputs']}×{row['tokens']}×{row['k']}",
            *(f"{us[name]:.1f}" for name in names),
            *(f"{us['triton'] / us[name]:.2f}" for name in names[1:]),
        )
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]
        for us in [row["us"]]
    ]
    return table(("M×N×K", *names, *(f"× {name}" for name in names[1:])), rows)


def parallel(path: Path) -> Table:
    """Blocks divided among GPUs: sparse beside dense, and how well each uses the GPUs beside one."""
    rows = [
        (
            row["block"],
            row["kind"],
            f"{row['tokens']:,}",
            "one GPU" if row["reduce"] == "one" else f"{row['ranks']}, {row['reduce']}",
            f"{row['dense_us']:.0f}",
            f"{row['sparse_us']:.0f}",
            f"{row['speedup']:.2f}",
            f"{row['of_dense']:.0%}" if "of_dense" in row else NONE,
        )
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]
    ]
    headings = ("block", "types", "tokens", "GPUs, sum", "dense, µs", "sparse, µs", "× dense", "of dense's scaling")
    return table(headings, rows, names=4)


def training(path: Path) -> Table:
    """Milliseconds of a training step's parts: dense, and with masks of both kinds."""
    record = json.loads(path.read_text(encoding="utf-8"))
    parts: dict[str, dict[str, float]] = {}
    for row in record["products"]:
        parts.setdefault(f"{row['layer']} {row['shape']}, {row['product']}", {})[row["way"]] = row["ms"]
    parts["block, forward and backward"] = {row["way"]: row["ms"] for row in record["block"]}
    rows = [
        (part, *(f"{ms[way]:.2f}" for way in ("dense", *WAYS)), *(f"{ms['dense'] / ms[way]:.2f}" for way in WAYS))
        for part, ms in parts.items()
    ]
    # Steps of `distill_` have a dense side for each kind of masks.
    sides = {(row["way"], row["side"]): row["ms"] for row in record["distill"]}
    ratios = (f"{sides[way, 'masks'] / sides[way, 'chosen']:.2f}" for way in WAYS)
    rows.append(
        ("`distill_`, a step", f"{sides[WAYS[0], 'masks']:.2f}", *(f"{sides[w, 'chosen']:.2f}" for w in WAYS), *ratios)
    )
    return table(("part", "dense, ms", *(f"{way}, ms" for way in WAYS), *(f"{way} × dense" for way in WAYS)), rows)


def losses(path: Path) -> Table:
    """The loss of a small model with sparse layers over that with dense weights and the same masks."""
    rows = [
        (row["way"], str(row["seed"]), f"{row['dense']:.4f}", f"{row['sparse']:.4f}", f"{row['ratio']:.4f}")
        for row in json.loads(path.read_text(encoding="utf-8"))["loss"]["losses"]
    ]
    return table(("masks", "seed", "dense weights", "sparse layers", "ratio"), rows)
