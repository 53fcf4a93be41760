"""Schedule IR -> the signature of its kernel."""

from __future__ import annotations

from xdsl.dialects.builtin import Float32Type, ModuleOp

from louver.compile.signature import MapParameter, Parameter, Signature, ValueParameter
from louver.ir.sched import ops
from louver.ir.sched.types import MapType, PointerType, SizeType


def read_signature(module: ModuleOp) -> Signature:
    """The signature of the one kernel in schedule IR, offsets assigned."""
    kernels = [op for op in module.body.block.ops if isinstance(op, ops.KernelOp)]
    if len(kernels) != 1:
        raise ValueError(f"a product is one kernel, got {len(kernels)}")
    kernel = kernels[0]
    if kernel.shared_bytes is None:
        raise ValueError("shared memory is assigned before the signature is read: run assign-shared-memory")
    names = [name.data for name in kernel.params]
    tile_m, tile_n, _ = (size.value.data for size in kernel.tile)
    return Signature(
        kernel=kernel.sym_name.data,
        parameters=tuple(_parameter(n, a.type) for n, a in zip(names, kernel.body.block.args, strict=True)),
        tile_m=tile_m,
        tile_n=tile_n,
        cluster=kernel.cluster.value.data,
        threads=kernel.threads.value.data,
        shared_bytes=kernel.shared_bytes.value.data,
    )


def _parameter(name: str, kind: object) -> Parameter:
    match kind:
        case MapType():
            box = tuple(size.data for size in kind.box)
            return MapParameter(
                name, kind.operand.data, box, kind.element_bytes.data, kind.span, kind.adds.data or None
            )
        case PointerType():
            return ValueParameter(name, "u64")
        case Float32Type():
            return ValueParameter(name, "f32")
        case SizeType():
            return ValueParameter(name, "u64" if kind.width.data == 64 else "u32")
        case _:
            raise ValueError(f"a kernel's parameter is a tensor map, a pointer, a number or a size, got {kind}")
