"""Reads the signature of a kernel from schedule IR."""

from __future__ import annotations

from typing import Literal, cast

from xdsl.dialects.builtin import Float32Type, ModuleOp

from louver.compile.plan.schedule import Occupancy
from louver.compile.signature import (
    RANGES,
    SIZES,
    STRIDES,
    TAIL_MAP,
    ArgumentParameter,
    BoxParameter,
    Parameter,
    Signature,
)
from louver.ir.polynomial import Polynomial
from louver.ir.sched import ops
from louver.ir.sched.types import MapType, PointerType, SizeType


def read_signature(module: ModuleOp) -> Signature:
    """The signature of the only kernel in schedule IR with assigned shared memory."""
    kernels = [op for op in module.body.block.ops if isinstance(op, ops.KernelOp)]
    if len(kernels) != 1:
        raise ValueError(f"a product is one kernel, got {len(kernels)}")
    kernel = kernels[0]
    if kernel.shared_bytes is None:
        raise ValueError("shared memory is assigned before the signature is read: run assign-shared-memory")
    names = [name.data for name in kernel.params]
    m, n, _ = (size.value.data for size in kernel.tile)
    ctas, together = kernel.cluster.value.data, kernel.pairs is None
    m *= ctas if together else 1
    # CTAs are persistent. There is one for each tile of each entry or each range, but at most as many as run at once.
    # Clusters
    # are whole.
    tiles = f"((M + {m - 1})/{m})*((N + {n - 1})/{n})*batch"
    whole, parts, _ = RANGES
    items = f"{whole} + {parts}*({tiles} - {whole})" if parts in names else tiles
    clusters = items if together else f"({items} + {ctas - 1})/{ctas}"
    occupancy = occupancy_of(kernel)
    resident = f"{occupancy.ctas}*sms" if occupancy.ctas > 1 else "sms"
    at_once = f"max(1, {resident}/{ctas})"
    grid = f"{ctas}*min({clusters}, {at_once})"
    return Signature(
        kernel=kernel.sym_name.data,
        parameters=tuple(_parameter(n, a.type) for n, a in zip(names, kernel.body.block.args, strict=True)),
        threads=kernel.threads.value.data,
        shared_bytes=kernel.shared_bytes.value.data,
        cluster=ctas,
        pairs=not together,
        grid=Polynomial.parse(grid),
        tile=(m, n),
        at_once=Polynomial.parse(at_once if together else f"{ctas}*{at_once}"),
        dependent=occupancy.dependent,
    )


def occupancy_of(kernel: ops.KernelOp) -> Occupancy:
    """The occupancy for which the kernel was generated."""
    resident = 1 if kernel.resident is None else kernel.resident.value.data
    return Occupancy(cast("Literal[1, 2, 4]", resident), kernel.dependent is not None)


def _parameter(name: str, kind: object) -> Parameter:
    match kind:
        case MapType():
            operand, box = kind.operand.data, tuple(size.data for size in kind.box)
            sizes = tuple(map(Polynomial.atom, SIZES[operand][: len(box)]))
            strides = tuple(map(Polynomial.atom, STRIDES[operand][: len(box) - 1]))
            width, adds = kind.element_bytes.data, kind.adds.data or None
            along = Polynomial.atom("N") if name == TAIL_MAP else None
            return BoxParameter(name, operand, "matrix", width, sizes, strides, box, kind.span, adds, along)
        case PointerType():
            return ArgumentParameter(name, name, "address", None, "u64", kind.element.data)
        case Float32Type():
            return ArgumentParameter(name, name, "value", None, "f32", "f32")
        case SizeType():
            type_ = "u64" if kind.width.data == 64 else "u32"
            return ArgumentParameter(name, name, "value", None, type_, type_)
        case _:
            raise ValueError(f"a kernel's parameter is a tensor map, a pointer, a number or a size, got {kind}")
