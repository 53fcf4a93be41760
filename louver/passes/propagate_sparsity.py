"""propagate-sparsity: from marked arguments to pointers, tiles, loop-carried values and products.

Valid tile IR in, where an argument's attribute says that it is sparse; valid tile IR out, where its type says so, and the
type of everything that is made of it. What cannot have an encoding is refused at its source line.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp, StringAttr, TensorType
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

from louver.frontend.ttir import SPARSE_MARK
from louver.ir.tile import (
    AddPtrOp,
    AdvanceOp,
    BroadcastOp,
    DescriptorLoadOp,
    DescriptorReduceOp,
    DescriptorStoreOp,
    DescriptorType,
    DotOp,
    ExpandDimsOp,
    FuncOp,
    LoadOp,
    MakeTensorDescriptorOp,
    MakeTensorPtrOp,
    PointerType,
    ReshapeOp,
    SparseAttr,
    SplatOp,
    StoreOp,
    TransOp,
    sparse_encoding,
)
from louver.ir.tile.types import as_tensor
from louver.passes.refusal import unsupported

_KEEPS = (
    AddPtrOp, AdvanceOp, BroadcastOp, DescriptorLoadOp, ExpandDimsOp, LoadOp, MakeTensorDescriptorOp, MakeTensorPtrOp, SplatOp,
    ReshapeOp, TransOp,
)  # fmt: skip
"""Operations whose result has the encoding of their first operand."""


def propagate_sparsity(module: ModuleOp) -> None:
    """Give every value its encoding, in place; nothing changes where no argument is marked.

    Raises UnsupportedKernelError for values that meet with different encodings, and for operations on a sparse tile other
    than moving it and multiplying it.
    """
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        changed = _mark_arguments(function)
        if changed:
            _spread(changed)
            for op in function.body.walk():
                _check(op)


def encoded(type_: Attribute, encoding: SparseAttr) -> Attribute:
    """A pointer, descriptor or tensor type (also of pointers) with the encoding. Raises VerifyException where it cannot be."""
    match type_:
        case DescriptorType():
            return DescriptorType(_encoded_tensor(type_.block, encoding))
        case PointerType():
            tile = as_tensor(type_.pointee)
            return (
                PointerType(type_.pointee, encoding) if tile is None else PointerType(_encoded_tensor(tile, encoding))
            )
        case _:
            tensor = as_tensor(type_)
            if tensor is None:
                raise VerifyException(f"pointers, descriptors and tensors may be sparse, got {type_}")
            if isinstance(tensor.element_type, PointerType):
                return TensorType(encoded(tensor.element_type, encoding), tensor.get_shape())
            return _encoded_tensor(tensor, encoding)


def encoding_of(value: SSAValue) -> SparseAttr | None:
    """The encoding of a value, or of what a tensor of pointers points to."""
    tensor = as_tensor(value.type)
    if tensor is not None and isinstance(tensor.element_type, PointerType):
        return sparse_encoding(tensor.element_type)
    return sparse_encoding(value.type)


def _encoded_tensor(tensor: TensorType[Attribute], encoding: SparseAttr) -> TensorType[Attribute]:
    return TensorType(tensor.element_type, tensor.get_shape(), encoding)


def _mark_arguments(function: FuncOp) -> list[SSAValue]:
    """The arguments whose attribute says that they are sparse, now with types that say so."""
    changed: list[SSAValue] = []
    kept = function.argument_attributes
    for argument, attributes in zip(function.body.block.args, kept, strict=True):
        for mark in [name for name in attributes if name.startswith(SPARSE_MARK)]:
            del attributes[mark]
            changed.append(_encode(argument, _named(mark.removeprefix(SPARSE_MARK), function), function))
    if changed:
        function.take_types()
        function.argument_attributes = kept
    return changed


def _named(name: str, function: FuncOp) -> SparseAttr:
    try:
        return SparseAttr(StringAttr(name))
    except VerifyException as error:
        raise unsupported(str(error), function) from None


def _encode(value: SSAValue, encoding: SparseAttr, user: Operation) -> SSAValue:
    """The value with its encoding. Refuses `user` if it cannot have it."""
    try:
        return Rewriter.replace_value_with_new_type(value, encoded(value.type, encoding))
    except VerifyException as error:
        raise unsupported(str(error), user) from None


def _spread(pending: list[SSAValue]) -> None:
    while pending:
        value = pending.pop()
        encoding = encoding_of(value)
        assert encoding is not None
        for use in tuple(value.uses):
            for result in _results(use.operation, use.index):
                found = encoding_of(result)
                if found is None:
                    pending.append(_encode(result, encoding, use.operation))
                elif found != encoding:
                    raise unsupported(
                        f"values that meet must have one encoding, not {found} and {encoding}", use.operation
                    )


def _results(op: Operation, index: int) -> Sequence[SSAValue]:
    """What has the encoding of operand `index` too."""
    match op:
        case DotOp():
            return ()
        case scf.ForOp() if index >= 3:
            return (op.body.block.args[index - 2], op.results[index - 3])
        case scf.YieldOp():
            parent = op.parent_op()
            if isinstance(parent, scf.ForOp):
                return (parent.body.block.args[index + 1], parent.results[index])
            if isinstance(parent, scf.IfOp):
                return (parent.results[index],)
        case StoreOp() | DescriptorStoreOp() | DescriptorReduceOp() if index == 0:
            raise unsupported("a sparse tensor cannot be stored to: store a dense result", op)
        case _ if isinstance(op, _KEEPS) and index == 0:
            return op.results
        case _:
            pass
    raise unsupported("a sparse tile is loaded, moved and multiplied, and nothing else", op)


def _check(op: Operation) -> None:
    """Refuse values that meet with different encodings."""
    groups: list[tuple[SSAValue, ...]] = []
    if isinstance(op, scf.ForOp):
        end = op.body.block.last_op
        assert end is not None
        groups = list(zip(op.iter_args, op.body.block.args[1:], end.operands, op.results, strict=True))
    elif isinstance(op, scf.IfOp) and op.results:
        ends = [region.block.last_op for region in op.regions]
        groups = list(zip(op.results, *(end.operands for end in ends if end is not None), strict=True))
    elif isinstance(op, DotOp) and encoding_of(op.a) is not None and encoding_of(op.b) is not None:
        raise unsupported("one operand of a dot may be sparse: decompress the other", op)
    for group in groups:
        found = {encoding_of(value) for value in group}
        if len(found) > 1:
            carried = next((value.name_hint for value in group if isinstance(value, BlockArgument)), None) or "a value"
            names = " and ".join(sorted("dense" if each is None else str(each) for each in found))
            raise unsupported(f"what a loop or branch passes on must have one encoding; {carried} is {names}", op)
    if isinstance(op, DotOp):
        try:
            op.verify()
        except VerifyException as error:
            raise unsupported(str(error), op) from None
