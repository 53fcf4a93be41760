"""multiply-kept: changes a dot of a decompressed tile to a sparse product, if the operations before the dot map zeros
to zero.

Casts, factors, masks and activations with f(0) = 0 are then applied to kept values only. Dense tiles in these
operations, such as factors along K, are compressed: each thread selects the elements that the metadata keeps. A sum
along K of such a tile adds only kept values. Other dots stay dense, and the pass gives the reason. Input and output are
valid tile IR without sparse types (after decompose-sparse-tensors).

Metadata of 16-bit and of 8-bit products has the same codes in different orders. If all dots of an argument have another
width than its elements, the metadata is laid out for the dots.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, cast

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, FixedBitwidthType, IntegerAttr, TensorType, i32
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.effects import is_elementwise
from louver.analysis.passages import came_from
from louver.compile.decompose.flat_sums import flat_sum, reshaped_back
from louver.compile.rewrite.insert import insert
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir import tile as tt
from louver.ir.comparisons import SelectOp
from louver.ir.computed import CODES
from louver.ir.interpret.arithmetic import ARITHMETIC
from louver.ir.interpret.values import dtype_of
from louver.ir.refusal import source_location
from louver.ir.tile.metadata import divides
from louver.ir.tile.parts import KEPT
from louver.ir.tile.types import as_tensor, element_bits, first_of, is_splat, tensor_of
from louver.ir.walk import each_once
from louver.isa.metadata import MAPS


@dataclass(frozen=True, slots=True)
class Multiplied:
    """The result of multiply-kept.

    layouts: for each metadata argument with another layout, the element type of its dots.
    dense: for each dense dot of a sparse tile, the reason.
    """

    layouts: dict[SSAValue, Attribute]
    dense: tuple[str, ...]


def multiply_kept(function: tt.FuncOp) -> Multiplied:
    """Rewrite in place."""
    found: list[_Kept] = []
    reasons: list[str] = []
    widths: dict[SSAValue, set[int]] = {}
    for op in [op for op in function.body.walk() if isinstance(op, tt.DotOp)]:
        if op.metadata is not None and op.sparse_index is not None:
            widths.setdefault(_root(op.metadata), set()).add(element_bits(op.operands[op.sparse_index.value.data].type))
            continue
        for index in (0, 1):
            kept = _Kept(op, index)
            reason = kept.refusal()
            if reason is None:
                found.append(kept)
                widths.setdefault(_root(kept.origin.operands[1]), set()).add(element_bits(op.operands[index].type))
                break
            if any(sparse_origins(op.operands[index], 1 - index)):
                reasons.append(f"{_where(op)}a sparse tile is multiplied as a dense one: {reason}")
    layouts: dict[SSAValue, Attribute] = {}
    for kept in found:
        root, own = _root(kept.origin.operands[1]), element_bits(kept.origin.src.type)
        if widths[root] not in ({own}, {kept.bits}) and kept.bits != own:
            reasons.append(
                f"{_where(kept.op)}a sparse tile is multiplied as a dense one: its tensor is multiplied in "
                f"{' and '.join(map(str, sorted(widths[root])))} bits, and metadata is laid out for one of them"
            )
            continue
        if kept.bits != own and function.argument_names[root].endswith(CODES):
            reasons.append(
                f"{_where(kept.op)}a sparse tile is multiplied as a dense one: codes at computed addresses are those of {own}-bit "
                f"elements, and it is multiplied in {kept.bits} bits"
            )
            continue
        if kept.bits != own:
            layouts[root] = tensor_of(kept.op.operands[kept.index]).element_type
        kept.multiply()
    for op in [op for op in function.body.walk() if isinstance(op, tt.ReduceOp) and _is_sum(op)]:
        flat = flat_sum(op)
        summed = _Kept(flat or op, 0)
        if summed.refusal() is None:
            summed.add()
            if flat is not None:
                Rewriter.replace_op(op, [], [reshaped_back(flat, op)])
    for op in function.body.walk():
        if (
            isinstance(op, tt.DecompressOp | tt.CompressOp)
            and op.metadata is not None
            and (element := layouts.get(_root(op.metadata)))
        ):
            op.properties["bits"] = IntegerAttr(element_bits(element), i32)
    remove_dead(function)
    return Multiplied(layouts, tuple(dict.fromkeys(reasons)))


def _is_sum(op: tt.ReduceOp) -> bool:
    """Whether a reduction adds the elements of one tile."""
    block = op.combine.block
    adds, end = block.first_op, block.last_op
    if len(op.srcs) != 1 or not isinstance(adds, arith.AddfOp | arith.AddiOp) or end is None:
        return False
    return set(adds.operands) == set(block.args) and list(end.operands) == list(adds.results)


def _where(op: Operation) -> str:
    found = source_location(op.location)
    return "" if found is None else f"{found}: "


def _root(value: SSAValue) -> SSAValue:
    """The argument from which a tile, pointer or descriptor of metadata comes."""
    while sources := came_from(value) or (value.owner.operands if isinstance(value.owner, Operation) else ()):
        value = sources[0]
    return value


def sparse_origins(value: SSAValue, columns: int) -> Iterator[tuple[tt.DecompressOp, int]]:
    """The sparse tiles from which a tile is computed by elementwise operations.

    Each comes with the dimension that corresponds to dimension `columns` of the tile.
    """
    pending = [(value, columns)]
    for each, columns in each_once(pending):
        owner = each.owner
        if isinstance(owner, tt.DecompressOp) and owner.columns is not None:
            yield owner, columns
        elif isinstance(owner, tt.TransOp):
            pending.append((owner.src, 1 - columns))
        elif is_elementwise(owner):
            pending += ((operand, columns) for operand in reversed(owner.operands))


def _is_uniform(value: SSAValue, columns: int) -> bool:
    """Whether the elements of a tile are known to be equal along a dimension."""
    pending = [(value, columns)]
    for each, columns in each_once(pending):
        match each.owner:
            case tt.SplatOp():
                pass
            case arith.ConstantOp(value=DenseIntOrFPElementsAttr() as number) if is_splat(number):
                pass
            case tt.BroadcastOp(src=source) if tensor_of(source).get_shape()[columns] == 1:
                pass
            case tt.TransOp(src=source):
                pending.append((source, 1 - columns))
            case Operation() as owner if is_elementwise(owner):
                pending += ((operand, columns) for operand in owner.operands if as_tensor(operand.type) is not None)
            case _:
                return False
    return True


def _widens(op: Operation) -> bool:
    """Whether an operation only widens the elements of one tile."""
    tiles = [as_tensor(each.type) for each in (*op.operands, *op.results)]
    types = [tile.element_type for tile in tiles if tile is not None]
    wide = [each.bitwidth for each in types if isinstance(each, FixedBitwidthType)]
    return is_elementwise(op) and len(tiles) == len(wide) == 2 and wide[0] < wide[1]


class _DenseError(Exception):
    """The reason for which a tile cannot be computed from kept values only."""


@dataclass(slots=True)
class _Kept:
    """Operand `index` of a dot, or of a sum along K, computed from kept values.

    origins: the decompressions of the sparse tile from which it is computed, each with the dimension that is K.
    """

    op: tt.DotOp | tt.ReduceOp
    index: int
    origins: dict[tt.DecompressOp, int] = field(default_factory=dict[tt.DecompressOp, int])
    _made: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])

    @property
    def bits(self) -> int:
        return element_bits(self.op.operands[self.index].type)

    @property
    def columns(self) -> int:
        """The dimension that is K."""
        return 1 - self.index if isinstance(self.op, tt.DotOp) else self.op.axis.value.data

    @property
    def origin(self) -> tt.DecompressOp:
        return next(iter(self.origins))

    def refusal(self) -> str | None:
        """The reason for which the operand cannot be computed from kept values; None if it can."""
        value = self.op.operands[self.index]
        # With several sparse tensors, one gives the places of zeros. Tiles of the others count as dense.
        found: dict[tuple[SSAValue, ...], list[tuple[tt.DecompressOp, int]]] = {}
        for origin, columns in sparse_origins(value, self.columns):
            found.setdefault(tuple(origin.operands), []).append((origin, columns))
        reasons: list[str] = []
        for origins in found.values():
            self.origins = dict(origins)
            try:
                self._check(value, origins)
                return None
            except _DenseError as error:
                reasons.append(str(error))
        return reasons[0] if reasons else "it is dense"

    def _check(self, value: SSAValue, origins: Sequence[tuple[tt.DecompressOp, int]]) -> None:
        """Raises _DenseError if a product cannot use kept values.

        origins: decompressions, each with the dimension that is K.
        """
        if any(origin.parts.columns != columns for origin, columns in origins):
            self._refuse("the dot sums along the axis that is not sparse", value)
        zero = background(value, self.origins)
        if zero is None or zero != 0:
            self._refuse("an operation changes its zeros", value)
        if isinstance(self.op, tt.ReduceOp):
            return
        tensor, name = tensor_of(value), tt.element_name(tensor_of(value).element_type)
        group = MAPS[element_bits(self.origin.src.type)].group
        formats = [each for each in tt.FORMATS.values() if name in each.elements and each.group == group]
        if not formats:
            raise _DenseError(f"no instruction multiplies {KEPT if group > KEPT else 1} of {group} elements of {name}")
        size = tensor.get_shape()[self.index], tensor.get_shape()[1 - self.index]
        if not divides(size, tensor.element_type):
            raise _DenseError(f"a product of {name} takes more of K than a tile of {size[0]} x {size[1]} has")

    @staticmethod
    def _refuse(reason: str, value: SSAValue) -> NoReturn:
        where = _where(value.owner) if isinstance(value.owner, Operation) else ""
        raise _DenseError(f"{reason}{f' ({where[:-2]})' if where else ''}")

    def multiply(self) -> None:
        """Change the dot to a product of kept values."""
        op = self.op
        assert isinstance(op, tt.DotOp)
        operands = [op.a, op.b]
        operands[self.index] = self._changed(operands[self.index], self.columns)
        new = op.decomposed(operands[0], operands[1], self._metadata(self.columns), self.index)
        new.location = op.location
        Rewriter.replace_op(op, new)

    def add(self) -> None:
        """Change the sum to a sum of kept values."""
        self.op.operands[0] = self._changed(self.op.operands[0], self.columns)

    def _metadata(self, columns: int) -> SSAValue:
        """The metadata of a tile whose dimension `columns` is K."""
        metadata = self.origin.metadata
        assert metadata is not None
        if self.origins[self.origin] == columns:
            return metadata
        return self._placed(tt.TransOp(metadata), self.op).results[0]

    def _changed(self, value: SSAValue, columns: int) -> SSAValue:
        """The kept elements of a tile whose dimension `columns` is K."""
        owner = value.owner
        if as_tensor(value.type) is None:
            return value
        if isinstance(owner, tt.DecompressOp) and owner in self.origins:
            return owner.src
        if value not in self._made:
            narrow = None if _is_uniform(value, columns) else self._before_widening(value)
            if narrow is not None:
                widens, repeated = narrow
                made = self._placed(self._with_type(widens, [self._changed(repeated, columns)], value, columns), widens)
            elif isinstance(owner, Operation) and self._halves(owner, columns):
                made = self._placed(self._halved(owner, columns), owner)
            else:
                made = self._placed(
                    tt.CompressOp(value, self._metadata(columns), columns, element_bits(self.origin.src.type)), self.op
                )
            self._made[value] = made.results[0]
            self._made[value].name_hint = value.name_hint
        return self._made[value]

    def _halves(self, op: Operation, columns: int) -> bool:
        """Whether an operation is applied to kept elements. Other tiles are computed dense, and then compressed."""
        value = op.results[0]
        if any(each in self.origins for each, _ in sparse_origins(value, columns)) or _is_uniform(value, columns):
            return True
        # If an operation only widens elements, they are compressed before it.
        return _widens(op)

    def _before_widening(self, value: SSAValue) -> tuple[Operation, SSAValue] | None:
        """The operation that widens elements before they are repeated, and the narrow ones, repeated; None for other tiles."""
        moves: list[Operation] = []
        while isinstance(value.owner, tt.BroadcastOp | tt.ExpandDimsOp | tt.ReshapeOp):
            moves.insert(0, value.owner)
            value = value.owner.operands[0]
        widens = value.owner
        if not moves or not isinstance(widens, Operation) or not _widens(widens):
            return None
        found = widens.operands[0]
        element = tensor_of(found).element_type
        for move in moves:
            moved = type(move).create(
                operands=[found],
                result_types=[TensorType(element, tensor_of(move.results[0]).get_shape())],
                properties=dict(move.properties),
            )
            found = self._placed(moved, move).results[0]
        return widens, found

    @staticmethod
    def _with_type(op: Operation, operands: Sequence[SSAValue], like: SSAValue, columns: int) -> Operation:
        """An elementwise operation on kept elements. like: the dense tile that it computes."""
        shape = list(tensor_of(like).get_shape())
        shape[columns] //= KEPT
        return type(op).create(
            operands=operands,
            result_types=[TensorType(tensor_of(like).element_type, shape)],
            properties=dict(op.properties),
            attributes=dict(op.attributes),
        )

    def _halved(self, op: Operation, columns: int) -> Operation:
        tensor = tensor_of(op.results[0])
        shape = list(tensor.get_shape())
        shape[columns] //= KEPT
        type_ = TensorType(tensor.element_type, shape)
        properties = dict(op.properties)
        match op:
            case tt.TransOp():
                operands = [self._changed(op.src, 1 - columns)]
            case tt.SplatOp() | tt.BroadcastOp():
                operands = list(op.operands)
            case arith.ConstantOp(value=DenseIntOrFPElementsAttr() as number):
                operands = []
                one = first_of(number)
                properties["value"] = DenseIntOrFPElementsAttr.from_list(cast(Any, type_), cast(Any, [one]))
            case _:
                operands = [self._changed(each, columns) for each in op.operands]
        return type(op).create(
            operands=operands, result_types=[type_], properties=properties, attributes=dict(op.attributes)
        )

    def _placed(self, made: Operation, of: Operation) -> Operation:
        return insert(self.op, made, of)


_PRODUCTS = (arith.MulfOp, arith.MuliOp, arith.AndIOp)
"""Operations whose result is zero if any operand is zero."""

_QUOTIENTS = (
    arith.DivfOp, arith.DivSIOp, arith.DivUIOp, arith.RemSIOp, arith.RemUIOp, arith.ShLIOp, arith.ShRSIOp, arith.ShRUIOp,
)  # fmt: skip
"""Operations whose result is zero if the first operand is zero."""


def background(value: SSAValue, origins: Container[Operation], known: dict[SSAValue, Any] | None = None) -> Any:
    """The value of the elements that these sparse tiles do not keep; None if it is not known. known: of tiles that were read."""
    known = {} if known is None else known
    if value not in known:
        known[value] = _background(value, origins, known)
    return known[value]


def _background(value: SSAValue, origins: Container[Operation], known: dict[SSAValue, Any]) -> Any:
    owner = value.owner
    match owner:
        case tt.DecompressOp() if owner in origins:
            return np.zeros((), np.float64)
        case tt.TransOp() | tt.BroadcastOp() | tt.SplatOp():
            return background(owner.operands[0], origins, known)
        case arith.ConstantOp(value=number) if not isinstance(number, DenseIntOrFPElementsAttr) or is_splat(number):
            return cast(Any, ARITHMETIC[arith.ConstantOp](owner, [])[0]).reshape(-1)[0]
        case Operation() if is_elementwise(owner) and type(owner) in ARITHMETIC:
            return _computed(owner, [background(each, origins, known) for each in owner.operands])
        case _:
            return None


def _computed(op: Operation, known: Sequence[Any]) -> Any:
    if all(each is not None for each in known):
        given = [np.asarray(each).astype(dtype_of(value.type)) for each, value in zip(known, op.operands, strict=True)]
        with np.errstate(all="ignore"):
            return ARITHMETIC[type(op)](op, given)[0]
    zeros = [each is not None and each == 0 for each in known]
    match op:
        case SelectOp():
            condition, one, other = known
            if condition is not None:
                return one if condition else other
            return one if one is not None and other is not None and one == other else None
        case _ if (isinstance(op, _PRODUCTS) and any(zeros)) or (isinstance(op, _QUOTIENTS) and zeros[0]):
            return np.zeros((), np.float64)
        case _:
            return None
