"""The product of two tiles. One may be sparse, by its type or as values and metadata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from xdsl.dialects.builtin import I32, Float32Type, IntegerAttr, StringAttr, TensorType, UnitAttr, i16, i32
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    ParsePropInAttrDict,
    VarConstraint,
    base,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, Pure
from xdsl.utils.exceptions import VerifyException

from louver.formats.blocks import SCALED_COLUMNS
from louver.ir.refusal import unsupported
from louver.ir.tile.elements import ACCUMULATORS, ELEMENTS, element_name
from louver.ir.tile.encodings import DENSE, METADATA, VALUES, DotOperandAttr, Encoding, MmaAttr
from louver.ir.tile.metadata import divides, metadata_shape
from louver.ir.tile.shared import SharedAttr
from louver.ir.tile.types import AnyTensor, as_tensor, register_encoding, sparse_encoding, tensor_of
from louver.isa.mma import FP8
from louver.isa.rule import RuleError

PARTS = {"tf32x3": 2, "ieee": 3}
"""Parts of 11 bits of an f32 operand, by the precision of the dot.

With other precisions only the bits of tf32 are used.
"""

_SCALE = ELEMENTS["u8"]

_WRITTEN = ("inputPrecision", "sparseIndex", "operandSegmentSizes")
"""Properties that are printed before the attribute dictionary."""


@irdl_op_definition
class DotOp(IRDLOperation):
    """c [M, N] + a [M, K] · b [K, N]. One operand may be sparse along K, by its type or decomposed.

    A decomposed operand has `metadata` and `sparse_index`.

    sparse_index: the number of the operand (0: a, 1: b) that has only the kept values, [M, K/2] or [K/2, N].
    metadata: their places: i16, `metadata_shape(M, K)`, or for b its transpose.
    max_imprecise: dense columns of 8-bit floats that tensor cores may sum before f32 additions, see `read_nest`.
    in_flight: in a loop, its products may run until those of the next iteration have begun. The loop carries its sums.
    is_async: its products run until a `ttng.warp_group_dot_wait`, which alone may read the sums.
    scales: none, or ui8 [M, K/64] of a and [N, K/64] of b: powers of two, 2^(x - 127), for blocks of 64 columns of K.
    pairs: each i8 or ui8 of a and b is a pair of 4-bit integers of that sign (`louver.formats.pairs`), so K counts pairs.
    """

    name = "tt.dot"
    T: ClassVar = VarConstraint("T", base(TensorType[Attribute]))
    a = operand_def(TensorType)
    b = operand_def(TensorType)
    metadata = opt_operand_def(TensorType)
    c = operand_def(T)
    scales = var_operand_def(TensorType)
    input_precision = opt_prop_def(StringAttr, prop_name="inputPrecision")
    sparse_index = opt_prop_def(IntegerAttr[I32], prop_name="sparseIndex")
    max_imprecise = opt_prop_def(IntegerAttr[I32], prop_name="maxNumImpreciseAcc")
    pairs = opt_prop_def(UnitAttr)
    in_flight = opt_prop_def(UnitAttr, prop_name="inFlight")
    is_async = opt_prop_def(UnitAttr, prop_name="isAsync")
    d = result_def(T)
    traits = traits_def(Pure())
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    def __init__(
        self,
        a: SSAValue,
        b: SSAValue,
        c: SSAValue,
        max_imprecise: int | None = None,
        *,
        pairs: bool = False,
        scales: Sequence[SSAValue] = (),
    ) -> None:
        properties: dict[str, Attribute] = {"pairs": UnitAttr()} if pairs else {}
        if max_imprecise is not None:
            properties["maxNumImpreciseAcc"] = IntegerAttr(max_imprecise, i32)
        super().__init__(operands=[a, b, [], c, scales], properties=properties, result_types=[c.type])

    @property
    def parts(self) -> int:
        """The number of parts of an operand that are multiplied.

        Each has the bits of tf32; 1 for element types other than f32.
        """
        f32 = isinstance(tensor_of(self.a).element_type, Float32Type)
        return PARTS.get(self.input_precision.data, 1) if f32 and self.input_precision is not None else 1

    @property
    def wait(self) -> DotWaitOp | None:
        """The wait for its products; None if it ends with them."""
        user = next((use.operation for use in self.d.uses), None)
        return user if isinstance(user, DotWaitOp) else None

    def decomposed(self, a: SSAValue, b: SSAValue, metadata: SSAValue, sparse_index: int) -> DotOp:
        """The same product with values in place of the sparse operand among `a` and `b`, and with metadata."""
        properties = {**self.properties, "sparseIndex": IntegerAttr(sparse_index, i32)}
        return DotOp.build(
            operands=[a, b, [metadata], self.c, self.scales], properties=properties, result_types=[self.d.type]
        )

    def on(self, a: SSAValue, b: SSAValue) -> DotOp:
        """The same product of two other operands, which are dense."""
        return DotOp.build(
            operands=[a, b, [], self.c, []], properties=dict(self.properties), result_types=[self.d.type]
        )

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        """Parse `a, b, c`, or `a, b, metadata, c`. Text of older versions with metadata after c is read too."""
        operands = [parser.parse_unresolved_operand()]
        properties: dict[str, Attribute] = {}
        while parser.parse_optional_punctuation(","):
            operand = parser.parse_optional_unresolved_operand()
            if operand is None:
                _parse_property(parser, properties)
            else:
                operands.append(operand)
        attributes = parser.parse_optional_attr_dict()
        for name in cls.get_irdl_definition().properties.keys() & attributes.keys():
            properties[name] = attributes.pop(name)
        parser.parse_punctuation(":")
        start = parser.pos
        a, a_metadata = _parse_operand_type(parser)
        parser.parse_punctuation("*")
        b, b_metadata = _parse_operand_type(parser)
        parser.parse_punctuation("->")
        result = parser.parse_type()
        scales: list[Attribute] = []
        while (scales and parser.parse_optional_punctuation(",")) or parser.parse_optional_keyword("scaled"):
            scales.append(parser.parse_type())
        metadata = [type_ for type_ in (a_metadata, b_metadata) if type_ is not None]
        if len(operands) != 3 + len(metadata) + len(scales):
            parser.raise_error(
                f"a dot has a, b, c, and metadata where the type of one operand is followed by its metadata's: "
                f"got {len(operands)} operands and {3 + len(metadata) + len(scales)} types",
                start,
                parser.pos,
            )
        if metadata and _is_metadata(parser, operands[3]) and not _is_metadata(parser, operands[2]):
            operands[2:] = operands[3], operands[2]
        values = [
            parser.resolve_operand(each, type_)
            for each, type_ in zip(operands, [a, b, *metadata, result, *scales], strict=True)
        ]
        return cls.build(
            operands=[
                *values[:2],
                values[2 : 2 + len(metadata)],
                values[2 + len(metadata)],
                values[3 + len(metadata) :],
            ],
            properties=properties,
            attributes=attributes,
            result_types=[result],
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_ssa_value)
        if self.input_precision is not None:
            printer.print_string(f", inputPrecision = {self.input_precision.data}")
        if self.sparse_index is not None:
            printer.print_string(f", sparseIndex = {self.sparse_index.value.data}")
        printer.print_op_attributes(self.attributes | self.properties, reserved_attr_names=_WRITTEN)
        right = self.sparse_index is not None and self.sparse_index.value.data == 1
        extra = None if self.metadata is None else self.metadata.type
        printer.print_string(" : ")
        _print_operand_type(printer, self.a.type, None if right else extra)
        printer.print_string(" * ")
        _print_operand_type(printer, self.b.type, extra if right else None)
        printer.print_string(" -> ")
        printer.print_attribute(self.d.type)
        if self.scales:
            printer.print_string(" scaled ")
            printer.print_list([each.type for each in self.scales], printer.print_attribute)

    def verify_(self) -> None:
        a, b, d = tensor_of(self.a), tensor_of(self.b), tensor_of(self.d)
        shapes = [list(tensor.get_shape()) for tensor in (a, b, d)]
        if any(len(shape) != 2 for shape in shapes):
            raise VerifyException(f"a dot multiplies matrices, got {_product(*shapes)}")
        index = self._sparse_operand()
        if index is not None:
            shapes[index][1 - index] *= 2
        (m, k), (depth, n), result = shapes
        if k != depth or result != [m, n]:
            raise VerifyException(f"a dot is [M, K] * [K, N] -> [M, N], got {_product(*shapes)}")
        if self.in_flight is not None and self.c.owner is not self.parent:
            raise VerifyException("products in flight add to sums that their loop carries, got other sums")
        if self.is_async is not None and (self.in_flight is not None or not self.d.has_one_use() or self.wait is None):
            raise VerifyException("only ttng.warp_group_dot_wait reads the sums of a dot that is async, once")
        _verify_elements(a, b, d)
        if self.pairs is not None and d.element_type != i32:
            raise VerifyException(f"pairs are bytes of 4-bit integers, got {a.element_type} * {b.element_type}")
        self._verify_scales(m, n, k)
        _verify_sparse(a, b, d, k)
        _verify_registers(self, index)
        if self.metadata is not None and index is not None:
            self._verify_metadata(self.metadata, (m, n)[index], k, index)

    def _verify_scales(self, m: int, n: int, k: int) -> None:
        wanted = [[m, k // SCALED_COLUMNS], [n, k // SCALED_COLUMNS]]
        given = [tensor_of(each) for each in self.scales]
        if not given:
            return
        if [list(each.get_shape()) for each in given] != wanted or {each.element_type for each in given} != {_SCALE}:
            raise VerifyException(
                f"scales of blocks are ui8 {wanted[0]} and {wanted[1]}, got {', '.join(str(each) for each in given)}"
            )

    def _sparse_operand(self) -> int | None:
        """The number of the decomposed operand; None without one."""
        if (self.metadata is None) != (self.sparse_index is None):
            raise VerifyException(
                "a dot has metadata and a sparseIndex, or neither of the two, got "
                + ("a sparseIndex" if self.metadata is None else "metadata")
            )
        if self.sparse_index is None:
            return None
        index = self.sparse_index.value.data
        if index not in (0, 1):
            raise VerifyException(f"sparseIndex is 0 for a or 1 for b, got {index}")
        return index

    def _verify_metadata(self, metadata: SSAValue, rows: int, k: int, index: int) -> None:
        tensors = tensor_of(self.a), tensor_of(self.b)
        if any(sparse_encoding(tensor) for tensor in tensors):
            raise VerifyException(
                "a dot with metadata takes the values of its sparse operand: no operand has a sparse encoding"
            )
        element = tensors[index].element_type
        if not divides((rows, k), element):
            raise VerifyException(
                f"metadata is for whole rows of 16 and whole words of K, got [{rows}, {k}] of {element}"
            )
        shape = metadata_shape(rows, k, element)
        expected = TensorType(i16, shape if index == 0 else shape[::-1], tensor_of(metadata).encoding)
        if metadata.type != expected:
            raise VerifyException(f"the metadata of this dot is {expected}, got {metadata.type}")


@irdl_op_definition
class DotWaitOp(IRDLOperation):
    """Wait for the products of a dot that is async. The result is its sums.

    pendings: products of this number of later dots may run on.
    """

    name = "ttng.warp_group_dot_wait"
    T: ClassVar = VarConstraint("T", base(TensorType[Attribute]))
    sums = operand_def(T)
    pendings = prop_def(IntegerAttr[I32])
    result = result_def(T)
    traits = traits_def(MemoryReadEffect(), MemoryWriteEffect())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$sums attr-dict `:` type($sums)"

    def __init__(self, sums: SSAValue, pendings: int) -> None:
        properties = {"pendings": IntegerAttr(pendings, i32)}
        super().__init__(operands=[sums], properties=properties, result_types=[sums.type])

    def verify_(self) -> None:
        dot, later = self.sums.owner, 0
        if not isinstance(dot, DotOp) or dot.is_async is None or dot.parent is not self.parent:
            raise VerifyException("a wait is for a dot of its block that is async, got another value")
        op = dot.next_op
        while op is not None and op is not self:
            later += isinstance(op, DotOp) and op.is_async is not None
            op = op.next_op
        if op is None or not 0 <= self.pendings.value.data <= later:
            raise VerifyException(
                f"a wait follows its dot, and leaves at most the {later} later ones pending, got {self.pendings.value.data}"
            )


def _is_metadata(parser: Parser, operand: UnresolvedOperand) -> bool:
    """Whether an operand is known to be a tensor of 16-bit integers. An accumulator never has this type."""
    known = parser.ssa_values.get(operand.operand_name, ())
    tensor = as_tensor(known[operand.index].type) if operand.index < len(known) else None
    return tensor is not None and tensor.element_type == i16


def _parse_property(parser: Parser, properties: dict[str, Attribute]) -> None:
    """Parse `inputPrecision = tf32` or `sparseIndex = 0`."""
    if parser.parse_optional_keyword("inputPrecision"):
        parser.parse_punctuation("=")
        properties["inputPrecision"] = StringAttr(parser.parse_identifier())
    elif parser.parse_optional_keyword("sparseIndex"):
        parser.parse_punctuation("=")
        properties["sparseIndex"] = IntegerAttr(parser.parse_integer(allow_boolean=False), i32)
    else:
        parser.raise_error("expected an operand, inputPrecision or sparseIndex of a dot")


def _parse_operand_type(parser: Parser) -> tuple[Attribute, Attribute | None]:
    type_ = parser.parse_type()
    return type_, parser.parse_type() if parser.parse_optional_punctuation(",") else None


def _print_operand_type(printer: Printer, type_: Attribute, metadata: Attribute | None) -> None:
    printer.print_attribute(type_)
    if metadata is not None:
        printer.print_string(", ")
        printer.print_attribute(metadata)


def _product(*shapes: Sequence[int]) -> str:
    a, b, d = (list(shape) for shape in shapes)
    return f"{a} * {b} -> {d}"


def _verify_elements(a: AnyTensor, b: AnyTensor, d: AnyTensor) -> None:
    try:
        operands = (element_name(a.element_type), element_name(b.element_type))
        accumulator = element_name(d.element_type)
    except RuleError as error:
        raise VerifyException(str(error)) from None
    allowed = ACCUMULATORS.get(operands)
    if allowed is None:
        known = ", ".join(f"{left}*{right}" for left, right in ACCUMULATORS)
        raise VerifyException(f"a dot multiplies one of {known}, got {operands[0]}*{operands[1]}: convert one operand")
    if accumulator not in allowed:
        raise VerifyException(
            f"a dot of {operands[0]}*{operands[1]} accumulates in {' or '.join(allowed)}, got {accumulator}"
        )


def _verify_registers(op: DotOp, sparse: int | None) -> None:
    """Require that the encodings of operands fit their roles, with the encoding of the sums as parent."""
    sums = register_encoding(op.d.type)
    values = [op.a, op.b, *([] if op.metadata is None else [op.metadata])]
    found = [register_encoding(value.type) for value in values]
    if sums is None and not any(found):
        return
    wanted = [(0, VALUES if sparse == 0 else DENSE), (1, VALUES if sparse == 1 else DENSE), (sparse, METADATA)]
    for encoding, (index, meta) in zip(found, wanted, strict=False):
        if isinstance(sums, MmaAttr) and sums.of_warpgroup and meta != METADATA:
            if isinstance(encoding, SharedAttr):
                continue
            if index != sums.transposed.data:
                raise VerifyException(f"operand {index} of a dot of version 3 is in shared memory, got {encoding}")
        if not isinstance(encoding, DotOperandAttr) or not _is_operand(encoding, sums, index, meta):
            raise VerifyException(
                f"operand {index} of this dot, meta {meta}, has a #tt.dot_op<…> of {sums} that says so, got {encoding}"
            )


def _is_operand(encoding: DotOperandAttr, sums: Encoding | None, index: int | None, meta: int) -> bool:
    return encoding.parent == sums and (encoding.index.data, encoding.meta.data) == (index, meta)


def _verify_sparse(a: AnyTensor, b: AnyTensor, d: AnyTensor, k: int) -> None:
    if sparse_encoding(d):
        raise VerifyException(f"a dot's result is dense, got {d}")
    encodings = [encoding for encoding in (sparse_encoding(a), sparse_encoding(b)) if encoding]
    if len(encodings) > 1:
        raise VerifyException("one operand of a dot may be sparse, got two: decompress one of them")
    for encoding, operand in zip(encodings, (a if sparse_encoding(a) else b,), strict=False):
        encoding.verify_element(operand.element_type)
        kept = encoding.format
        if k % kept.group:
            raise VerifyException(f"{kept.pattern} needs K to be a multiple of {kept.group}, got K = {k}")
        rows = operand.get_shape()[0 if operand is a else 1]
        if rows % kept.length and kept.length % rows:
            raise VerifyException(
                f"{kept.pattern} needs rows to be a multiple of {kept.length}, or to divide it, got {rows}"
            )


EVERY_COLUMN = 1 << 30
"""Triton's default of `max_num_imprecise_acc` for a dot of 8-bit floats on Hopper."""


def promotion(dot: DotOp, element: str) -> int | None:
    """The dot's `max_num_imprecise_acc`; None if nothing is promoted: without it, with 0, and from `EVERY_COLUMN` on.
    None also for other types than 8-bit floats: only sums of those are less exact than their registers.
    """
    limit = 0 if dot.max_imprecise is None else dot.max_imprecise.value.data
    if limit < 0:
        raise unsupported("max_num_imprecise_acc is a number of columns of K, at least 0", dot)
    if element not in FP8 or not 0 < limit < EVERY_COLUMN:
        return None
    if element_name(tensor_of(dot.d).element_type) != "f32":
        raise unsupported("a dot with max_num_imprecise_acc has an f32 accumulator", dot, "sums are promoted to f32")
    return limit
