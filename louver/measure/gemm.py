"""Measures one problem: verifies every contender, times it in bursts and, if asked, under sustained load."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from louver.measure.contenders import (
    REFUSALS,
    Contender,
    CuSparseLt,
    copied,
    cublas,
    cusparselt_candidates,
    dependent,
    ours,
)
from louver.measure.measurement import Measurement, has_n_major, measure_n_major
from louver.measure.operands import Operands, make_operands, verify
from louver.measure.problems import FEW_TOKENS, GemmProblem
from louver.measure.protocol import Protocol, interleave, median, spread
from louver.measure.report.gemm import CONTENDERS, TIMED, GemmRow
from louver.measure.sustained import Load, capture, prepare, sustain, take_turns

MOST_SLOWER = 1.1
"""A transposed cuSPARSELt contender is ranked if its launch takes at most this many times a launch in the library's own
order. Bursts of one contender differ by up to 6%.
"""


def measure(torch: Any, problem: GemmProblem, protocol: Protocol, *, sustained: bool = False) -> Measurement:
    """Measure a problem on the current device. Raises ArithmeticError if a result of Louver is wrong.

    A vendor's contender that fails or is wrong is left out, and its note gives the reason.
    """
    phases = _Phases()
    with phases.phase("operands"):
        operands = make_operands(torch, problem, protocol.sets(problem.compressed_bytes))
    notes: dict[str, dict[str, Any]] = {}
    with phases.phase("verify"):
        contenders = _own(torch, operands, notes)
    with phases.phase("libraries"):
        contenders |= _vendors(torch, operands, protocol, notes, phases) | {"copy": copied(torch, operands)}
    with phases.phase("bursts"):
        loads: dict[str, Load] = {}
        for name, contender in contenders.items():
            try:
                loads[name] = prepare(torch, contender.call, operands.sets, protocol)
            except REFUSALS as error:
                if not name.startswith("cusparselt"):
                    raise
                # With segment-K, hundreds of launches in a graph can end in an internal error.
                notes["cusparselt"][f"failed: {name}"] = _first_line(error)
        times = take_turns(loads, protocol)
    winners = pick_winners(times)
    for name, winner in winners.items():
        facts = {"spread": round(spread(times[winner]), 4), "bursts_us": [round(t * 1e6, 3) for t in times[winner]]}
        notes.setdefault(name, {}).update(contenders[winner].details | facts)
    taken = {name: round(median(times[w]) * 1e6, 3) for name, w in winners.items()}
    row = GemmRow(problem.shape, problem.dtype, "linear", taken, problem.out, problem.accumulate)
    with phases.phase("sustained"):
        lasting = CONTENDERS if sustained else ()
        long = {name: sustain(torch, loads[w], protocol) for name, w in winners.items() if name in lasting}
    with phases.phase("n_major"):
        turned = measure_n_major(torch, operands, protocol) if has_n_major(problem) else None
    return Measurement(row, notes, long, turned, phases.seconds)


class _Phases:
    """Seconds by phase of a measurement."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Generator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = round(time.perf_counter() - begin, 2)


def pick_winners(times: Mapping[str, tuple[float, ...]]) -> dict[str, str]:
    """The contender with the least median for each column of the record. A library may have several contenders."""
    winners: dict[str, str] = {}
    for name in sorted(times, key=lambda name: median(times[name])):
        winners.setdefault(name.split()[0], name)
    return {name: winners[name] for name in TIMED if name in winners}


def _own(torch: Any, operands: Operands, notes: dict[str, dict[str, Any]]) -> dict[str, Contender]:
    """Louver's contenders, verified for every weight. Raises ArithmeticError if a result is wrong."""
    contenders = [ours(operands), *([dependent(operands)] if operands.problem.n <= FEW_TOKENS else [])]
    for contender in contenders:
        worst = 0.0
        for index in range(operands.sets):
            operands.poison()
            # Dependent launches overlap with the previous launch. The launch with another weight makes such an error
            # visible.
            contender.call(index + 1)
            agreement = verify(torch, operands, index, contender.result(index))
            if not agreement.ok:
                raise ArithmeticError(
                    f"{contender.details['call']} is wrong for {operands.problem}, weight {index}: {agreement.violations} "
                    f"sampled elements are out of bounds, the worst {agreement.worst:.3g} times"
                )
            worst = max(worst, agreement.worst)
        notes[contender.name] = {"error_over_bound": round(worst, 4)}
    return {contender.name: contender for contender in contenders}


