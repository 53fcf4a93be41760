"""Reads the signature of a kernel from schedule IR, and the parameters of a kernel from tile IR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from xdsl.dialects.builtin import BFloat16Type, Float16Type, Float32Type, IndexType, IntegerType, ModuleOp
from xdsl.ir import Attribute

from louver.compile.canonical.propagate_sparsity import encoding_of
from louver.compile.plan.schedule import Occupancy
from louver.compile.signature import (
    RANGES,
    RESERVED,
    SIZES,
    STRIDES,
    TAIL_MAP,
    ArgumentParameter,
    BoxParameter,
    Parameter,
    ParameterType,
    Part,
    Signature,
)
from louver.ir import tile
from louver.ir.polynomial import Polynomial
from louver.ir.refusal import unsupported
from louver.ir.sched import ops
from louver.ir.sched.types import MapType, PointerType, SizeType
from louver.ir.tile.multiples import multiples_of

ARRAY_ALIGNMENT = 16
"""The alignment of the arrays of a sparse tensor, in bytes."""


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


Group = tuple[str, Part, int | None]
"""The origin of an argument: the user's argument, the part of it, and the dimension of that part."""


_SIZES: tuple[Part, ...] = ("size", "stride")


def argument_groups(function: tile.FuncOp) -> list[Group]:
    """The origin of each argument of a kernel, before make-host-descriptors.

    A descriptor's sizes and strides follow it.
    """
    found: list[Group] = []
    for index, (argument, name) in enumerate(function.argument_names.items()):
        if len(found) > index:
            continue
        if isinstance(argument.type, tile.DescriptorType):
            found.append((name, "address", None))
            for part in _SIZES:
                for dimension in range(argument.type.block.get_num_dims()):
                    found.append((name, part, dimension))
        elif isinstance(argument.type, tile.PointerType):
            found.append((name, "address", None))
        else:
            found.append((name, "value", None))
    return found


def read_parameters(function: tile.FuncOp, groups: Sequence[Group]) -> list[ArgumentParameter]:
    """The parameters of `function` after decompose-sparse-tensors. Here it still has sparse types."""
    found: list[ArgumentParameter] = []
    taken: set[str] = set(RESERVED)

    def add(name: str, group: Group, part: Part, type_: ParameterType, element: str, multiple: int) -> None:
        safe = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)
        safe = safe if safe[:1].isalpha() else f"arg_{safe}"
        while safe in taken:
            safe += "_"
        taken.add(safe)
        found.append(ArgumentParameter(safe, group[0], part, group[2], type_, element, multiple))

    multiples = multiples_of(function)
    for index, ((argument, name), group) in enumerate(zip(function.argument_names.items(), groups, strict=True)):
        if not isinstance(argument.type, tile.PointerType):
            add(name, group, group[1], _number_type(argument.type, function), str(argument.type), multiples[index])
            continue
        element = str(argument.type.pointee)
        if encoding_of(argument) is None:
            add(name, group, "address", "u64", element, multiples[index])
        else:
            add(name, group, "values", "u64", element, ARRAY_ALIGNMENT)
            add(f"{name}_metadata", group, "metadata", "u64", tile.element_name(argument.type.pointee), ARRAY_ALIGNMENT)
    return found


def _number_type(type_: Attribute, function: tile.FuncOp) -> ParameterType:
    match type_:
        case IntegerType() if type_.width.data in (1, 8, 16, 32):
            return "u32"
        case IntegerType() | IndexType():
            return "u64"
        case Float32Type() | Float16Type() | BFloat16Type():
            return "f32"
        case _:
            raise unsupported(f"arguments are pointers, integers, f32, f16 and bf16, not {type_}", function)
