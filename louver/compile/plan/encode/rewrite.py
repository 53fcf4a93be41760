"""Rewrites a function so that each tile has its encodings, with conversions between them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, LocationAttr, ModuleOp, TensorType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from louver.analysis.passages import end_of
from louver.compile.plan.encode.anchors import Anchor, Natures, choose_warps, is_tile
from louver.compile.plan.encode.demand import anchored_operands, multiplied_operands, operand_encodings
from louver.compile.plan.encode.stores import layouts_of_accesses
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.refusal import unsupported
from louver.ir.tile import CompressOp, ConvertLayoutOp, DecompressOp, DotOp, FuncOp, LoadOp, SharedAttr, StoreOp
from louver.ir.tile.encodings import Encoding
from louver.ir.tile.layout import Vector
from louver.ir.tile.types import as_tensor, tensor_of

_Anchored: TypeAlias = StoreOp | DotOp | Anchor


def assign_encodings(
    module: ModuleOp,
    warps: int | None = None,
    *,
    registers: int,
    staged: bool = True,
    warpgroups: bool = True,
    copied: bool = False,
) -> ModuleOp:
    """Returns a copy of the module in which every tensor has an encoding.

    module: valid tile IR without sparse types, block pointers and descriptors (after expand-blocks).
    warps: warps of a CTA, a power of two; None to choose them from the kernel's dots.
    registers: registers of an SM, which the threads of a CTA share.
    staged: whether operands of dots may go through shared memory.
    warpgroups: whether the target has warpgroup products.
    copied: whether ring-copies follows, so that further tiles go through shared memory.

    Rejects operations that cannot be computed on tiles in registers, with operation and source line.
    """
    made = module.clone_without_regions()
    made.body.add_block(Block())
    for op in module.body.ops:
        if not isinstance(op, FuncOp) or not op.is_public:
            made.body.block.add_op(op.clone())
            continue
        _check_shapes(op)
        count = choose_warps(op, warpgroups=warpgroups) if warps is None else warps
        natures = Natures(op, count, registers=registers, staged=staged, warpgroups=warpgroups, copied=copied)
        function = op.clone_without_regions()
        made.body.block.add_op(function)
        function.body.add_block(_Rewrite(op, natures).made())
        remove_dead(function)
    return made


def _check_shapes(function: FuncOp) -> None:
    for op in function.body.walk():
        for value in op.results:
            tensor = as_tensor(value.type)
            if tensor is not None and any(size < 1 or size & (size - 1) for size in tensor.get_shape()):
                raise unsupported("the sizes of a tile are powers of two", op)


class _Rewrite:
    """Makes one function anew. known: the new value of each tile in each encoding, and of each scalar with encoding None."""

    def __init__(self, function: FuncOp, natures: Natures) -> None:
        self.function = function
        self.natures = natures
        self.demands = layouts_of_accesses(function, self.natures)
        self.known: dict[tuple[SSAValue, Encoding | None], SSAValue] = {}

    def made(self) -> Block:
        """The function's block, made anew."""
        old = self.function.body.block
        new = Block(arg_types=old.arg_types)
        for before, after in zip(old.args, new.args, strict=True):
            after.name_hint = before.name_hint
            self.known[before, None] = after
        self._block(old, new)
        return new

    def _get(self, value: SSAValue, encoding: Encoding | None) -> SSAValue:
        return self.known[value, encoding if is_tile(value) else None]

    def _block(self, old: Block, new: Block) -> None:
        for op in old.ops:
            match op:
                case scf.ForOp():
                    self._for(op, new)
                case scf.IfOp():
                    self._if(op, new)
                case scf.WhileOp():
                    self._while(op, new)
                case scf.YieldOp() | scf.ConditionOp():
                    return
                case _ if isinstance(op, _Anchored):
                    self._anchor(op, new)
                case CompressOp() | DecompressOp():
                    self._in_groups(op, new)
                case LoadOp() if is_tile(op.result) and not self.natures.keeps(op.result):
                    self._loaded(op, new)
                case _ if any(map(is_tile, op.results)):
                    for encoding in dict.fromkeys(each for value in op.results for each in self.demands.made(value)):
                        self._computed(op, encoding, new)
                case _:
                    self._scalar(op, new)

    def _scalar(self, op: Operation, new: Block) -> None:
        if any(map(is_tile, op.operands)):
            raise unsupported(f"{op.name} is not computed on tiles in registers", op)
        made = self._place(op, [self.known[each, None] for each in op.operands], [r.type for r in op.results], new)
        for before, after in zip(op.results, made.results, strict=True):
            self.known[before, None] = after

    def _computed(self, op: Operation, encoding: Encoding, new: Block) -> None:
        wanted = dict(operand_encodings(op, encoding))
        operands = [self._get(each, wanted.get(each)) for each in op.operands]
        made = self._place(op, operands, [_encoded(result.type, encoding) for result in op.results], new)
        for before, after in zip(op.results, made.results, strict=True):
            if before in self.natures.copied:
                self._taken(before, after, new)
            elif self.natures.keeps(before) and not isinstance(op, CompressOp | DecompressOp):
                self._known(before, {encoding: after}, new)
            else:
                self.known[before, encoding] = after

    def _in_groups(self, op: CompressOp | DecompressOp, new: Block) -> None:
        made: dict[Encoding | None, SSAValue] = {}
        for encoding in self.demands.made(op.result):
            self._computed(op, encoding, new)
            made[encoding] = self.known[op.result, encoding]
        self._known(op.result, made, new)

    def _loaded(self, op: LoadOp, new: Block) -> None:
        """Load a tile once for all encodings by which each thread has the same elements."""
        shape, found = tensor_of(op.result).get_shape(), dict[tuple[Vector, ...], Encoding]()
        for encoding in self.demands.made(op.result):
            own = encoding.layout(shape).thread
            if own not in found:
                self._computed(op, encoding, new)
                found[own] = encoding
            elif (op.result, encoding) not in self.known:
                there = self.known[op.result, found[own]]
                self.known[op.result, encoding] = self._converted(there, encoding, op.result, new)

    def _anchor(self, op: Operation, new: Block) -> None:
        pairs = anchored_operands(op, self.natures)
        wanted = [encoding for _, encoding in pairs] or [None] * len(op.operands)
        operands = [self._get(each, encoding) for each, encoding in zip(op.operands, wanted, strict=True)]
        if isinstance(op, DotOp):
            operands = self._from_shared(op, operands, new)
        natures = [self.natures.of(result) for result in op.results]
        types = [
            result.type if nature is None else _encoded(result.type, nature)
            for result, nature in zip(op.results, natures, strict=True)
        ]
        made = self._place(op, operands, types, new)
        for before, nature, after in zip(op.results, natures, made.results, strict=True):
            given: dict[Encoding | None, SSAValue] = {nature: after}
            if (exchanged := self.natures.exchanged(before)) is not None:
                # One exchange serves all users.
                given = {exchanged: self._converted(after, exchanged, before, new), **given}
            self._known(before, given, new)

    def _from_shared(self, op: DotOp, operands: Sequence[SSAValue], new: Block) -> list[SSAValue]:
        """The operands of a dot. Operands that are needed in registers are loaded from shared memory right before it."""
        found: list[SSAValue] = []
        for (value, encoding), operand in zip(multiplied_operands(op, self.natures), operands, strict=True):
            taken = value in self.natures.staged and not isinstance(encoding, SharedAttr)
            found.append(self._converted(operand, encoding, value, new) if taken else operand)
        return found

    def _converted(self, given: SSAValue, encoding: Encoding, value: SSAValue, new: Block) -> SSAValue:
        """Convert `given`, the new value of `value`, to an encoding."""
        convert = ConvertLayoutOp(given, encoding)
        convert.location = _location(value)
        new.add_op(convert)
        convert.result.name_hint = value.name_hint
        return convert.result

    def _known(self, value: SSAValue, given: dict[Encoding | None, SSAValue], new: Block) -> None:
        """Record the new values of a value in some encodings, and convert them to the other encodings that users need."""
        for encoding, after in given.items():
            self.known[value, encoding] = after
        for encoding in self.demands.of(value) if is_tile(value) else ():
            if encoding not in given:
                self.known[value, encoding] = self._converted(next(iter(given.values())), encoding, value, new)

    def _taken(self, value: SSAValue, loaded: SSAValue, new: Block) -> None:
        """Record the new values of a tile that is copied to shared memory.

        Each encoding that users need is read from there.
        """
        memory = SharedAttr.along(self.natures.copied[value][1], rank=len(tensor_of(loaded).get_shape()))
        there = self._converted(loaded, memory, value, new)
        self.known[value, memory] = there
        for encoding in self.demands.of(value):
            if encoding == memory:
                continue
            taken = self.natures.of(value) if isinstance(encoding, SharedAttr) else encoding
            assert taken is not None
            found = self._converted(there, taken, value, new)
            self.known[value, encoding] = found if taken == encoding else self._converted(found, encoding, value, new)

    def _place(self, op: Operation, operands: Sequence[SSAValue], types: Sequence[Attribute], new: Block) -> Operation:
        """Add the same operation on these operands to the end of `new`."""
        properties = dict(op.properties)
        if isinstance(op, arith.ConstantOp) and isinstance(op.value, DenseIntOrFPElementsAttr):
            properties["value"] = DenseIntOrFPElementsAttr(types[0], op.value.data)  # type: ignore[arg-type]
        made = type(op).create(
            operands=operands,
            result_types=types,
            properties=properties,
            attributes=dict(op.attributes),
            regions=[self._region(region) for region in op.regions],
        )
        made.location = op.location
        for before, after in zip(op.results, made.results, strict=True):
            after.name_hint = before.name_hint
        new.add_op(made)
        return made

    def _region(self, region: Region) -> Region:
        """A copy of a region on scalars. Values from outside are replaced by their new values."""
        mapper = {value: after for (value, encoding), after in self.known.items() if encoding is None}
        copy = Region()
        region.clone_into(copy, None, mapper)
        return copy

    # --- control flow ----------------------------------------------------------------------------------------------
    def _encodings(self, *places: SSAValue) -> Sequence[Encoding | None]:
        return self.demands.carried(*places) if is_tile(places[0]) else [None]

    def _open(self, old: Sequence[SSAValue], encodings: Sequence[Sequence[Encoding | None]], block: Block) -> None:
        """Add an argument to the block for each old value in each of its encodings."""
        given: list[dict[Encoding | None, SSAValue]] = []
        for value, each in zip(old, encodings, strict=True):
            found: dict[Encoding | None, SSAValue] = {}
            for encoding in each:
                type_ = value.type if encoding is None else _encoded(value.type, encoding)
                found[encoding] = block.insert_arg(type_, len(block.args))
                found[encoding].name_hint = value.name_hint
            given.append(found)
        for value, found in zip(old, given, strict=True):
            if found:
                self._known(value, found, block)

    def _spread(self, values: Iterable[SSAValue], encodings: Sequence[Sequence[Encoding | None]]) -> list[SSAValue]:
        pairs = zip(values, encodings, strict=True)
        return [self._get(value, encoding) for value, each in pairs for encoding in each]

    def _close(self, old: Block, new: Block, encodings: Sequence[Sequence[Encoding | None]]) -> None:
        end = end_of(old)
        made = scf.YieldOp(*self._spread(end.operands, encodings))
        made.location = end.location
        new.add_op(made)

    def _results(
        self, op: Operation, made: Operation, encodings: Sequence[Sequence[Encoding | None]], new: Block
    ) -> None:
        made.location, made.attributes = op.location, dict(op.attributes)
        new.add_op(made)
        results = iter(made.results)
        for before, each in zip(op.results, encodings, strict=True):
            found: dict[Encoding | None, SSAValue] = {encoding: next(results) for encoding in each}
            for after in found.values():
                after.name_hint = before.name_hint
            if found:
                self._known(before, found, new)

    def _for(self, op: scf.ForOp, new: Block) -> None:
        old = op.body.block
        encodings = [self._encodings(*pair) for pair in zip(old.args[1:], op.results, strict=True)]
        given = self._spread(op.iter_args, encodings)
        block = Block(arg_types=[old.args[0].type])
        block.args[0].name_hint = old.args[0].name_hint
        self.known[old.args[0], None] = block.args[0]
        self._open(old.args[1:], encodings, block)
        self._block(old, block)
        self._close(old, block, encodings)
        bounds = [self.known[each, None] for each in (op.lb, op.ub, op.step)]
        self._results(op, scf.ForOp(bounds[0], bounds[1], bounds[2], given, Region(block)), encodings, new)

    def _if(self, op: scf.IfOp, new: Block) -> None:
        encodings = [self._encodings(result) for result in op.results]
        regions: list[Region] = []
        for region in op.regions:
            if region.blocks:
                block = Block()
                self._block(region.block, block)
                self._close(region.block, block, encodings)
                regions.append(Region(block))
            else:
                regions.append(Region())
        types = [
            result.type if encoding is None else _encoded(result.type, encoding)
            for result, each in zip(op.results, encodings, strict=True)
            for encoding in each
        ]
        made = scf.IfOp(self.known[op.cond, None], types, regions[0], regions[1])
        self._results(op, made, encodings, new)

    def _while(self, op: scf.WhileOp, new: Block) -> None:
        def fixed(values: Sequence[SSAValue]) -> list[list[Encoding | None]]:
            return [[self.natures.default(value)] if is_tile(value) else [None] for value in values]

        before, after = op.before_region.block, op.after_region.block
        carried, passed = fixed(before.args), fixed(after.args)
        given = self._spread(op.arguments, carried)
        blocks = Block(), Block()
        self._open(before.args, carried, blocks[0])
        self._block(before, blocks[0])
        end = before.last_op
        assert isinstance(end, scf.ConditionOp)
        values = self._spread(end.operands[1:], passed)
        condition = scf.ConditionOp(self.known[end.condition, None], *values)
        condition.location = end.location
        blocks[0].add_op(condition)
        self._open(after.args, passed, blocks[1])
        self._block(after, blocks[1])
        self._close(after, blocks[1], carried)
        made = scf.WhileOp(given, [value.type for value in values], Region(blocks[0]), Region(blocks[1]))
        self._results(op, made, passed, new)


@functools.lru_cache(maxsize=1024)
def _encoded(type_: Attribute, encoding: Encoding) -> Attribute:
    """A type with an encoding. A kernel has thousands of tiles of few types: to make one anew takes longer than to find it."""
    tensor = as_tensor(type_)
    if tensor is None:
        return type_
    return TensorType(tensor.element_type, tensor.get_shape(), encoding)


def _location(value: SSAValue) -> LocationAttr:
    owner = value.owner
    if isinstance(owner, Operation):
        return owner.location
    parent = owner.parent_op()
    assert parent is not None
    return parent.location
