"""join-arms: computes once, before a branch, what both of its arms compute.

`if k < steps - 1: a = tl.load(p)` with `else: a = tl.load(p, mask=ok < K - k * BK, other=0.0)` becomes one load. Its
mask is that of the arm that is taken. Where the condition implies the mask of one arm, the mask stands alone: here
`ok < K - k * BK`. Operations that follow, such as a dot, are joined too if both arms have them.

A branch stays if its arms share neither a load nor all results, or if it has effects. A load in one arm stays there.
`rows = rows % M` in both arms, where one of them promises that the rows are neighbours, is no branch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.traits import is_side_effect_free
from xdsl.transforms.dead_code_elimination import would_be_trivially_dead

from louver.analysis.affine import Affine
from louver.analysis.effects import takes_any
from louver.analysis.implied import implied
from louver.analysis.integers import is_zero
from louver.analysis.passages import end_of
from louver.compile.rewrite.insert import insert, insert_before, integer, move
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.tile import DescriptorLoadOp, FuncOp, LoadOp, SplatOp
from louver.ir.tile.types import as_tensor


def join_arms(module: ModuleOp) -> None:
    """Rewrite in place, inner branches first."""
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        branches = [op for op in function.body.walk() if isinstance(op, scf.IfOp) and op.results]
        found = [each for each in reversed(branches) if _only_reads(each) and _Pairs.of(each).join()]
        if found:
            remove_dead(function)


def _only_reads(branch: scf.IfOp) -> bool:
    """Whether a branch has no effects, and reads no memory that other devices change."""
    return all(isinstance(op, scf.YieldOp) or would_be_trivially_dead(op) for op in branch.walk() if op is not branch)


_Key = tuple[object, ...]


@dataclass(slots=True)
class _Pairs:
    """The operations of a branch that both arms have.

    fellow: for each operation of the first arm, the one of the second arm, and the reverse.
    """

    branch: scf.IfOp
    affine: Affine
    fellow: dict[Operation, Operation] = field(default_factory=dict[Operation, Operation])

    @classmethod
    def of(cls, branch: scf.IfOp) -> _Pairs:
        """Find the pairs of a branch, from the first operations on."""
        pairs, same = cls(branch, Affine()), dict[SSAValue, SSAValue]()
        one, other = (region.block for region in branch.regions)
        offered = dict[_Key, list[Operation]]()
        for op in one.ops:
            offered.setdefault(_key(op, same), []).append(op)
        for op in other.ops:
            found = next((each for each in offered.get(_key(op, same), []) if pairs.may_join(each, op)), None)
            if found is not None:
                pairs.fellow |= {found: op, op: found}
                same |= zip(op.results, found.results, strict=True)
        return pairs

    def may_join(self, one: Operation, other: Operation) -> bool:
        """Whether two operations with equal keys can become one before the branch."""
        if one in self.fellow or one.regions or isinstance(one, scf.YieldOp):
            return False
        if not isinstance(one, LoadOp) or not isinstance(other, LoadOp):
            return True
        fills = [each.other for each in (one, other) if each.other is not None]
        if fills and any(fill is not fills[0] and not (is_zero(fill) and is_zero(fills[0])) for fill in fills):
            return False
        return all(self._is_free(each) for load in (one, other) for each in load.operands[1:])

    def _is_free(self, value: SSAValue) -> bool:
        """Whether a value can be computed before the branch, also if its arm is not taken."""
        op = value.owner
        if not self._is_inside(op) or op in self.fellow:
            return True
        assert isinstance(op, Operation)
        free = not op.regions and is_side_effect_free(op) and takes_any(op)
        return free and all(map(self._is_free, op.operands))

    def _is_inside(self, op: Operation | Block) -> bool:
        return (
            op.parent_block() in [region.block for region in self.branch.regions]
            if isinstance(op, Operation)
            else False
        )

    def join(self) -> bool:
        """Join the pairs, if loads or all results are among them. Returns whether they are."""
        loads = any(isinstance(op, LoadOp | DescriptorLoadOp) for op in self.fellow)
        if not loads and not self._are_equal():
            return False
        for op in list(self.branch.true_region.block.ops):
            if op in self.fellow:
                self._lift(op)
        ends = [end_of(region.block).operands for region in self.branch.regions]
        for result, one, other in zip(self.branch.results, *ends, strict=True):
            if one is other:
                result.replace_all_uses_with(one)
        if not any(result.first_use for result in self.branch.results):
            Rewriter.erase_op(self.branch)
        return True

    def _are_equal(self) -> bool:
        """Whether both arms give the same results."""
        ends = [end_of(region.block).operands for region in self.branch.regions]
        return all(one is other or self._is_fellow(one, other) for one, other in zip(*ends, strict=True))

    def _is_fellow(self, one: SSAValue, other: SSAValue) -> bool:
        op = one.owner
        if not isinstance(op, Operation) or op not in self.fellow:
            return False
        pairs = zip(op.results, self.fellow[op].results, strict=True)
        return any(a is one and b is other for a, b in pairs)

    def _lift(self, op: Operation | Block) -> None:
        """Move an operation of an arm, and those that it needs, before the branch. Its fellow is removed."""
        if not self._is_inside(op):
            return
        assert isinstance(op, Operation)
        fellow = self.fellow.get(op)
        for value in [*op.operands, *(() if fellow is None else fellow.operands)]:
            self._lift(value.owner)
        if isinstance(op, LoadOp) and isinstance(fellow, LoadOp):
            self._load(op, fellow)
            return
        move(self.branch, op)
        if fellow is not None:
            Rewriter.replace_op(fellow, [], op.results)

    def _load(self, op: LoadOp, fellow: LoadOp) -> None:
        """Replace a load of each arm by one before the branch."""
        one, other = (op, fellow) if op.parent is self.branch.true_region.block else (fellow, op)
        new = LoadOp(op.ptr, self._mask(one, other), one.other or other.other)
        kept = {name: value for name, value in op.properties.items() if name != "operandSegmentSizes"}
        new.properties |= kept
        new.result.name_hint = op.result.name_hint
        insert(self.branch, new, op)
        for each in (op, fellow):
            Rewriter.replace_op(each, [], [new.result])

    def _mask(self, one: LoadOp, other: LoadOp) -> SSAValue | None:
        """The mask of the arm that is taken. one, other: the loads of the arms."""
        for load, fellow, holds in ((one, other, True), (other, one, False)):
            if self._suffices(fellow, load, holds=holds):
                return fellow.mask
        taken = self._filled(self.branch.cond, one)
        free = self._made(arith.XOrIOp(self.branch.cond, integer(self.branch, 1, self.branch.cond.type)))
        parts = [
            condition if load.mask is None else self._made(arith.AndIOp(condition, load.mask))
            for condition, load in ((taken, one), (self._filled(free, one), other))
        ]
        return self._made(arith.OrIOp(parts[0], parts[1]))

    def _suffices(self, wide: LoadOp, load: LoadOp, *, holds: bool) -> bool:
        """Whether the mask of a load is as good as that of its fellow `load`, where the condition is `holds`."""
        mine, others = set(_conditions(wide.mask)), set(_conditions(load.mask))
        tensor = as_tensor(load.result.type)
        shape = () if tensor is None else tensor.get_shape()
        return others <= mine and all(
            implied(each, self.branch.cond, holds=holds, shape=shape, user=load, affine=self.affine)
            for each in mine - others
        )

    def _filled(self, condition: SSAValue, load: LoadOp) -> SSAValue:
        """A condition in the shape of a load's mask."""
        tensor = as_tensor(load.result.type)
        return condition if tensor is None else self._made(SplatOp(condition, tensor.get_shape()))

    def _made(self, op: Operation) -> SSAValue:
        return insert_before(self.branch, op)


def _key(op: Operation, same: dict[SSAValue, SSAValue]) -> _Key:
    """Equal for operations with equal results. For loads, also for those that differ in masks and in what they fill in."""
    properties: dict[str, Attribute] = dict(op.properties)
    operands = list(op.operands)
    if isinstance(op, LoadOp):
        operands = operands[:1]
        properties.pop("operandSegmentSizes")
    values = tuple(same.get(each, each) for each in operands)
    types = tuple(result.type for result in op.results)
    return op.name, values, types, frozenset(properties.items()), frozenset(op.attributes.items())


def _conditions(mask: SSAValue | None) -> Iterator[SSAValue]:
    """The conditions whose conjunction a mask is."""
    if mask is None:
        return
    if isinstance(mask.owner, arith.AndIOp):
        for each in mask.owner.operands:
            yield from _conditions(each)
    else:
        yield mask
