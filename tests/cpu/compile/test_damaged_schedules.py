"""The check of the protocol ends soon for every damaged schedule: it passes, or it names the rule."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from louver.compile.check.check import LIMITS, check_protocol
from louver.ir.context import parse_ir
from support.damaged_schedules import at, damages, set_number
from support.golden import ROOT as GOLDEN
from support.work import cpu_seconds

FILES = sorted((GOLDEN / "sched").glob("*.mlir"))


def check_damages(file: Path, most: int | None, seed: int) -> None:
    text = file.read_text(encoding="utf-8")
    found = list(damages(parse_ir(text)))
    random.Random(seed).shuffle(found)
    for name, change in found[:most]:
        module = parse_ir(text)
        change(module)
        try:
            with cpu_seconds(20):
                check_protocol(module)
        except ValueError as error:
            assert len(str(error)) > 20, name
        except Exception as error:
            raise AssertionError(f"{file.stem}: {name}") from error


@pytest.mark.sampled(7)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_check_ends_for_some_damages(file: Path) -> None:
    check_damages(file, 8, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_check_ends_for_every_damage(file: Path) -> None:
    check_damages(file, None, seed=0)


@pytest.mark.parametrize(
    ("name", "key", "number", "rule"),
    [
        ("sched.ring", "stages", -1, "stages of sched.ring is from 1 to 64, got -1"),
        ("sched.barriers", "stages", 0, "stages of sched.barriers is from 1 to 64, got 0"),
        ("sched.loop", "unroll", -(2**31), "unroll of sched.loop is from 1 to 64"),
        ("sched.loop", "unroll", 3, "a body of a loop advances as many steps as it is unrolled"),
        (
            "sched.role",
            "warpgroups",
            65536,
            f"warpgroups of sched.role is from 0 to {LIMITS['warpgroups'][-1]}, got 65536",
        ),
        ("sched.mma_wait", "pending", -1, "pending of sched.mma_wait is from 0 to 7, got -1"),
        ("sched.bulk_load", "offset", -16, "offset of sched.bulk_load is from 0 to 2147483647, got -16"),
    ],
)
def test_numbers_that_the_model_cannot_count_to_are_refused(name: str, key: str, number: int, rule: str) -> None:
    module = parse_ir((GOLDEN / "sched" / "matmul-turned.mlir").read_text(encoding="utf-8"))
    index = next(index for index, op in enumerate(module.walk()) if op.name == name)
    at(index, set_number(key, number))(module)
    with pytest.raises(ValueError, match=rule):
        check_protocol(module)


def test_a_ring_that_is_not_declared_is_refused() -> None:
    module = parse_ir((GOLDEN / "sched" / "matmul-turned.mlir").read_text(encoding="utf-8"))
    ring = next(op for op in module.walk() if op.name == "sched.ring")
    ring.detach()
    with pytest.raises(ValueError, match=r"of sched\.\w+ is one of @.*, got @"):
        check_protocol(module)
