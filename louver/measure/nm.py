"""Figures 9 and 10 of NM-SpMM (docs/nm.md): products of vectors N:M@L and cuBLAS, at the paper's 100 points or others.

The paper's point is m tokens and a weight of n × k. Louver writes it as M×N×K: rows of the weight, tokens, inner size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import louver
from louver.choose.configure import deepest
from louver.compile.plan.schedule import Schedule, list_rows, lists_of
from louver.formats.dtypes import element_type
from louver.formats.pattern import Pattern
from louver.frontend.problem import Kind, Problem
from louver.isa.targets import Target, target
from louver.library.blocking import intensity
from louver.library.execute import schedule_for
from louver.measure.contenders import copies_of
from louver.measure.launches import compile_all
from louver.measure.operands import torch_dtype
from louver.measure.protocol import Protocol
from louver.measure.report.nm import COPY, CUBLAS, KINDS
from louver.measure.vectors import Drawn, Multiplied, drawn, launched, microseconds
from louver.runtime.device import Device, require_device

TOKENS = (256, 512, 1024, 2048, 4096)

WIDTHS = ((2048, 5632), (4096, 11008), (5120, 13824), (6656, 17920), (8192, 22016))
"""Widths of Llama models and of their feed-forward layers."""

WEIGHTS = tuple(shape for d, wide in WIDTHS for shape in ((d, d), (3 * d, d), (d, wide), (wide, d)))
"""Rows and columns of the paper's 20 weights: attention output and joined inputs, feed-forward output and input."""

SPARSITIES = ("16:32", "12:32", "8:32", "4:32")
"""50, 62.5, 75 and 87.5% sparsity."""

QUICK_TOKENS, QUICK_WEIGHTS = (512, 4096), ((4096, 4096),)
"""The points of a quick run. They include the point of Figure 10."""

PROTOCOL = Protocol(rounds=3, burst_seconds=0.02, pause_seconds=0.01, launches=3, graph_seconds=0.002, rotation_bytes=0)
"""Short bursts at the full clock suffice: in them, neither CUDA cores nor tensor cores reach the power limit."""

FEW_TOKENS = 64
"""Most tokens for which a product waits for its weight, because other layers evict it from the L2 cache."""

FEW = replace(PROTOCOL, rotation_bytes=200_000_000)

Points = Mapping[tuple[int, int], Sequence[int]]
"""Numbers of tokens by rows and columns of a weight."""


def paper_points(*, quick: bool) -> Points:
    """The paper's points, or a few of them."""
    return dict.fromkeys(QUICK_WEIGHTS, QUICK_TOKENS) if quick else dict.fromkeys(WEIGHTS, TOKENS)


def points_of(shapes: Iterable[tuple[int, int, int]]) -> Points:
    """The points of products M×N×K."""
    found: dict[tuple[int, int], list[int]] = {}
    for m, n, k in shapes:
        found.setdefault((m, k), []).append(n)
    return found


def patterns(length: int) -> tuple[Pattern, ...]:
    """The paper's sparsities in vectors of this length."""
    return tuple(Pattern.parse(f"{each}@{length}") for each in SPARSITIES)


def problem_of(kind: Kind, pattern: Pattern, dtype: str = "f32") -> Problem:
    """The library's problem of a product of one element type."""
    return Problem(kind, dtype, dtype, dtype, pattern=str(pattern), b_layout="n_major")


def compile_ahead(points: Points, chosen: Sequence[Pattern], dtype: str, place: Device) -> None:
    """Compile the kernels that the library will run, in parallel."""
    sizes = [(m, n, k) for (m, k), tokens in points.items() for n in tokens]
    wanted = {
        (problem, schedule_for(problem, *each, place, aligned_output=True)): None
        for problem in (problem_of(kind, pattern, dtype) for kind in KINDS for pattern in chosen)
        for each in sizes
    }
    compile_all(wanted, place.target)


