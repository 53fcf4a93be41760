"""The times of a kernel's roles, by the model of the protocol check."""

from __future__ import annotations

import functools

import pytest

from louver.compile.check.timeline import Lengths, Span, timeline
from louver.compile.pipeline import compile_product
from louver.compile.plan.schedule import Schedule
from louver.frontend.problem import Problem
from louver.ir.sched import ops

USUAL = Lengths()

SCHEDULES = {
    "plain": Schedule.of(tile_n=64, stages=3, store="bulk"),
    "staged metadata": Schedule.of(tile_n=64, stages=3, metadata="barrier"),
    "nothing in flight": Schedule.of(tile_n=64, stages=3, in_flight=0),
    "cluster": Schedule.of(tile_n=64, stages=3, cluster=2),
    "alone": Schedule.of(tile_m=64, tile_n=64, specialized=False, consumers=1, stages=1, in_flight=0),
}


@functools.cache
def kernel_of(schedule: Schedule) -> ops.KernelOp:
    product = compile_product(Problem("linear"), schedule)
    (kernel,) = (op for op in product.sched.body.block.ops if isinstance(op, ops.KernelOp))
    return kernel


def spans_of(schedule: Schedule, steps: list[int], lengths: Lengths = USUAL) -> list[Span]:
    return timeline(kernel_of(schedule), steps, lengths)


@pytest.mark.parametrize("name", SCHEDULES)
def test_slots_are_filled_before_they_are_read_and_released_before_they_are_filled(name: str) -> None:
    schedule = SCHEDULES[name]
    steps = [7, 5, 1, 9]
    spans = spans_of(schedule, steps)
    done: dict[int, float] = {}
    for tile, count in enumerate(steps):
        for step in range(count):
            own = {
                kind: [s for s in spans if (s.kind, s.tile, s.step) == (kind, tile, step)]
                for kind in ("copy", "products", "release")
            }
            (stage,) = {span.stage for each in own.values() for span in each}
            seen = max(span.end for span in own["copy"])
            released = max(span.end for span in own["release"])
            assert min(span.begin for span in own["copy"]) >= done.get(stage, 0)
            assert all(seen <= span.begin and span.end <= released for span in own["products"])
            assert len(own["products"]) == len(own["release"]) == schedule.roles.consumers
            done[stage] = released


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_tile_is_stored_once_by_each_of_its_warpgroups_after_its_products(name: str) -> None:
    schedule = SCHEDULES[name]
    spans = spans_of(schedule, [3, 3])
    for tile in range(2):
        stores = [span for span in spans if span.kind == "store" and span.tile == tile]
        assert len(stores) == schedule.roles.consumers
        for store in stores:
            own = [s for s in spans if s.kind == "products" and (s.tile, s.warpgroup) == (tile, store.warpgroup)]
            assert len(own) == 3 and max(span.end for span in own) <= store.begin


def test_a_ring_runs_ahead_by_its_slots_and_more_slots_end_earlier() -> None:
    slow = Lengths(copies=1.3, latency=4.0)
    ends = [
        max(span.end for span in spans_of(Schedule.of(tile_n=64, stages=stages), [16, 16], slow))
        for stages in (2, 4, 8)
    ]
    assert ends[0] > ends[1] > ends[2]
