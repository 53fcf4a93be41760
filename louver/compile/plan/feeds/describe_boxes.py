"""describe-boxes: finds loads in loops that read a box of an array, and records the box, so that ring-copies can use
bulk copies.

A load reads a box if the addresses of its tile are rows of neighbours, and `louver.analysis.mapped` proves that a tensor
map has exactly its elements. The launch makes the map, so it must be able to compute sizes and strides. The load keeps
its addresses and mask. It uses them if its loop gets no ring, or if the target has no bulk copies.

Input and output are valid tile IR without sparse types, descriptors and block pointers (after expand-blocks). The
function gets a descriptor argument for each tensor map, after its other arguments.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd
from typing import cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import TensorType
from xdsl.ir import OpResult, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.access import Access, Dimension, access
from louver.analysis.affine import loop_of
from louver.analysis.atoms import Iteration
from louver.analysis.effects import is_elementwise
from louver.analysis.mapped import mapped
from louver.analysis.passages import stepping_loop
from louver.compile.canonical.describe_tiles import Describer
from louver.compile.decompose.expand_blocks import metadata_loads
from louver.compile.signature import ArgumentParameter, BoxParameter
from louver.ir.polynomial import Part, Polynomial
from louver.ir.refusal import UnsupportedKernelError
from louver.ir.tile import CompressOp, DecompressOp, DescriptorType, DotOp, FuncOp, LoadOp, TransOp
from louver.ir.tile.shared import SharedLayout
from louver.ir.tile.types import memory_bytes, tensor_of
from louver.isa.bulk import COPY_CHUNK
from louver.isa.targets import TENSOR_MAP_MAX_BOX

KNOWN_STRIDE = 8
"""Strides must be known multiples of this number of elements, or strides of descriptors.

