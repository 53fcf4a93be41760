"""make-host-descriptors: changes a descriptor argument to a pointer argument, and makes the descriptor in the kernel.

Triton passes the sizes and strides of such a descriptor as arguments after it. The pass marks its sizes. A kernel may
get M, N and K with each of its operands, and only the caller knows that they are equal.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp, NoneAttr, UnitAttr
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from louver.ir.arith import ExtSIOp
from louver.ir.refusal import unsupported
from louver.ir.tile import DescriptorType, FuncOp, MakeTensorDescriptorOp, PointerType

SIZE_MARK = "louver.descriptor_size"
"""The attribute of an argument that is a size of a descriptor of the caller."""


def make_host_descriptors(module: ModuleOp) -> None:
    """Replace descriptor arguments by pointers, in place. Rejects a kernel whose descriptors have no sizes and strides."""
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        block = function.body.block
        found = [index for index, type_ in enumerate(block.arg_types) if isinstance(type_, DescriptorType)]
        if not found:
            continue
        attributes = function.argument_attributes
        for index in reversed(found):
            for size in _make(function, index):
                attributes[size][SIZE_MARK] = UnitAttr()
        function.take_types()
        function.argument_attributes = attributes


def _make(function: FuncOp, index: int) -> range:
    """Make the descriptor of argument `index` in the kernel. Returns the indices of the arguments with its sizes."""
    block = function.body.block
    argument = block.args[index]
    assert isinstance(argument.type, DescriptorType)
    tile = argument.type.block
    rank = tile.get_num_dims()
    sizes, strides = (block.args[index + 1 + part * rank : index + 1 + (part + 1) * rank] for part in (0, 1))
    if [str(value.type) for value in (*sizes, *strides)] != ["i32"] * rank + ["i64"] * rank:
        raise unsupported("a descriptor argument is followed by its sizes (i32) and strides (i64)", function)
    encoding = None if isinstance(tile.encoding, NoneAttr) else tile.encoding
    uses = list(argument.uses)
    pointer = Rewriter.replace_value_with_new_type(argument, PointerType(tile.element_type, encoding))
    # The last dimension is contiguous. The host checks this when it makes a descriptor.
    made = MakeTensorDescriptorOp(pointer, list(sizes), [*strides[:-1], 1], tile.get_shape())
    made.location = function.location
    made.result.name_hint = None if pointer.name_hint is None else f"{pointer.name_hint}_tensor"
    Rewriter.insert_op(made, InsertPoint.at_start(block))
    for use in uses:
        use.operation.operands[use.index] = made.result
    return range(index + 1, index + 1 + rank)


def own_sizes(function: FuncOp) -> frozenset[SSAValue]:
    """The arguments that only describe one tensor. The caller may pass equal sizes as separate arguments."""
    arguments = zip(function.body.block.args, function.argument_attributes, strict=True)
    return frozenset(each for each, attributes in arguments if SIZE_MARK in attributes or _describes_one(each))


def _describes_one(argument: SSAValue) -> bool:
    """Whether only descriptors of one tensor use an integer."""
    users = list(_users(argument))
    bases = {op.base for op in users if isinstance(op, MakeTensorDescriptorOp)}
    return len(bases) == 1 and argument not in bases and all(isinstance(op, MakeTensorDescriptorOp) for op in users)


def _users(value: SSAValue) -> Iterator[Operation]:
    """The users of an integer and of its extensions."""
    for use in value.uses:
        if isinstance(use.operation, ExtSIOp):
            yield from _users(use.operation.result)
        else:
            yield use.operation
