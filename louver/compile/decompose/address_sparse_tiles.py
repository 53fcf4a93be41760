"""address-sparse-tiles: computes the addresses of sparse tiles at run time, for arguments whose tiles cannot be described.

A load of such a tile becomes two loads, of values and of codes, with pointers. A dense tensor that is sparse along its last
axis is one line of groups in memory, and so are its values and its codes. The offset of an element in the dense tensor,
which the kernel computes, thus gives the places of its group in both, without rows: values at half of the offset, and
16 bits of codes for 4 groups. For a tensor that is sparse along its last axis but one, the offset is divided by the length of a
row first, because the stored lines go along the other axis.

A tile of neighbours is one access where `Runs` proves them. What it does not prove, the kernel checks for each element
that is not masked:

- Elements of 4 groups are neighbours along the sparse axis, one pitch apart, and the first one begins a group.
- The mask is constant in a group.
- The tensor holds the elements.

A group that fails reads NaN in place of its values, so its row of the result is NaN, and the kernel sets a flag. Integers have
no NaN: there all but the last rule must be proven, or checked by the launch.
docs/computed-addresses.md has the rules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from xdsl.dialects.builtin import (
    IntegerAttr,
    IntegerType,
    TensorType,
    UnitAttr,
    UnrealizedConversionCastOp,
    i1,
    i16,
    i32,
    i64,
)
from xdsl.ir import Attribute, BlockArgument, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.alignment import NOTHING, Needs
from louver.analysis.apart import Apart
from louver.analysis.integers import is_zero
from louver.analysis.passages import root_of
from louver.analysis.runs import WHOLE, Run, Runs
from louver.compile.canonical.turn_across import lengths_across
from louver.compile.condition_attributes import require_rows_apart
from louver.compile.decompose.expand_blocks import METADATA_PADDING, expand_views
from louver.compile.decompose.matrix_loads import KEPT_PROPERTIES, as_matrix
from louver.compile.decompose.memory import Axes, part_types, require_lifted, require_multiples
from louver.compile.decompose.ordered_entries import hardware_places, in_hardware_order
from louver.compile.decompose.replaced_offsets import whole_where_replaced
from louver.compile.decompose.reported import report
from louver.compile.decompose.required_pieces import needs_of_pieces, require_neighbours, unproven
from louver.compile.decompose.sample import Part, Places, Samples
from louver.compile.decompose.sparse_axis import columns_of
from louver.compile.decompose.stored_lines import DivisorArguments, Lines, Placed
from louver.compile.decompose.zeroed_columns import Below, own_below, zeroed_columns
from louver.compile.rewrite.insert import insert_before
from louver.compile.rewrite.remove_dead import remove_dead
from louver.compile.rewrite.tile_numbers import Number, TileNumbers
from louver.ir import tile as tt
from louver.ir.arith import TruncIOp
from louver.ir.computed import CODES, COLUMNS, COUNT, MULTIPLIER, NAN, ROWS, SHIFT, VALUES, VIOLATIONS
from louver.ir.polynomial import Size
from louver.ir.refusal import unsupported
from louver.ir.tile.multiples import APART, DIVISIBILITY, MATRIX, multiples_of
from louver.ir.tile.parts import KEPT
from louver.ir.tile.types import AnyTensor, element_bits, memory_bytes, tensor_of
from louver.isa.metadata import CODE_BITS, ENTRY_CODES, MAPS

MULTIPLE = 16
"""Bytes to which arrays are aligned."""

COLUMNS_OF = "louver.columns"
"""The attribute of a cast of values and metadata to a sparse tile: the dimension that is the sparse axis."""


@dataclass(frozen=True, slots=True)
class Addressed:
    """The result of address-sparse-tiles.

    added: names of the arguments that were added. pieces: for each computed argument, the fewest bytes of values that are
    proven to be neighbours; those of a group where nothing is proven.
    """

    added: frozenset[str] = frozenset()
    pieces: Mapping[str, int] = field(default_factory=dict[str, int])


def address_sparse_tiles(function: tt.FuncOp, computed: Collection[str]) -> Addressed:
    """Rewrite the loads of these arguments in place.

    Rejects, with operation and source line, patterns that no tensor core multiplies, addresses that are not computed by
    element, tiles that products do not take, and integers whose pieces are not proven: their results have no NaN.
    """
    if not computed:
        return Addressed()
    require_lifted(function)
    names = {argument: name for argument, name in function.argument_names.items() if name in computed}
    expand_views(function, names)
    found = {
        op: root
        for op in function.body.walk()
        if isinstance(op, tt.LoadOp) and (root := root_of(op.ptr)) is not None and root in names
    }
    for op in found:
        if op.other is not None and not is_zero(op.other):
            raise unsupported("masked elements of a sparse tile are zeros", op, "use other=0")
    runs, across = _proofs(function, names), lengths_across(function)
    found = {as_matrix(op, runs, across=root in across): root for op, root in found.items()}
    own, counted = own_below({op: columns_of(op, runs, across=root in across) for op, root in found.items()})
    runs = Runs(runs.multiples, own)
    sizes = {value: name for value, name in function.argument_names.items() if isinstance(value.type, IntegerType)}
    apart = Apart(runs, sizes)
    proven = {op: _Proven.of(op, apart, across.get(root), counted) for op, root in found.items()}
    for op, each in proven.items():
        require_multiples(each.needs, op)
        if each.apart is not None:
            require_rows_apart(function, names[found[op]], each.apart)
    tensors, added = _add_arguments(function, names)
    samples, pieces = Samples(function, own), dict[str, int]()
    multiplied = any(isinstance(op, tt.DotOp) for op in function.body.walk())
    for op, root in found.items():
        load = _Load(op, tensors[root], proven[op], samples, apart, multiplied=multiplied)
        pieces[names[root]] = min(load.bytes, pieces.get(names[root], load.bytes))
        load.replace()
    remove_dead(function)
    _drop_pointers(function, names)
    return Addressed(added, pieces)


def _proofs(function: tt.FuncOp, roots: Collection[SSAValue]) -> Runs:
    """The runs of addresses, as if the dense tensors began at address 0."""
    multiples = dict(zip(function.body.block.args, multiples_of(function), strict=True))
    return Runs(multiples | dict.fromkeys(roots, WHOLE))


@dataclass(frozen=True, slots=True)
class _Proven:
    """What is known of a load.

    columns: the dimension that is the sparse axis. piece: columns that are neighbours, begin at a multiple of their number,
    and have one mask; 1 if nothing is known. zeroed: further conditions under which elements change a result, each with the
    dimension of columns in it. needs: arguments with numbers that must divide them, or nothing is known.
    line: columns that are neighbours, wherever they begin. masked: columns that have one mask. apart: for a tensor that is sparse along
    its last axis but one, the distance of neighbours, which must be that of rows, or the line is not known.
    below: those of `zeroed` that are not known to be constant in a group.
    """

    columns: int
    piece: int
    line: int
    masked: int
    zeroed: tuple[tuple[SSAValue, int], ...] = ()
    needs: Needs = NOTHING
    apart: Size | None = None
    below: tuple[Below, ...] = ()

    @classmethod
    def of(cls, load: tt.LoadOp, apart: Apart, length: SSAValue | None, counted: Collection[SSAValue]) -> _Proven:
        """length: that of a line, for a tensor that is sparse along its last axis but one; else None. counted: conditions of columns
        that must count as masked where they do not hold.
        """
        across, runs = length is not None, apart.runs
        columns = columns_of(load, runs, across=across)
        below = [each for each in zeroed_columns(load, columns) if each[0] in counted]

        def moves(count: int, apart: Apart) -> bool:
            if not all(apart.runs.same(*each, count) for each in below):
                return False
            if length is None:
                return apart.runs.moves(load, columns, count)
            return apart.runs.multiples[length] % count == 0 and apart.moves(load, columns, count)

        width, size = tensor_of(load.result).get_shape()[columns], memory_bytes(tensor_of(load.result))
        group = MAPS[element_bits(load.result.type)].group
        if not across:
            require_neighbours(load, apart.of(load.ptr, columns, group))
        sizes = (each for each in (64, 32, 16, 8, 4, 2) if group <= each <= KEPT * MULTIPLE // size)
        piece = next((each for each in sizes if width % each == 0 and moves(each, apart)), 1)
        needs: Needs | None = NOTHING
        if piece == 1 and isinstance(tensor_of(load.result).element_type, IntegerType):
            needs = needs_of_pieces(lambda known: moves(group, Apart(known, apart.names)), runs, group)
            if needs is None:
                raise unproven(load, "rows" if across else "columns")
            piece, runs = group, runs.knowing(dict(needs))
        elif piece == 1:
            ignored, rows = zeroed_columns(load, columns), tensor_of(load.result).get_shape()[1 - columns]
            wholes = {columns: group if ignored else width, 1 - columns: rows}
            needs = whole_where_replaced(load, runs.multiples, wholes)
            runs = runs.knowing(dict(needs))
        whole = [each for each in zeroed_columns(load, columns) if runs.same(*each, max(piece, group))]
        zeroed = list(dict.fromkeys([*below, *whole]))
        cut = [each for each in below if each not in whole]
        masks = [*whole, *([] if load.mask is None else [(load.mask, columns)])]
        line, masked, distance = piece, piece, None
        if across or piece == 1:
            counts: tuple[int, ...] = (group * ENTRY_CODES, group)
            if across:
                lines = {each: apart.of(load.ptr, columns, each) for each in counts}
                line, distance = next(((each, found) for each, found in lines.items() if found), (1, None))
            else:
                line = next((each for each in counts if _follow(runs.of(load.ptr, columns, each), size)), 1)
            sizes = (group,) if cut else counts
            masked = next((each for each in sizes if all(runs.same(*mask, each) for mask in masks)), 1)
        ranges = [found for each, _ in cut if (found := Below.of(each)) is not None]
        return cls(columns, piece, line, masked, tuple(zeroed), needs, distance, tuple(ranges))


def _follow(run: Run | None, size: int) -> bool:
    """Whether the elements of a block follow one another in memory, wherever it begins. size: bytes of an element."""
    return run is not None and run.step == size


@dataclass(frozen=True, slots=True)
class _Tensor:
    """The arguments of a computed tensor. lines: None for one that is sparse along its last axis."""

    values: SSAValue
    codes: SSAValue
    count: SSAValue
    nan: SSAValue
    flag: SSAValue
    lines: Lines | None


def _add_arguments(function: tt.FuncOp, roots: Collection[SSAValue]) -> tuple[dict[SSAValue, _Tensor], frozenset[str]]:
    """The arguments of each computed tensor. The values stand behind the pointer that they replace, with a name of no argument."""
    block, across = function.body.block, lengths_across(function)
    attributes, names = function.argument_attributes, list(function.argument_names.values())
    found, added = dict[SSAValue, _Tensor](), set[str]()

    def add(behind: SSAValue, name: str, type_: Attribute, multiple: int = 1) -> SSAValue:
        index = [argument is behind for argument in block.args].index(True) + 1
        argument = block.insert_arg(type_, index)
        attributes.insert(index, {DIVISIBILITY: IntegerAttr(multiple, 32)})
        names.insert(index, name)
        added.add(name)
        return argument

    def divisor(value: SSAValue) -> DivisorArguments:
        name = names[cast(BlockArgument, value).index]
        shift = add(value, name + SHIFT, i32)
        return DivisorArguments(value, add(value, name + MULTIPLIER, i32), shift)

    flag = add(block.args[-1], VIOLATIONS, tt.PointerType(i32), MULTIPLE)
    attributes[-1][APART] = UnitAttr()
    for root in [each for each in block.args if each in roots]:
        name, pointee = names[root.index], cast(tt.PointerType, root.type).pointee
        nan = add(root, name + NAN, i64, MULTIPLE // memory_bytes(pointee))
        count, codes = add(root, name + COUNT, i64), add(root, name + CODES, tt.PointerType(i16), MULTIPLE)
        lines = None
        if root in across:
            rows = add(codes, name + ROWS, i64)
            matrix = None if MATRIX in attributes[root.index] else divisor(across[root])
            lines = Lines(divisor(add(codes, name + COLUMNS, i32)), across[root], matrix, rows)
        values = add(root, name + VALUES, tt.PointerType(pointee), MULTIPLE)
        found[root] = _Tensor(values, codes, count, nan, flag, lines)
    function.take_types()
    function.argument_attributes = attributes
    function.name_arguments(dict(enumerate(names)))
    return found, frozenset(added)


def _drop_pointers(function: tt.FuncOp, roots: Collection[SSAValue]) -> None:
    """Remove the arguments whose values have an argument of their own, which takes the name."""
    attributes, names = function.argument_attributes, list(function.argument_names.values())
    for root in [each for each in reversed(function.body.block.args) if each in roots]:
        del attributes[root.index]
        del names[root.index + 1]
        function.body.block.erase_arg(root)
    function.take_types()
    function.argument_attributes = attributes
    function.name_arguments(dict(enumerate(names)))


@dataclass(frozen=True, slots=True)
class _Piece:
    """Neighbours along the sparse axis, from a column on.

    offsets: of the first element in the dense tensor, and, if neighbours are not proven, of the others of its group; empty if the
    entry's gives it. masks: likewise; empty without a mask. after: columns from the beginning of the entry.
    """

    offsets: tuple[SSAValue, ...]
    masks: tuple[SSAValue, ...]
    after: Number


@dataclass(frozen=True, slots=True)
class _Found:
    """line: where an entry or a piece begins, in the lines of groups that are stored. wrong: whether it is unmasked and breaks a
    rule. shown: whether any of it is unmasked; None without a mask.
    """

    line: SSAValue
    wrong: SSAValue
    shown: SSAValue | None


class _Load:
    """Replaces one load by loads of values and of codes.

    group, entry: columns of a group, and of the groups whose codes are one access. piece: columns whose values are one access.
    aligned: columns at whose multiples an access begins.
    checked: columns that the load of codes checks at once. multiplied: whether the kernel has dots.
    """

    def __init__(
        self, op: tt.LoadOp, tensor: _Tensor, proven: _Proven, samples: Samples, apart: Apart, *, multiplied: bool
    ) -> None:
        self.multiplied = multiplied
        self.op, self.tensor, self.proven, self.samples = op, tensor, proven, samples
        tile = tensor_of(op.result)
        self.element, self.axes = tile.element_type, Axes(1 - proven.columns, proven.columns)
        self.columns = tile.get_shape()[proven.columns]
        self.group = MAPS[element_bits(self.element)].group
        self.entry = ENTRY_CODES * self.group
        self.aligned = max(proven.piece, self.group)
        # Columns that are neighbours wherever they begin are one piece: the copy tests how its address is aligned.
        in_line = proven.piece == 1 and proven.line == self.entry
        self.piece = self.entry if in_line else self.aligned
        along, guess = proven.columns, apart.runs.guessing()
        self.even = tensor.lines is None and in_line and guess.moves(op, along, self.entry, self.group)
        self.parts = None
        if proven.apart is not None and proven.line >= self.entry and proven.piece > 1:
            # A loop along K changes rows alone: the rest is divided before it.
            self.parts = Part("rest", apart, proven.apart), Part("rows", apart, proven.apart)
        # A piece may be longer than an entry, whose columns alone are checked with its codes.
        whole = min(proven.line, proven.masked) == self.entry
        self.checked = self.entry if whole else min(self.aligned, self.entry)

    @property
    def bytes(self) -> int:
        """Bytes of the values of a piece that is proven, or begins at its multiple if loaded numbers do."""
        return (self.piece if self.even else self.aligned) // KEPT * memory_bytes(self.element)

    def replace(self) -> None:
        """Rewrite in place."""
        op = self.op
        values, metadata = (cast("AnyTensor", each) for each in part_types(op.result.type, self.axes, op))
        parts = [self._values(values.get_shape()), self._codes(metadata.get_shape())]
        joined = UnrealizedConversionCastOp.create(operands=parts, result_types=[op.result.type])
        joined.attributes[COLUMNS_OF] = IntegerAttr(self.axes.columns, i32)
        made = insert_before(op, joined)
        made.name_hint = op.result.name_hint
        op.result.replace_all_uses_with(made)
        Rewriter.erase_op(op)

    def _values(self, shape: Sequence[int]) -> SSAValue:
        make, kept = TileNumbers(self.samples.start), self.piece // KEPT
        row, place = self._index(shape, self.axes.rows), self._index(shape, self.axes.columns)
        column, inside = make.times(make.quotient(place, kept), self.piece), make.rest(place, kept)
        mask = None
        if self.piece < self.entry:
            begin = make.times(make.quotient(column, self.entry), self.entry)
            found = self._found(row, begin, [(column, make.minus(column, begin))], shape, extent=self.piece, own=True)
        elif self.piece > self.checked == self.aligned:
            # The groups of an entry have masks of their own.
            steps = range(0, self.piece, self.checked)
            found = self._found(row, column, self._pieces(make, column, steps), shape, extent=self.checked)
            group = make.times(make.quotient(inside, self.checked // KEPT), self.checked)
            mask = self._mask(row, make.add(column, group), shape)
        else:
            found = self._found(row, column, [(column, 0)], shape, extent=self.piece, own=True)
        make = TileNumbers(self.op)
        at = make.choice(found.wrong, self.tensor.nan, self._first_value(make, found.line))
        is_whole = isinstance(self.element, IntegerType)
        zero = make.filled(0 if is_whole else 0.0, self.element, shape)
        return self._load(self.tensor.values, make.add(at, make.wide(inside)), mask or found.shown, zero, shape)

    @staticmethod
    def _pieces(make: TileNumbers, begin: SSAValue, steps: Iterable[int]) -> list[tuple[SSAValue, Number]]:
        """The pieces of an entry, each with its first column and the columns before it."""
        return [(make.add(begin, each) if each else begin, each) for each in steps]

    def _first_value(self, make: TileNumbers, line: SSAValue) -> SSAValue:
        """The place of the first value of a piece. What begins within a piece is wrong: in whole pieces, the place proves that
        the values of a piece are one access.
        """
        if self.proven.piece > 1 and self.tensor.lines is None:
            return make.shifted(line, KEPT.bit_length() - 1)
        place = make.masked(make.shifted(line, KEPT.bit_length() - 1), -(self.aligned // KEPT))
        return cast("SSAValue", make.wide(place))

    def _codes(self, shape: Sequence[int]) -> SSAValue:
        """The metadata of the tile, of this shape. Without a dot nothing needs the order of the hardware, so that codes are loaded in
        rows.
        """
        if self.multiplied:
            block, entry = self._index(shape, self.axes.rows), self._index(shape, self.axes.columns)
            make = TileNumbers(self.samples.start)
            return self._entries(shape, *hardware_places(make, block, entry, self.element, self.columns))
        rows = [0, 0]
        rows[self.axes.rows] = tensor_of(self.op.result).get_shape()[self.axes.rows]
        rows[self.axes.columns] = self.columns // self.entry
        row, place = self._index(rows, self.axes.rows), self._index(rows, self.axes.columns)
        begin = TileNumbers(self.samples.start).times(place, self.entry)
        return in_hardware_order(self._entries(rows, row, begin), self.axes, self.element, self.op)

    def _entries(self, shape: Sequence[int], row: SSAValue, begin: SSAValue) -> SSAValue:
        """Entries that begin at these rows and columns."""
        make = TileNumbers(self.samples.start)
        pieces = self._pieces(make, begin, range(0, self.entry, self.checked))
        found = self._found(row, begin, pieces, shape, extent=self.checked)
        make = TileNumbers(self.op)
        report(self.tensor.flag, make.whole(found.wrong, shape), make)
        line = make.wide(found.line)
        # What is not wrong is held.
        held = (
            make.differ(found.wrong, make.constant(1, i1))
            if self.tensor.lines is None
            else make.compared(line, "ult", self.tensor.count)
        )
        shown, word = make.both(found.shown, held), self.entry.bit_length() - 1
        if self.proven.piece >= self.entry:
            filler = make.filled(METADATA_PADDING, i16, shape)
            return self._load(self.tensor.codes, make.shifted(line, word), shown, filler, shape)
        # An entry that begins in the upper half of two words may end in the next two.
        words = insert_before(
            self.op, tt.PointerCastOp.build(operands=[self.tensor.codes], result_types=[tt.PointerType(i32)])
        )
        at, inside = make.shifted(line, word + 1), make.masked(make.narrow(found.line), 2 * self.entry - self.group)
        bits = make.times(inside, CODE_BITS // self.group)
        filler = make.filled(METADATA_PADDING << 16 | METADATA_PADDING, i32, shape)
        low = self._load(words, at, shown, filler, shape)
        high = self._load(words, make.add(at, 1), make.both(shown, make.compared(bits, "ugt", 16)), filler, shape)
        both = make.either(make.left(make.unsigned(high), 32), make.unsigned(low))
        found_bits = make.whole(make.right(both, make.wide(bits)), shape)
        return insert_before(self.op, TruncIOp(found_bits, TensorType(i16, shape)))

    def _found(
        self,
        row: SSAValue,
        begin: SSAValue,
        pieces: Sequence[tuple[SSAValue, Number]],
        shape: Sequence[int],
        *,
        extent: int,
        own: bool = False,
    ) -> _Found:
        """The entry that begins at a column, and its pieces, each with its first column and the columns before it.

        extent: columns of a piece. own: whether the line is that of the only piece, not of the entry.
        """
        base = self._offset(row, begin, shape, None if self.parts is None else self.parts[0])
        rows = None if self.parts is None else self._offset(row, begin, shape, self.parts[1])
        sampled = [self._piece(row, column, after, shape) for column, after in pieces]
        live, make = self.samples.live, TileNumbers(self.op)
        base, lines = live(base), self.tensor.lines
        rows = None if rows is None else live(rows)
        placed = None if lines is None else lines.place(make, self.tensor.count, base, rows)
        entry = base if placed is None else placed.line
        wrong, shown, line = list[SSAValue](), list[SSAValue](), entry
        for piece in sampled:
            if lines is None or placed is None:
                faults = self._faults_along(make, base, piece, extent)
            else:
                faults = self._faults_across(make, base, lines, placed, piece, extent)
            if piece.after != 0:
                line = make.add(entry, make.wide(piece.after) if placed is None else piece.after)
            mask, *rest = map(live, piece.masks) if piece.masks else (None,)
            fault = make.either(*faults)
            if mask is not None:
                fault = make.either(make.both(mask, fault), *(make.differ(mask, each) for each in rest))
                shown.append(mask)
            wrong.append(fault)
        wrong += [each.cuts(make, self.group) for each in self.proven.below]
        return _Found(line if own else entry, make.either(*wrong), make.either(*shown) if shown else None)

    def _faults_along(self, make: TileNumbers, base: SSAValue, piece: _Piece, extent: int) -> list[SSAValue]:
        """What may be wrong with a piece along the last axis, whose entry begins at an offset."""
        offset, *others = map(self.samples.live, piece.offsets) if piece.offsets else (None,)
        # Negative offsets are large ones without a sign. A tensor of fewer elements than a piece has no first one.
        firsts = make.minus(self.tensor.count, extent - 1)
        firsts = make.choice(make.compared(firsts, "slt", 0), make.constant(0, i64), firsts)
        line, faults = base, list[SSAValue]()
        if piece.after != 0:
            line = make.add(base, make.wide(piece.after))
            faults += [] if offset is None else [make.compared(offset, "ne", line)]
            faults.append(make.compared(base, "slt", 0))
        offset = line if offset is None else offset
        faults.append(make.compared(offset, "uge", firsts))
        if self.proven.piece == 1:
            faults.append(make.compared(make.masked(line, self.group - 1), "ne", 0))
        for number, other in enumerate(others, 1):
            faults.append(make.compared(other, "ne", make.add(offset, number)))
        return faults

    def _faults_across(
        self, make: TileNumbers, base: SSAValue, lines: Lines, placed: Placed, piece: _Piece, extent: int
    ) -> list[SSAValue]:
        """The same for a piece along the last axis but one. placed: its entry.

        The rest of a piece, and of an entry, is in the tensor because it is in the line.
        """
        columns = make.wide(lines.columns.value)
        faults = list(placed.outside)
        faults.append(make.compared(make.masked(placed.aligned, min(extent, self.aligned) - 1), "ne", 0))
        if piece.after != 0 or extent > self.aligned:
            end = make.minus(lines.length, extent)
            faults.append(make.compared(make.add(placed.inside, piece.after), "sgt", end))
        if not piece.offsets:
            return faults
        offset, *others = map(self.samples.live, piece.offsets)
        if piece.after != 0:
            distance = make.times(columns, make.wide(piece.after))
            faults.append(make.compared(offset, "ne", make.add(base, distance)))
        return faults + [
            make.compared(other, "ne", make.add(offset, make.times(columns, number)))
            for number, other in enumerate(others, 1)
        ]

    def _mask(self, row: SSAValue, column: SSAValue, shape: Sequence[int]) -> SSAValue | None:
        """The mask of elements. Columns that the other operand of the dot masks with zeros count as masked too: what stands
        there changes nothing.
        """
        conditions = [] if self.op.mask is None else [self._at(self.op.mask, row, column, shape)]
        for condition, along in self.proven.zeroed:
            indices = (None, column) if along == 1 else (column, None)
            conditions.append(self.samples.at(condition, Places(tuple(shape), indices)))
        found: SSAValue | None = None
        for each in conditions:
            found = TileNumbers(self.op).both(found, self.samples.live(each))
        return found

    def _piece(self, row: SSAValue, column: SSAValue, after: Number, shape: Sequence[int]) -> _Piece:
        make, proven = TileNumbers(self.samples.start), self.proven
        group = [make.add(column, each) if each else column for each in range(self.group if proven.piece == 1 else 1)]
        masked = group[:1] if proven.masked >= self.group else group
        masks = tuple(mask for each in masked if (mask := self._mask(row, each, shape)) is not None)
        placed = group[:1] if proven.line >= self.group else group
        # In a line, the place of an entry gives that of its pieces.
        placed = () if self.parts is not None or proven.line >= self.entry > self.aligned else placed
        return _Piece(tuple(self._offset(row, each, shape) for each in placed), masks, after)

    def _offset(self, row: SSAValue, column: SSAValue, shape: Sequence[int], part: Part | None = None) -> SSAValue:
        return self._at(self.op.ptr, row, column, shape, part)

    def _at(
        self, value: SSAValue, row: SSAValue, column: SSAValue, shape: Sequence[int], part: Part | None = None
    ) -> SSAValue:
        """The elements of a tile of the load at rows and columns."""
        indices = (row, column) if self.axes.rows == 0 else (column, row)
        return self.samples.at(value, Places(tuple(shape), indices, part))

    def _index(self, shape: Sequence[int], dimension: int) -> SSAValue:
        """The numbers along a dimension of a tile of two dimensions."""
        start = self.samples.start
        return insert_before(
            start, tt.ExpandDimsOp(insert_before(start, tt.MakeRangeOp(0, shape[dimension])), 1 - dimension)
        )

    def _load(
        self, array: SSAValue, at: SSAValue, mask: SSAValue | None, other: SSAValue, shape: Sequence[int]
    ) -> SSAValue:
        make = TileNumbers(self.op)
        pointers = insert_before(self.op, tt.AddPtrOp(make.whole(array, shape), make.whole(at, shape)))
        masked = (None, None) if mask is None else (make.whole(mask, shape), other)
        load = tt.LoadOp(pointers, *masked)
        load.properties |= {name: self.op.properties[name] for name in KEPT_PROPERTIES if name in self.op.properties}
        return insert_before(self.op, load)
