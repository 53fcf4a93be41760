"""propagate-sparsity: propagates sparse encodings from marked arguments to pointers, tiles, loop-carried values and
products.

The input is valid tile IR in which an attribute marks an argument as sparse. The output is valid tile IR in which the
types of the argument and of all values derived from it have the encoding. Operations that compute with the elements of
a tile get a decompressed tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, TensorType
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import VerifyException

from louver.analysis.passages import passages, passed_to
from louver.compile.canonical.turn_across import mark_across
from louver.frontend.ttir import SPARSE_MARK
from louver.ir import tile as tt
from louver.ir.comparisons import SelectOp
from louver.ir.refusal import unsupported
from louver.ir.tile.types import as_tensor, tensor_of

_KEEPS = (
    tt.AddPtrOp, tt.AdvanceOp, tt.BroadcastOp, tt.DescriptorLoadOp, tt.ExpandDimsOp, tt.LoadOp, tt.MakeTensorDescriptorOp, tt.MakeTensorPtrOp, tt.SplatOp,
)  # fmt: skip
"""Operations whose result has the encoding of their first operand, which is an address."""


def propagate_sparsity(module: ModuleOp) -> None:
    """Give every value its encoding, in place. Without a marked argument nothing changes.

    A tile stays sparse if it is loaded, transposed, reshaped in its leading dimensions, or carried by loops and
    branches. A dot multiplies a sparse tile. All other operations use the dense result of `tt.decompress`.

    Raises UnsupportedKernelError if a loop or branch joins addresses with different encodings. Raises it also for
    operations on the addresses of a sparse tensor, except moves and loads.
    """
    for function in [op for op in module.body.ops if isinstance(op, tt.FuncOp)]:
        marked = _mark_arguments(function)
        if marked:
            _give(function, _find(function, marked))


def marked_sparse(function: tt.FuncOp) -> dict[str, tt.SparseAttr]:
    """The encodings of the arguments that are sparse, by a mark or by their type; by name."""
    found: dict[str, tt.SparseAttr] = {}
    for (argument, name), attributes in zip(function.argument_names.items(), function.argument_attributes, strict=True):
        encoding = encoding_of(argument)
        marks = [each.removeprefix(SPARSE_MARK) for each in attributes if each.startswith(SPARSE_MARK)]
        if encoding is not None or marks:
            found[name] = encoding or _named(marks[0], function)
    return found


def sparse_arguments(function: tt.FuncOp) -> set[SSAValue]:
    """The arguments that are sparse, by a mark or by their type."""
    names = marked_sparse(function)
    return {value for value, name in function.argument_names.items() if name in names}


def require_multiplied(module: ModuleOp) -> None:
    """require-multiplied: rejects a sparse tile with a use other than a dot. A warpgroup product cannot compute it."""
    for op in module.walk():
        if isinstance(op, tt.DecompressOp):
            use = next(iter(op.result.uses)).operation
            raise unsupported(
                "a product may only multiply its sparse tile, as it was loaded",
                use,
                "scale the sums behind the dot instead",
                always=True,
            )


def encoded(type_: Attribute, encoding: tt.SparseAttr) -> Attribute:
    """A pointer, descriptor or tensor type (also of pointers) with the encoding.

    Raises VerifyException if it cannot have it.
    """
    match type_:
        case tt.DescriptorType():
            return tt.DescriptorType(_encoded_tensor(type_.block, encoding))
        case tt.PointerType():
            tile = as_tensor(type_.pointee)
            return (
                tt.PointerType(type_.pointee, encoding)
                if tile is None
                else tt.PointerType(_encoded_tensor(tile, encoding))
            )
        case _:
            tensor = as_tensor(type_)
            if tensor is None:
                raise VerifyException(f"pointers, descriptors and tensors may be sparse, got {type_}")
            if isinstance(tensor.element_type, tt.PointerType):
                return TensorType(encoded(tensor.element_type, encoding), tensor.get_shape())
            return _encoded_tensor(tensor, encoding)


def encoding_of(value: SSAValue) -> tt.SparseAttr | None:
    """The encoding of a value, or of the tensor to which a tensor of pointers points."""
    tensor = as_tensor(value.type)
    if tensor is not None and isinstance(tensor.element_type, tt.PointerType):
        return tt.sparse_encoding(tensor.element_type)
    return tt.sparse_encoding(value.type)


def _encoded_tensor(tensor: TensorType[Attribute], encoding: tt.SparseAttr) -> TensorType[Attribute]:
    return TensorType(tensor.element_type, tensor.get_shape(), encoding)


def _mark_arguments(function: tt.FuncOp) -> dict[SSAValue, tt.SparseAttr]:
    """The arguments that are marked as sparse. Their marks are replaced by types with an encoding."""
    found: dict[SSAValue, tt.SparseAttr] = {}
    across: list[str] = []
    kept, names = function.argument_attributes, list(function.argument_names.values())
    for argument, attributes, name in zip(function.body.block.args, kept, names, strict=True):
        for mark in [name for name in attributes if name.startswith(SPARSE_MARK)]:
            axis = attributes.pop(mark)
            if isinstance(axis, IntegerAttr) and axis.value.data == 2:
                across.append(name)
            encoding = _named(mark.removeprefix(SPARSE_MARK), function)
            found[_encode(argument, encoding, function)] = encoding
    if found:
        function.take_types()
        function.argument_attributes = kept
    mark_across(function, across)
    return found


def _named(name: str, function: tt.FuncOp) -> tt.SparseAttr:
    try:
        return tt.SparseAttr(StringAttr(name))
    except VerifyException as error:
        raise unsupported(str(error), function) from None


def _encode(value: SSAValue, encoding: tt.SparseAttr, user: Operation) -> SSAValue:
    """Give a value an encoding. Rejects `user` if its type cannot have it."""
    try:
        return Rewriter.replace_value_with_new_type(value, encoded(value.type, encoding))
    except VerifyException as error:
        raise unsupported(str(error), user) from None


def is_address(value: SSAValue) -> bool:
    """Whether a value is a pointer, a descriptor or a tensor of pointers, rather than a tile of numbers."""
    tensor = as_tensor(value.type)
    return tensor is None or isinstance(tensor.element_type, tt.PointerType)


Encodings: TypeAlias = dict[SSAValue, tt.SparseAttr]


def _find(function: tt.FuncOp, marked: Encodings) -> Encodings:
    """The encoding of each value that has one.

    A tile that a loop or branch carries is dense if any of its sources is dense.
    """
    dense: set[SSAValue] = set()
    while True:
        found = _spread(marked, dense)
        mixed: set[SSAValue] = set()
        for op in function.body.walk():
            for passage in passages(op) if isinstance(op, scf.ForOp | scf.IfOp) else ():
                group = (*passage.sources, *passage.names)
                names = {found.get(value) for value in group}
                if len(names) > 1:
                    _require_tiles(group, names, op)
                    mixed.update(value for value in group if value in found)
        passed_on = {value for value in mixed if not isinstance(value.owner, Operation) or value.owner.regions}
        if passed_on <= dense:
            return found
        dense |= passed_on


def _require_tiles(group: Sequence[SSAValue], names: set[tt.SparseAttr | None], op: Operation) -> None:
    """Reject addresses with different encodings that a loop or branch joins."""
    if is_address(group[0]):
        carried = next((value.name_hint for value in group if isinstance(value, BlockArgument)), None) or "a value"
        text = " and ".join(sorted("dense" if each is None else str(each) for each in names))
        raise unsupported(
            f"a value that a loop or branch passes on must have one encoding; {carried} is {text}",
            op,
            "pass sparse arguments, or dense ones, to both sides",
        )


def _spread(marked: Encodings, dense: set[SSAValue]) -> Encodings:
    found = dict(marked)
    pending = list(marked)
    while pending:
        value = pending.pop()
        for use in value.uses:
            for result in _results(use.operation, use.index):
                known = found.get(result)
                if known is None and result not in dense:
                    found[result] = found[value]
                    pending.append(result)
                elif known is not None and known != found[value]:
                    raise unsupported(
                        f"values that meet must have one encoding, not {known} and {found[value]}", use.operation
                    )
    return found


def _results(op: Operation, index: int) -> Sequence[SSAValue]:
    """The results that have the same encoding as operand `index`."""
    match op:
        case scf.ForOp() | scf.YieldOp():
            return passed_to(op, index)
        case tt.TransOp():
            return op.results
        case tt.ReshapeOp(src=source, result=result):
            return op.results if _same_matrix(source, result) else ()
        case tt.StoreOp() | tt.DescriptorStoreOp() | tt.DescriptorReduceOp() if index == 0:
            raise unsupported("a sparse tensor cannot be stored to", op, "store the result to a dense array")
        case SelectOp() if is_address(op.result):
            raise unsupported(
                "a sparse tile is of one argument, which no condition chooses",
                op,
                "join the tensors to one, and choose an offset: w + tl.where(condition, 0, part) + …",
            )
        case _ if not is_address(op.operands[index]):
            return ()
        case _ if isinstance(op, _KEEPS) and index == 0:
            return op.results
        case _:
            pass
    raise unsupported(
        "a pointer or descriptor of a sparse tensor may only be moved and loaded through",
        op,
        "load the tile as it is stored, and convert the tile",
    )


def _same_matrix(source: SSAValue, result: SSAValue) -> bool:
    """Whether a reshape keeps rows and columns, the last two dimensions."""
    before, after = tensor_of(source).get_shape(), tensor_of(result).get_shape()
    return len(after) > 1 and before[-2:] == after[-2:]


def _give(function: tt.FuncOp, found: Encodings) -> None:
    """Give values their encodings, and give decompressed tiles to operations that need dense tiles."""
    known = {
        _encode(value, encoding, value.owner if isinstance(value.owner, Operation) else function)
        for value, encoding in found.items()
    }
    made: dict[SSAValue, SSAValue] = {}
    for op in list(function.body.walk()):
        for index, operand in enumerate(op.operands):
            if operand in known and not is_address(operand) and not _takes(op, index, known):
                op.operands[index] = _decompressed(operand, made)
        if isinstance(op, tt.DotOp):
            try:
                op.verify()
            except VerifyException as error:
                raise unsupported(str(error), op) from None


def _takes(op: Operation, index: int, known: set[SSAValue]) -> bool:
    """Whether an operation accepts a sparse tile as operand `index`."""
    if isinstance(op, tt.DotOp):
        # A product has one sparse operand.
        return index == 0 or (index == 1 and op.a not in known)
    return any(result in known for result in _results(op, index))


def _decompressed(value: SSAValue, made: dict[SSAValue, SSAValue]) -> SSAValue:
    """The dense tile, decompressed right after the sparse one."""
    if value not in made:
        op = tt.DecompressOp(value)
        place = (
            InsertPoint.after(value.owner) if isinstance(value.owner, Operation) else InsertPoint.at_start(value.owner)
        )
        op.location = value.owner.location if isinstance(value.owner, Operation) else _parent(value.owner).location
        Rewriter.insert_op(op, place)
        op.result.name_hint = value.name_hint
        made[value] = op.result
    return made[value]


def _parent(block: Block) -> Operation:
    parent = block.parent_op()
    assert parent is not None
    return parent
