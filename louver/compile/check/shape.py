"""What the model of the check takes for granted: numbers that it can count to, and names that are declared.

Each rule is checked before the roles run, so that damaged schedule IR is refused at once and by its own rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, IntegerType, StringAttr
from xdsl.ir import Attribute, Operation

from louver.compile.check.refuse import ProtocolError
from louver.ir.sched import ops
from louver.isa.instruction import LANES
from louver.isa.targets import MAX_PENDING_PRODUCTS, MBARRIER_MAX_ARRIVALS, MBARRIER_MAX_TRANSACTION_BYTES, SM_90A

MAX_STAGES = 64
MAX_UNROLL = 64

LIMITS: dict[str, range] = {
    "stages": range(1, MAX_STAGES + 1),
    "unroll": range(1, MAX_UNROLL + 1),
    "pending": range(MAX_PENDING_PRODUCTS + 1),
    "arrivals": range(1, MBARRIER_MAX_ARRIVALS + 1),
    "transaction_bytes": range(MBARRIER_MAX_TRANSACTION_BYTES + 1),
    "cluster": range(1, SM_90A.max_cluster + 1),
    "threads": range(1, SM_90A.max_threads + 1),
    "warpgroups": range(SM_90A.max_threads // (4 * LANES) + 1),
}
"""Values of the fields of schedule IR by name. Every other number is 0 to 2^31 - 1."""

_ANY = range(1 << 31)
_RINGS = ("ring", "rings", "a", "b", "picks")
_BARRIERS = ("barriers", "room", "sums")


def check_shape(kernel: ops.KernelOp) -> None:
    """Raises ProtocolError for a number outside its limits, and for a ring or barriers that the kernel does not declare."""
    body = kernel.body.block.ops
    rings = [op.sym_name.data for op in body if isinstance(op, ops.RingOp)]
    barriers = [op.sym_name.data for op in body if isinstance(op, ops.BarriersOp)]
    declared: dict[str, list[str]] = {}
    for names, found in ((_RINGS, rings), (_BARRIERS, barriers)):
        for name in names:
            declared[name] = found
    for op in kernel.walk():
        if not op.name.startswith("sched."):
            continue
        for name, value in op.properties.items():
            limits = LIMITS.get(name, _ANY)
            for number in _numbers(value):
                if number not in limits:
                    rule = f"{name} of {op.name} is from {limits[0]} to {limits[-1]}"
                    raise ProtocolError(rule, str(number), _first_line(op))
            for symbol in _symbols(value) if name in declared else ():
                if symbol not in declared[name]:
                    known = ", ".join(f"@{each}" for each in declared[name]) or "none"
                    raise ProtocolError(f"{name} of {op.name} is one of {known}", f"@{symbol}", _first_line(op))


def _numbers(value: Attribute) -> Iterator[int]:
    if isinstance(value, IntegerAttr):
        yield cast("IntegerAttr[IntegerType]", value).value.data
    elif isinstance(value, ArrayAttr):
        for each in cast("ArrayAttr[Attribute]", value):
            yield from _numbers(each)


def _symbols(value: Attribute) -> Iterator[str]:
    if isinstance(value, StringAttr):
        yield value.data
    elif isinstance(value, ArrayAttr):
        for each in cast("ArrayAttr[Attribute]", value):
            yield from _symbols(each)


def _first_line(op: Operation) -> str:
    return str(op).splitlines()[0]