The launch checks that they are whole chunks.
"""


def describe_boxes(function: FuncOp, parameters: Sequence[ArgumentParameter]) -> tuple[BoxParameter, ...]:
    """Describes boxes in place, and returns the parameters of the added arguments.

    parameters: the parameters of the function's arguments, in order.
    """
    boxes = _Boxes(function, parameters)
    metadata = metadata_loads(function)
    for loop in [op for op in function.body.walk() if isinstance(op, scf.ForOp)]:
        parts = [op for op in loop.body.walk() if stepping_loop(op) is loop]
        for load in [op for op in parts if isinstance(op, LoadOp) and is_multiplied(op.result)]:
            try:
                boxes.describe(load, metadata=load in metadata)
            except UnsupportedKernelError:
                # The load does not read a box.
                continue
    boxes.finish()
    return tuple(boxes.found)


def used_boxes(function: FuncOp, boxes: Sequence[BoxParameter]) -> tuple[BoxParameter, ...]:
    """The boxes that a function copies. Arguments of other boxes are erased. boxes: parameters of the last arguments."""
    block, attributes = function.body.block, function.argument_attributes
    first = len(block.args) - len(boxes)
    idle = [index for index in range(first, len(block.args)) if block.args[index].first_use is None]
    for index in reversed(idle):
        block.erase_arg(block.args[index])
        del attributes[index]
    function.take_types()
    function.argument_attributes = attributes
    return tuple(each for index, each in enumerate(boxes, first) if index not in idle)


def is_multiplied(value: SSAValue) -> bool:
    """Whether a tile, or a tile computed from it by elementwise operations, is an operand of a dot."""
    users = [use.operation for use in value.uses]
    return any(
        isinstance(user, DotOp)
        or (
            (isinstance(user, TransOp | DecompressOp | CompressOp) or is_elementwise(user))
            and any(map(is_multiplied, user.results))
        )
        for user in users
    )


@dataclass(slots=True)
class _Boxes:
    """The boxes of a function. found: parameters and their arguments."""

    function: FuncOp
    parameters: Sequence[ArgumentParameter]
    found: dict[BoxParameter, SSAValue] = field(default_factory=dict["BoxParameter", SSAValue])
    describer: Describer = field(init=False)
    given: Mapping[SSAValue, ArgumentParameter] = field(init=False)
    names: Mapping[SSAValue, str] = field(init=False)

    def __post_init__(self) -> None:
        self.describer = Describer.of(self.function)
        self.given = dict(zip(self.function.body.block.args, self.parameters, strict=True))
        self.names = {value: each.number for value, each in self.given.items()}

    def describe(self, load: LoadOp, *, metadata: bool) -> None:
        """Record the box that a load reads, if it reads one.

        Raises UnsupportedKernelError if its addresses are not a tile.
        """
        found = self._metadata(load) if metadata else self.describer.access(load)
        parameter = self.given.get(found.base)
        if parameter is None or parameter.multiple % COPY_CHUNK or len(found.dimensions) != 2 or load.box is not None:
            return
        self.describer.check_rows(load, found)
        contiguous = [each for each in found.dimensions if each.stride == Polynomial.number(1)]
        if len(contiguous) != 1:
            return
        columns = contiguous[0]
        rows = next(each for each in found.dimensions if each is not columns)
        counted = {each: replace(each, first=self._counted(each.first)) for each in (columns, rows)}
        size = memory_bytes(load.result.type)
        fits = columns.extent * size >= COPY_CHUNK and rows.extent <= TENSOR_MAP_MAX_BOX
        if not fits or self._multiple(counted[columns].first) * size % COPY_CHUNK:
            return
        box = self._parameter(parameter, (counted[columns], counted[rows]), found, size, load)
        if box is None:
            return
        entry = [] if found.entry is None else [found.entry.index]
        indices = self.describer.descriptors
        place = [indices.first(each, load) for each in (*entry, rows.first, columns.first)]
        assert not any(isinstance(each, int) for each in place)
        block = TensorType(tensor_of(load.result).element_type, [*(1 for _ in entry), rows.extent, columns.extent])
        new = load.found_in(
            self._argument(box, DescriptorType(block)), [each for each in place if isinstance(each, SSAValue)]
        )
        new.location = load.location
        Rewriter.replace_op(load, new)

    def _counted(self, first: Polynomial) -> Polynomial:
        """The start of tiles, computed from the first number and the step of their loop."""

        def leaf(atom: Hashable) -> Polynomial:
            loop = loop_of(atom)
            if loop is None:
                return Polynomial.atom(atom)
            begin, step = (self.describer.affine.integer(each) for each in (loop.lb, loop.step))
            return self._counted(begin) + step * Polynomial.atom(Iteration(loop))

        found = first.over(leaf)
        assert found is not None
        return found

    def _metadata(self, load: LoadOp) -> Access:
        """The access of metadata. It has no bounds, because any legal codes may be read outside of its tensor."""
        tile = tensor_of(load.result)
        return access(self.describer.affine.pointer(load.ptr), tile.get_shape(), [], load, repeats=False)

    def _parameter(
        self, array: ArgumentParameter, ordered: tuple[Dimension, Dimension], found: Access, size: int, load: LoadOp
    ) -> BoxParameter | None:
        columns, rows = ordered
        strides = [rows.stride, *([] if found.entry is None else [found.entry.stride])]
        if any(self._multiple(each) % KNOWN_STRIDE for each in strides):
            return None
        whole = mapped(found, ordered, self.describer.affine, self.names, load)
        if whole is None or (array.part == "metadata" and found.entry is not None):
            return None
        layout = SharedLayout((rows.extent, columns.extent), 1, size)
        box = (layout.swizzle.width // size, rows.extent, *([] if found.entry is None else [1]))
        tailed = rows.size is not None and whole.sizes[1] is not None and whole.above[1]
        return BoxParameter(
            self._name(array.name),
            array.argument,
            array.part,
            size,
            (None, None) if array.part == "metadata" else whole.sizes,
            whole.strides,
            box,
            layout.swizzle.span,
            tailed=tailed and rows.extent & (rows.extent - 1) == 0,
            least=whole.least,
            free=None if array.part == "metadata" else whole.free,
        )

    def _name(self, array: str) -> str:
        name = f"{array}_box"
        # The box's further parameters begin with its name.
        while any(each.name.startswith(name) for each in self.parameters):
            name += "_"
        return name

    def _argument(self, box: BoxParameter, type_: DescriptorType) -> SSAValue:
        """The argument of a tensor map. Loads of the same boxes share it."""
        block = self.function.body.block
        for known, argument in self.found.items():
            if replace(known, name=box.name) == box and argument.type == type_:
                return argument
        named = [each.name for each in self.found]
        while box.name in named:
            box = replace(box, name=f"{box.name}_")
        argument = self.found[box] = block.insert_arg(type_, len(block.args))
        argument.name_hint = box.name
        return argument

    def finish(self) -> None:
        """Update the type, the attributes and the argument names of the function."""
        function, given = self.function, len(self.parameters)
        attributes = function.argument_attributes
        function.take_types()
        function.argument_attributes = [*attributes, *({} for _ in self.found)]
        function.name_arguments({given + index: each.name for index, each in enumerate(self.found)})

    def _multiple(self, value: Polynomial) -> int:
        """A number that is known to divide a value."""
        found = 0
        for monomial, factor in value:
            term = abs(factor)
            for atom, power in monomial:
                term *= self._atom(atom) ** power
            found = gcd(found, term)
        return found

    def _atom(self, atom: object) -> int:
        if isinstance(atom, Part):
            whole, by = self._multiple(atom.whole), atom.by.constant
            return whole // by if by and whole and whole % by == 0 else 1
        if isinstance(atom, OpResult) and isinstance(op := atom.op, arith.MinSIOp | arith.MaxSIOp):
            # The maximum of two is a stride, the minimum an index.
            join = gcd if isinstance(op, arith.MinSIOp) else max
            return join(*(self._multiple(self.describer.affine.integer(each)) for each in op.operands))
        parameter = self.given.get(cast(SSAValue, atom)) if isinstance(atom, SSAValue) else None
        if parameter is None:
            return 1
        return COPY_CHUNK if parameter.part == "stride" else parameter.multiple
