"""decompose-sparse-tensors: replaces each sparse tensor by two dense ones, its values and its metadata.

The input is valid tile IR with sparse types (after propagate-sparsity). The output is valid tile IR without them. An
argument becomes two: values in its place, metadata right after it. The same holds for all values derived from it, up to
the dot. The dot has the metadata as its third operand, and `sparseIndex` says which operand has the values. Values are
a tensor with half the columns. Metadata is i16, with one row for 16 rows. `ir/tile/metadata.py` has its shape, and the
place of each word of `isa/metadata.py` in it.

Register tiles are lowered from this form (`compile/pipeline.py`). Products are read with sparse types, in which an operand
is a single value. `louver compile --emit decomposed` prints the result. docs/sparse-operands.md has more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntegerAttr, IntegerType, ModuleOp, TensorType, UnrealizedConversionCastOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.passages import end_of
from louver.compile.canonical.propagate_sparsity import encoding_of
from louver.compile.decompose.address_sparse_tiles import COLUMNS_OF
from louver.compile.decompose.memory import Axes, Parts, part_types, require_lifted
from louver.compile.decompose.operations import decompose_operation
from louver.compile.decompose.rejected import naming_arguments
from louver.compile.rewrite.insert import begin_with, end_with, insert
from louver.ir import tile as tt
from louver.ir.refusal import unsupported
from louver.ir.tile.function import free_name
from louver.ir.tile.types import as_tensor

_MOVES = (
    tt.AdvanceOp, tt.DecompressOp, tt.DescriptorLoadOp, tt.DotOp, tt.LoadOp, tt.MakeTensorDescriptorOp, tt.MakeTensorPtrOp, tt.ReshapeOp, tt.TransOp,
)  # fmt: skip


def decompose_sparse_tensors(module: ModuleOp, *, whole_rows: bool = False) -> ModuleOp:
    """Returns a rewritten copy, which the caller verifies. A module without sparse types does not change.

    whole_rows: rows of sparse tensors have no gaps. Their stride is then their length, and gives the length of
    metadata, also if the kernel describes only a part of a row. Otherwise the sizes in the kernel are the sizes of the
    tensors.

    Raises UnsupportedKernelError, which names operation and source line, for

    - tiles, offsets and advances that are not whole rows and words of metadata;
    - tensors whose sparse axis is not contiguous;
    - operations that do not exist for values and metadata.
    """
    copy = module.clone()
    for function in [op for op in copy.body.ops if isinstance(op, tt.FuncOp)]:
        _Decomposition(function, whole_rows).run()
    return copy


class _Decomposition:
    """Decomposes one function.

    parts: values and metadata of each sparse value.
    replaced: operations to erase at the end.
    """

    def __init__(self, function: tt.FuncOp, whole_rows: bool) -> None:
        self.function = function
        self.whole_rows = whole_rows
        self.parts: dict[SSAValue, Parts] = {}
        self.replaced: list[Operation] = []

    def run(self) -> None:
        """Rewrite the function in place."""
        function = self.function
        if any(_is_sparse_type(type_) for type_ in function.function_type.outputs):
            raise unsupported(
                "a function that returns sparse tensors is not decomposed", function, "return a dense result"
            )
        if function.body.blocks.first is None:
            if any(_is_sparse_type(type_) for type_ in function.function_type.inputs):
                raise unsupported("a declaration that takes sparse tensors is not decomposed", function, "define it")
            return
        require_lifted(function)
        self._arguments(function.body.block)
        self._block(function.body.block)
        for op in reversed(self.replaced):
            Rewriter.erase_op(op)

    def _arguments(self, block: Block) -> None:
        attributes, names = self.function.argument_attributes, list(self.function.argument_names.values())
        for index in reversed(range(len(block.args))):
            encoding = encoding_of(block.args[index])
            if encoding is not None:
                self._split_argument(block, index, self._first_axes(block.args[index].type), self.function)
                attributes.insert(index + 1, {})
                names.insert(index + 1, free_name(f"{names[index]}_metadata", names))
        self.function.take_types()
        self.function.argument_attributes = attributes
        self.function.name_arguments(dict(enumerate(names)))

    def _first_axes(self, type_: Attribute) -> Axes | None:
        """The axes of a sparse argument.

        The last dimension of a descriptor is contiguous. A pointer to elements has no axes: None.
        """
        if isinstance(type_, tt.PointerType) and as_tensor(type_.pointee) is None:
            return None
        tile = getattr(type_, "block", None)
        if not isinstance(tile, TensorType) or tile.get_num_dims() < 2:
            raise unsupported(
                "a sparse argument must be a pointer, or a descriptor of matrices",
                self.function,
                "describe [rows, columns]",
            )
        return Axes.last(tile.get_num_dims())

    def _split_argument(self, block: Block, index: int, axes: Axes | None, op: Operation) -> None:
        values, metadata = part_types(block.args[index].type, axes, op)
        argument = Rewriter.replace_value_with_new_type(block.args[index], values)
        added = block.insert_arg(metadata, index + 1)
        added.name_hint = _metadata_name(argument)
        self.parts[argument] = Parts(argument, added, axes)

    def _block(self, block: Block) -> None:
        for op in list(block.ops):
            self._operation(op)

    def _operation(self, op: Operation) -> None:
        operands = [self.parts.get(operand) for operand in op.operands]
        match op:
            case scf.YieldOp() if isinstance(op.parent_op(), scf.ForOp | scf.IfOp):
                return
            case UnrealizedConversionCastOp():
                columns = cast("IntegerAttr[IntegerType]", op.attributes[COLUMNS_OF]).value.data
                self._replace(op, Parts(op.inputs[0], op.inputs[1], Axes(1 - columns, columns)))
            case scf.ForOp() if any(operands):
                self._loop(op)
            case scf.IfOp() if any(_is_sparse_type(result.type) for result in op.results):
                self._branch(op)
            case _ if any(operands) and isinstance(op, _MOVES):
                moved = next(value for value, parts in zip(op.operands, operands, strict=True) if parts)
                with naming_arguments(self.function, moved):
                    self._replace(op, decompose_operation(op, self.parts, self.whole_rows))
            case _ if any(operands) or any(encoding_of(result) is not None for result in op.results):
                raise unsupported(
                    "a sparse tensor may only be described by block pointers or descriptors, moved, loaded and "
                    "multiplied",
                    op,
                )
            case _:
                for region in op.regions:
                    for block in region.blocks:
                        self._block(block)

    def _replace(self, op: Operation, new: Parts | SSAValue) -> None:
        """Replace the only result of `op`."""
        (old,) = op.results
        if isinstance(new, Parts):
            new.metadata.name_hint = _metadata_name(old)
            self.parts[old] = new
        else:
            old.replace_all_uses_with(new)
        (new.values if isinstance(new, Parts) else new).name_hint = old.name_hint
        self.replaced.append(op)

    def _loop(self, loop: scf.ForOp) -> None:
        carried = [self.parts.get(value) for value in loop.iter_args]
        block = loop.body.block
        for index in reversed(range(len(carried))):
            part = carried[index]
            if part is not None:
                self._split_argument(block, index + 1, part.axes, loop)
        self._block(block)
        self._end(block, loop, carried)
        self._settle(loop, begin_with(loop, self._expanded(loop.iter_args)), carried)

    def _branch(self, branch: scf.IfOp) -> None:
        regions: list[Region] = []
        carried: list[Parts | None] | None = None
        for region in branch.regions:
            block = region.block
            self._block(block)
            if carried is None:
                carried = [self.parts.get(value) for value in end_of(block).operands]
            self._end(block, branch, carried)
            body = Region()
            region.move_blocks(body)
            regions.append(body)
        assert carried is not None
        new = scf.IfOp(branch.cond, [value.type for value in end_of(regions[0].block).operands], regions[0], regions[1])
        new.attributes = dict(branch.attributes)
        insert(branch, new, branch)
        self._settle(branch, new, carried)

    def _end(self, block: Block, op: Operation, carried: Sequence[Parts | None]) -> None:
        """Yield values and metadata. Rejects `op` if it joins values with different axes."""
        end = end_of(block)
        for before, after in zip(carried, [self.parts.get(value) for value in end.operands], strict=True):
            if (before is None) != (after is None) or (before and after and before.axes != after.axes):
                raise unsupported(
                    "a value that a loop or branch passes on must be sparse along one dimension each time", op
                )
        end_with(block, self._expanded(end.operands))

    def _expanded(self, values: Sequence[SSAValue]) -> list[SSAValue]:
        """The values, with each sparse one replaced by its two parts."""
        pairs = [(value, self.parts.get(value)) for value in values]
        return [each for value, part in pairs for each in ((part.values, part.metadata) if part else (value,))]

    def _settle(self, old: Operation, new: Operation, carried: Sequence[Parts | None]) -> None:
        """Replace `old` by `new`, which has the same results, and two results for each sparse one."""
        results = iter(new.results)
        for result, part in zip(old.results, carried, strict=True):
            first = next(results)
            first.name_hint = result.name_hint
            if part is None:
                result.replace_all_uses_with(first)
            else:
                self.parts[result] = Parts(first, next(results), part.axes)
                self.parts[result].metadata.name_hint = _metadata_name(result)
        self.replaced.append(old)


def _is_sparse_type(type_: Attribute) -> bool:
    tensor = as_tensor(type_)
    inner = type_ if tensor is None or not isinstance(tensor.element_type, tt.PointerType) else tensor.element_type
    return tt.sparse_encoding(inner) is not None


def _metadata_name(value: SSAValue) -> str | None:
    return None if value.name_hint is None else f"{value.name_hint}_metadata"