def _vendors(
    torch: Any, operands: Operands, protocol: Protocol, notes: dict[str, dict[str, Any]], phases: _Phases
) -> dict[str, Contender]:
    libraries: dict[str, Callable[[], dict[str, Contender]]] = {
        "cublas": lambda: _right(torch, operands, [cublas(torch, operands)], notes),
        "cusparselt": lambda: _cusparselt(torch, operands, protocol, notes, phases),
    }
    found: dict[str, Contender] = {}
    for name, contenders in libraries.items():
        try:
            found |= contenders()
        except REFUSALS as error:
            notes.setdefault(name, {})["failed"] = _first_line(error)
    return found


def _cusparselt(
    torch: Any, operands: Operands, protocol: Protocol, notes: dict[str, dict[str, Any]], phases: _Phases
) -> dict[str, Contender]:

    def short(contender: Contender) -> float:
        return capture(torch, contender.call, operands.sets).estimate(protocol.graph_seconds)

    def rank(contender: Contender) -> float:
        graph = capture(torch, contender.call, operands.sets)
        replays = protocol.rank_replays(graph.seconds(1) * operands.sets)
        time.sleep(protocol.rank_pause_seconds)
        return graph.seconds(replays)

    def times_as_long(contender: Contender, other: Contender) -> float:
        graphs = [capture(torch, each.call, 1) for each in (contender, other)]
        replays = max(1, protocol.rank_replays(graphs[1].seconds(1)) // 2)
        runs = {index: partial(graph.seconds, replays) for index, graph in enumerate(graphs)}
        taken = interleave(runs, 2, lambda: None)
        return sum(taken[0]) / sum(taken[1])

    with phases.phase("algorithms"):
        candidates, known = cusparselt_candidates(CuSparseLt(torch, operands), short, protocol)
    notes["cusparselt"] = {"algorithms": known}
    right: dict[str, Contender] = {}
    times: dict[str, float] = {}
    parts = _Phases()
    with phases.phase("ranking"):
        for contender in candidates:
            name = contender.name
            with parts.phase(f"check {name}"):
                right |= _right(torch, operands, [contender], notes)
            if name not in right:
                continue
            try:
                with parts.phase(f"rank {name}"):
                    # A transposed launch may take 0.3 s of host time, and ranking launches it once for each weight.
                    twin = right.get(contender.own_order)
                    slower = 1.0 if twin is None or twin is contender else times_as_long(contender, twin)
                    if slower > MOST_SLOWER:
                        notes["cusparselt"][f"slower: {name}"] = round(slower, 3)
                        continue
                    times[name] = rank(contender)
            except REFUSALS as error:
                notes["cusparselt"][f"failed: {name}"] = _first_line(error)
    notes["cusparselt"]["ranking_seconds"] = parts.seconds
    finalists = sorted(times, key=lambda name: times[name])[: protocol.finalists]
    return {name: right[name] for name in finalists}


def _right(
    torch: Any, operands: Operands, contenders: list[Contender], notes: dict[str, dict[str, Any]]
) -> dict[str, Contender]:
    """The contenders that run and whose result for the first weight is right."""
    right: dict[str, Contender] = {}
    for contender in contenders:
        operands.poison()
        try:
            agreement = verify(torch, operands, 0, contender.result(0))
        except REFUSALS as error:
            why = {f"failed: {contender.name}": _first_line(error)}
        else:
            if agreement.ok:
                right[contender.name] = contender
                continue
            why = {f"wrong: {contender.name}": agreement.worst}
        notes.setdefault(contender.name.split()[0], {}).update(why)
    return right


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
