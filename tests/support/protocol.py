"""Schedule IR of a product, and changes to it that break its protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from xdsl.dialects.builtin import ModuleOp

from louver.compile.check.check import check_protocol
from louver.compile.generate.assign import assign_shared_memory
from louver.compile.generate.generate import generate
from louver.compile.plan.nest import read_nest
from louver.compile.plan.schedule import Schedule
from louver.frontend.builder import build_tile_ir
from louver.frontend.problem import Problem, Tile
from louver.ir.sched import ops
from louver.isa.targets import SM_90A


def assigned(problem: Problem, schedule: Schedule) -> ModuleOp:
    tile = Tile(schedule.tile.m, schedule.tile.n, schedule.tile.k)
    module = generate(read_nest(build_tile_ir(problem, tile)), schedule, SM_90A)
    assign_shared_memory(module, SM_90A)
    return module


def refuses(problem: Problem, schedule: Schedule, change: Callable[[ops.KernelOp], None], message: str) -> None:
    """The check passes a kernel, and refuses it with that message once it is changed."""
    module = assigned(problem, schedule)
    check_protocol(module)
    (kernel,) = module.body.block.ops
    assert isinstance(kernel, ops.KernelOp)
    change(kernel)
    with pytest.raises(ValueError, match=message):
        check_protocol(module)


def found(kernel: ops.KernelOp, kind: type[Any], index: int = 0, role: str = "") -> Any:
    inside = [op for op in kernel.walk() if isinstance(op, ops.RoleOp) and op.sym_name.data == role]
    return [op for op in (inside[0] if role else kernel).walk() if isinstance(op, kind)][index]


def drop(kind: type[Any], index: int = 0) -> Callable[[ops.KernelOp], None]:
    return lambda kernel: found(kernel, kind, index).detach()


def barriers(kernel: ops.KernelOp, name: str) -> ops.BarriersOp:
    return next(op for op in kernel.walk() if isinstance(op, ops.BarriersOp) and op.sym_name.data == name)


def set_number(kind: type[Any], field: str, value: int, index: int = 0) -> Callable[[ops.KernelOp], None]:
    return lambda kernel: setattr(found(kernel, kind, index), field, ops.i32_attr(value))


def add(name: str, field: str, more: int) -> Callable[[ops.KernelOp], None]:
    def change(kernel: ops.KernelOp) -> None:
        op = barriers(kernel, name)
        setattr(op, field, ops.i32_attr(getattr(op, field).value.data + more))

    return change
