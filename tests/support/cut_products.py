"""Schedules and problems of products that cut K, and orders of the emulator."""

from __future__ import annotations

from louver.compile.plan.schedule import Schedule
from louver.emulator import Earliest, Latest, Order, Seeded
from louver.frontend.problem import Problem

NARROW = Schedule.of(tile_n=32, stages=3)

STRUCTURES = {
    "narrow": NARROW,
    "wide-step": NARROW.changed(tile_k=128, stages=2),
    "two-blocks": NARROW.changed(tile_m=256, stages=2),
    "three-consumers": NARROW.changed(tile_m=192, tile_n=48, consumers=3),
    "bulk": NARROW.changed(tile_n=64, store="bulk"),
    "chunks": NARROW.changed(tile_n=128, store="bulk", staging=32),
    "drained": NARROW.changed(in_flight=0),
    "stage": NARROW.changed(metadata="stage"),
    "barrier": NARROW.changed(metadata="barrier", tile_k=128, stages=2),
    "alone": NARROW.changed(tile_m=64, consumers=1, stages=1, specialized=False, in_flight=0),
}

TYPES = {
    "f16": Problem("linear", bias="row"),
    "f16-sums": Problem("linear", accumulate="f16"),
    "fp8": Problem("linear", "e4m3", "e5m2", "f16", bias="row"),
    "promoted": Problem("linear", "e4m3", "e4m3", "f32", accumulate="promoted"),
    "int8": Problem("linear", "s8", "u8", "s32"),
}

ORDERS: dict[str, Order] = {"earliest": Earliest(), "latest": Latest(), "seeded": Seeded(5)}