def flop_per_byte(schedule: Schedule, pattern: Pattern, k: int, dtype: str = "f32") -> float:
    """Equation (3) for a schedule's tile: FLOP per byte without zeros, with C moved once.

    A tile loads whole groups of the tokens' rows of K or, for each of its lists, the rows that the list's windows keep.
    """
    tile, groups, share = schedule.tile, pattern.groups(k), 1.0
    if schedule.ring.metadata == "global":
        windows = -(-list_rows(str(pattern), schedule) // pattern.length)
        share = lists_of(str(pattern), schedule) * pattern.kept_by(windows)
    return intensity((tile.n, groups * pattern.m * share), (groups * pattern.n, tile.m)) / element_type(dtype).bytes


def contenders(torch: Any, given: Sequence[Drawn], b: Any, sets: Callable[[int], int]) -> dict[str, Multiplied]:
    """The library and cuBLAS, with tokens [K, N] (`matmul`) and [N, K] (`linear`). cuBLAS multiplies the first weight.

    sets: gives the number of copies of a weight, from its bytes, that the launches rotate over.
    """
    x, (m, n) = b.t().contiguous(), (len(given[0].dense), b.shape[1])
    y, turned = b.new_empty(m, n), b.new_empty(n, m)

    def both(
        dense: Any, weights: Sequence[Any], matmul: Callable[[Any, Any], object], linear: Callable[[Any, Any], object]
    ) -> tuple[Multiplied, Multiplied]:
        count = len(weights)
        return (
            Multiplied(dense, lambda index: matmul(weights[index % count], y), y, count),
            Multiplied(dense, lambda index: linear(weights[index % count], turned), turned.t(), count),
        )

    first = given[0].dense
    copied = [first, *(first.clone() for _ in range(1, sets(first.nbytes)))]
    found = {
        CUBLAS: both(first, copied, lambda w, out: torch.mm(w, b, out=out), lambda w, out: torch.mm(x, w.t(), out=out))
    }
    for each in given:
        # Each tensor object has separate arrays on the GPU.
        tensors = [each.sparse, *(replace(each.sparse) for _ in range(1, sets(each.sparse.nbytes)))]
        found[str(each.pattern)] = both(
            each.dense,
            tensors,
            lambda s, out: louver.matmul(s, b, out=out),
            lambda s, out: louver.linear(x, s, out=out),
        )
    return {f"{name} {kind}": one for name, pair in found.items() for kind, one in zip(KINDS, pair, strict=True)}


def measure_weight(
    torch: Any,
    weight: tuple[int, int],
    tokens: Sequence[int],
    chosen: Sequence[Pattern],
    dtype: str,
    protocols: tuple[Protocol, Protocol],
) -> list[dict[str, Any]]:
    """Rows of the record for a weight [M, K], by number of tokens and pattern. Schema: `louver.measure.report.nm`.

    protocols: for many tokens and for few, which are timed beside a copy of as many bytes. Raises ArithmeticError for a
    wrong result.
    """
    (m, k), place = weight, require_device()
    generator = torch.Generator(device="cuda").manual_seed(0)
    given = [drawn(torch, generator, m, k, pattern, dtype) for pattern in chosen]
    rows: list[dict[str, Any]] = []
    for n in tokens:
        b = torch.randn(k, n, generator=generator, device="cuda").to(torch_dtype(torch, dtype))
        few = n <= FEW_TOKENS
        protocol = protocols[few]
        moved = {each.pattern: each.sparse.nbytes + (m + k) * n * b.element_size() for each in given}
        copies = {f"{COPY} {each}": copies_of(torch, moved[each], protocol.sets(moved[each])) for each in chosen if few}
        us = microseconds(torch, contenders(torch, given, b, protocol.sets), b, dtype, str(chosen[0]), protocol, copies)
        for pattern in chosen:
            schedule = schedule_for(problem_of("matmul", pattern, dtype), m, n, k, place, aligned_output=True)
            assert isinstance(schedule, Schedule), "vectors are measured on sm_90a"
            own = {kind: us[f"{pattern} {kind}"] for kind in KINDS}
            own |= {f"{CUBLAS} {kind}": us[f"{CUBLAS} {kind}"] for kind in KINDS}
            own |= {COPY: us[f"{COPY} {pattern}"]} if few else {}
            row = {"shape": [m, n, k], "pattern": str(pattern), "us": own}
            row |= {"flop_per_byte": round(flop_per_byte(schedule, pattern, k, dtype), 3), "schedule": schedule.flat()}
            rows.append(row)
    return rows


CASES: Mapping[str, tuple[int, int, int]] = {
    "A": (512, 512, 512),
    "B": (1024, 512, 1024),
    "C": (2048, 512, 2048),
    "D": (2048, 1024, 2048),
    "E": (4096, 2048, 4096),
    "F": (4096, 4096, 4096),
}
"""Table II, as M×N×K: rows of the weight (the paper's n), tokens (its m), inner size. Figure 7 shows F."""

QUICK_CASES = ("C", "F")


@dataclass(frozen=True, slots=True)
class Version:
    """The schedules of a version.

    deep: as many stages as the library takes, so that copies overlap with products; else one stage.

    metadata: "stage": boxes copy all rows and threads pick rows; "global": kept rows are gathered.
    """

    metadata: Literal["stage", "global"]
    deep: bool

    def schedule(self, problem: Problem, tile: tuple[int, int, int, int], machine: Target) -> Schedule:
        """The schedule for a tile. Raises ValueError if two stages do not fit."""
        m, n, k, consumers = tile
        schedule = Schedule.of(
            tile_m=m, tile_n=n, tile_k=k, consumers=consumers, stages=1, in_flight=0, metadata=self.metadata
        )
        return deepest(problem, schedule, machine) if self.deep else schedule


VERSIONS: Mapping[str, Version] = {
    "V1": Version("stage", deep=False),
    "V2": Version("global", deep=False),
    "V3": Version("global", deep=True),
    "V3 unpacked": Version("stage", deep=True),
}
"""V1: blocking. V2: packing. V3: packing and pipelining. Up to 70% sparsity, the paper's V3 is "V3 unpacked"."""

TILES = ((256, 128, 32, 2), (256, 128, 16, 2), (128, 128, 32, 2), (128, 64, 32, 2), (64, 128, 32, 1))
"""Rows of the weight, tokens, stored columns of a step, consumer warpgroups. The best tile of each version counts."""


def ladder_patterns(length: int) -> tuple[Pattern, ...]:
    """32:32 and the paper's sparsities, in vectors of this length."""
    return tuple(Pattern.parse(f"{each}@{length}") for each in ("32:32", *SPARSITIES))


def candidates(pattern: Pattern, machine: Target) -> tuple[dict[str, Schedule], dict[str, str]]:
    """Schedules by version and tile, and the errors of schedules that cannot be built."""
    found, refused = dict[str, Schedule](), dict[str, str]()
    for (name, version), tile in ((each, tile) for each in VERSIONS.items() for tile in TILES):
        label = f"{name}, {'×'.join(map(str, tile[:3]))}"
        try:
            found[label] = version.schedule(problem_of("matmul", pattern), tile, machine)
        except ValueError as error:
            refused[label] = str(error)
    return found, refused


def measure_ladder(
    torch: Any, cases: Sequence[str], chosen: Sequence[Pattern], protocol: Protocol
) -> Iterator[dict[str, Any]]:
    """Rows of the record for each case and pattern: `louver.measure.report.nm`. Raises ArithmeticError for a wrong
    result.
    """
    place = require_device()
    built = {pattern: candidates(pattern, target(place.target)) for pattern in chosen}
    pairs = [(problem_of("matmul", pattern), s) for pattern, (found, _) in built.items() for s in found.values()]
    reasons = compile_all(pairs, place.target)
    for case in cases:
        for pattern, (found, refused) in built.items():
            problem = problem_of("matmul", pattern)
            left_out = refused | {n: reasons[problem, s] for n, s in found.items() if (problem, s) in reasons}
            runs = {name: schedule for name, schedule in found.items() if name not in left_out}
            us = _measure_case(torch, CASES[case], pattern, runs, place, protocol)
            best = {
                version: min((us[name], name) for name in names)
                for version in VERSIONS
                if (names := [name for name in runs if name.startswith(f"{version},")])
            }
            yield {
                "case": case,
                "shape": list(CASES[case]),
                "pattern": str(pattern),
                "us": {CUBLAS: us[CUBLAS]} | {version: time for version, (time, _) in best.items()},
                "tiles": {version: name.removeprefix(f"{version}, ") for version, (_, name) in best.items()},
                "schedules": {version: runs[name].flat() for version, (_, name) in best.items()},
                "all_us": us,
                "refused": left_out,
            }


def _measure_case(
    torch: Any,
    shape: tuple[int, int, int],
    pattern: Pattern,
    runs: Mapping[str, Schedule],
    place: Device,
    protocol: Protocol,
) -> dict[str, float]:
    m, n, k = shape
    problem, generator = problem_of("matmul", pattern), torch.Generator(device="cuda").manual_seed(0)
    given = drawn(torch, generator, m, k, pattern, "f32")
    dense, b, y = given.dense, torch.randn(k, n, generator=generator, device="cuda"), torch.empty(m, n, device="cuda")
    contenders = {CUBLAS: Multiplied(dense, lambda _: torch.mm(dense, b, out=y), y)}
    for name, schedule in runs.items():
        contenders[name] = launched(torch, given.operand(schedule, place), problem, schedule, place, dense, b, y)
    return microseconds(torch, contenders, b, "f32", str(pattern), protocol)
