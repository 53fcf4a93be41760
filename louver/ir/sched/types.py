"""Types and attributes of the `sched` dialect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr
from xdsl.ir import Attribute, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from louver.isa.bulk import SwizzleBytes
from louver.isa.wgmma import Wgmma


@irdl_attr_definition
class MapType(ParametrizedAttribute, TypeAttribute):
    """A tensor map passed by value: `!sched.map<"a", [32, 128], 2, 64>`.

    operand: the operand of the product that it describes.
    box: elements of a copy in each dimension, innermost first.
    element_bytes: bytes of an element.
    swizzle: span in bytes; 0 for none.
    adds: the element type if copies add to memory, printed after the span; otherwise "".
    """

    name = "sched.map"
    operand: StringAttr
    box: ArrayAttr[IntAttr]
    element_bytes: IntAttr
    swizzle: IntAttr
    adds: StringAttr

    @classmethod
    def of(cls, operand: str, box: Sequence[int], element_bytes: int, swizzle: int, adds: str = "") -> MapType:
        """The type from plain values."""
        sizes = ArrayAttr([IntAttr(b) for b in box])
        return cls(StringAttr(operand), sizes, IntAttr(element_bytes), IntAttr(swizzle), StringAttr(adds))

    @property
    def box_bytes(self) -> int:
        """Bytes that one copy writes to shared memory."""
        total = self.element_bytes.data
        for size in self.box:
            total *= size.data
        return total

    @property
    def span(self) -> SwizzleBytes:
        """The span of the swizzle in bytes."""
        return cast(SwizzleBytes, self.swizzle.data)

    def verify(self) -> None:
        inner = self.box.data[0].data * self.element_bytes.data
        if self.swizzle.data not in (0, 32, 64, 128):
            raise VerifyException(f"the swizzle span is 0, 32, 64 or 128 bytes, got {self.swizzle.data}")
        if self.swizzle.data and inner > self.swizzle.data:
            raise VerifyException(
                f"the box's inner bytes must fit the swizzle span, got {inner} for {self.swizzle.data}"
            )

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string_literal(self.operand.data)
            box = ", ".join(str(size.data) for size in self.box)
            printer.print_string(f", [{box}], {self.element_bytes.data}, {self.swizzle.data}")
            if self.adds.data:
                printer.print_string(", ")
                printer.print_string_literal(self.adds.data)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            operand = parser.parse_str_literal()
            parser.parse_punctuation(",")
            box = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
            parser.parse_punctuation(",")
            element_bytes = parser.parse_integer()
            parser.parse_punctuation(",")
            swizzle = parser.parse_integer()
            adds = parser.parse_str_literal() if parser.parse_optional_punctuation(",") else ""
        made = cls.of(operand, box, element_bytes, swizzle, adds)
        return [made.operand, made.box, made.element_bytes, made.swizzle, made.adds]


@irdl_attr_definition
class PointerType(ParametrizedAttribute, TypeAttribute):
    """A pointer to global memory, with the name and element type of its operand: `!sched.ptr<"bias", "f16">`."""

    name = "sched.ptr"
    operand: StringAttr
    element: StringAttr


@irdl_attr_definition
class SizeType(ParametrizedAttribute, TypeAttribute):
    """A size or stride in elements, unsigned: `!sched.size<"M", 32>`. The width is 32 or 64 bits."""

    name = "sched.size"
    meaning: StringAttr
    width: IntAttr

    def verify(self) -> None:
        if self.width.data not in (32, 64):
            raise VerifyException(f"a size is 32 or 64 bits wide, got {self.width.data}")


@irdl_attr_definition
class WgmmaAttr(ParametrizedAttribute):
    """The warpgroup product that a kernel issues. The fields are those of `louver.isa.wgmma.Wgmma`."""

    name = "sched.wgmma"
    n: IntAttr
    a: StringAttr
    b: StringAttr
    d: StringAttr
    sparse: IntAttr
    transpose_b: IntAttr

    @classmethod
    def of(cls, instruction: Wgmma) -> WgmmaAttr:
        """The attribute for `instruction`, without the selector."""
        return cls(
            IntAttr(instruction.n),
            StringAttr(instruction.a),
            StringAttr(instruction.b),
            StringAttr(instruction.d),
            IntAttr(int(instruction.sparse)),
            IntAttr(int(instruction.transpose_b)),
        )

    def instruction(self, selector: int = 0) -> Wgmma:
        """The instruction with this selector."""
        return Wgmma(
            n=self.n.data,
            a=self.a.data,
            b=self.b.data,
            d=self.d.data,
            sparse=bool(self.sparse.data),
            transpose_b=bool(self.transpose_b.data),
            selector=selector,
        )
