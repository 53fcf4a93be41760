"""Inline assembly (`tl.inline_asm_elementwise`) as operations of tile IR: statements of PTX that work on one element.

Registers hold bits, so a value is cast to the type that an instruction reads.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, IntegerAttr, IntegerType, StringAttr, f32
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, prop_def, var_operand_def, var_result_def
from xdsl.parser import Parser

from louver.frontend.ttir.instructions import IMMEDIATE, INSTRUCTIONS, TYPES
from louver.frontend.ttir.libdevice import filled, like
from louver.frontend.ttir.limits import MAX_ASSEMBLY
from louver.ir.refusal import UnsupportedKernelError, unsupported
from louver.ir.tile.types import element_of


@irdl_op_definition
class InlineAssemblyOp(IRDLOperation):
    """PTX for each element. pack: elements at a time."""

    name = "tt.elementwise_inline_asm"
    srcs = var_operand_def()
    result = var_result_def()
    text = prop_def(StringAttr)
    constraints = prop_def(StringAttr)
    pack = prop_def(IntegerAttr[IntegerType])

    @classmethod
    def parse(cls, parser: Parser) -> InlineAssemblyOp:
        # A comment may have letters beyond ASCII.
        raw = parser.parse_optional_bytes_literal()
        text = StringAttr(parser.parse_str_literal() if raw is None else raw.decode(errors="replace"))
        attributes = parser.parse_optional_attr_dict()
        operands = parser.parse_optional_undelimited_comma_separated_list(
            parser.parse_optional_unresolved_operand, parser.parse_unresolved_operand
        )
        types: list[Attribute] = []
        if operands:
            parser.parse_punctuation(":")
            types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        parser.parse_punctuation("->")
        results = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        constraints, pack = attributes.get("constraints"), attributes.get("packed_element")
        if not isinstance(constraints, StringAttr) or not isinstance(pack, IntegerAttr):
            parser.raise_error("inline assembly has constraints and a number of packed elements")
        properties: dict[str, Attribute] = {"text": text, "constraints": constraints, "pack": pack}
        return cls.build(
            operands=[parser.resolve_operands(operands or [], types, parser.pos)],
            result_types=[results],
            properties=properties,
        )


_BITS = {"r": 32, "f": 32, "h": 16, "l": 64}
"""Bits of a register by its constraint."""

_RESULT, _SOURCE = re.compile(r"=&?([rfhl])"), re.compile(r"([rfhl])")

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STATEMENT = re.compile(r"\s*(?:([{}])|([^;{}]*(?:\{[^{}]*\}[^;{}]*)*);)")
_DECLARATION = re.compile(r"\.reg\s+\.(\w+)\s+(.+)", re.DOTALL)
_DECLARED = re.compile(r"\s*([%$\w]+)(?:<(\d{1,9})>)?\s*")
_INTEGER = re.compile(r"(-?)(0[xX][0-9a-fA-F]{1,16}|0[bB][01]{1,64}|[1-9]\d{0,19}|0)U?")
_FLOAT = re.compile(r"0[fF]([0-9a-fA-F]{8})")
_DECIMAL = re.compile(r"-?\d+\.\d*(?:[eE][-+]?\d+)?")
_MAX_DECLARED = 256
"""Temporaries of one counted name."""

_LONGEST = 60
"""Characters of the text in a message."""


@dataclass(slots=True)
class _Register:
    """bits: 1 of a predicate. value: the last one that was written."""

    bits: int
    value: SSAValue | None = None


def read_assembly(op: InlineAssemblyOp) -> Sequence[SSAValue]:
    """The results of inline assembly. An implicit builder inserts the operations that compute them.

    Raises UnsupportedKernelError with the instruction for statements that are not element-wise, and for text that is
    no PTX.
    """
    if (pack := op.pack.value.data) != 1:
        raise _refused(op, f"pack is 1, and not {pack}: packed elements are not element-wise", "set pack=1")
    if (size := len(op.text.data)) > MAX_ASSEMBLY:
        raise _refused(op, f"a text has at most {MAX_ASSEMBLY:,} characters, and not {size:,}", "divide it")
    return _Reader(op).read()


class _Reader:
    """Reads statements. scopes: registers by name, of the open blocks from the outside in."""

    def __init__(self, op: InlineAssemblyOp) -> None:
        self.op = op
        self.shape = op.result[0].type
        results = [_Register(self._bits(each.type)) for each in op.result]
        sources = [_Register(self._bits(each.type), each) for each in op.srcs]
        registers = [*results, *sources]
        marks = [each.strip() for each in op.constraints.data.split(",")]
        if len(marks) != len(registers):
            raise self._refused(
                f"each of {len(registers)} operands has a constraint, unlike in `{op.constraints.data}`"
            )
        for number, (mark, register) in enumerate(zip(marks, registers, strict=True)):
            found = (_RESULT if number < len(results) else _SOURCE).fullmatch(mark)
            if found is None or _BITS[found[1]] != register.bits:
                raise self._refused(
                    f"constraints are r or f for 32 bits, h for 16 and l for 64, those of results =r and so on; "
                    f"`{mark}` of ${number} is none for {register.bits} bits",
                    "convert the tile before, such as by .to(tl.int32)",
                )
        self.scopes = [{f"${number}": register for number, register in enumerate(registers)}]

    def read(self) -> list[SSAValue]:
        """The results."""
        text, position = _COMMENT.sub(" ", self.op.text.data), 0
        while found := _STATEMENT.match(text, position):
            position = found.end()
            if found[1] == "{":
                self.scopes.append({})
            elif found[1] == "}":
                self._close()
            elif statement := found[2].strip():
                self._statement(statement)
        if rest := text[position:].strip():
            raise self._refused(f"a statement ends with `;`, unlike `{_short(rest)}`")
        if len(self.scopes) > 1:
            raise self._refused("a block ends with `}`")
        return [self._cast(self._written(f"${number}"), each.type) for number, each in enumerate(self.op.result)]

    def _close(self) -> None:
        if len(self.scopes) == 1:
            raise self._refused("a `}` ends a block")
        self.scopes.pop()

    def _statement(self, statement: str) -> None:
        word, *rest = statement.split(None, 1)
        if word == ".reg":
            self._declare(statement)
            return
        operands = [each.strip() for each in rest[0].split(",")] if rest else []
        instruction = INSTRUCTIONS.get(word.replace(".ftz", ""))
        if instruction is None:
            known = sorted({name.partition(".")[0] for name in INSTRUCTIONS})
            raise self._refused(
                f"`{_short(word)}` is not element-wise, or is not among the instructions that Louver reads",
                f"use Triton's own operations, or forms of {', '.join(known)} for single elements",
            )
        if len(operands) != 1 + len(instruction.reads):
            raise self._refused(f"`{word}` has {1 + len(instruction.reads)} operands, and not {len(operands)}")
        sources = [self._source(each, type_) for each, type_ in zip(operands[1:], instruction.reads, strict=True)]
        register = self._register(operands[0])
        value = SSAValue.get(instruction.make(*sources))
        self._check(operands[0], register.bits, value.type)
        register.value = value

    def _declare(self, statement: str) -> None:
        """Registers without values: `.reg .b32 a, b<4>`."""
        found = _DECLARATION.fullmatch(statement)
        type_ = None if found is None else TYPES.get(found[1])
        if found is None or type_ is None:
            raise self._refused(f"temporaries are .pred, or have 16, 32 or 64 bits, unlike `{_short(statement)}`")
        for name in found[2].split(","):
            named = _DECLARED.fullmatch(name)
            count = int(named[2] or 0) if named else 0
            if named is None or count > _MAX_DECLARED:
                raise self._refused(
                    f"a temporary has a name, or stands for up to {_MAX_DECLARED}, unlike `{_short(name)}`"
                )
            for each in [f"{named[1]}{number}" for number in range(count)] if named[2] else [named[1]]:
                self.scopes[-1][each] = _Register(self._bits(type_))

    def _source(self, text: str, type_: str) -> SSAValue | int:
        """The value of a register or number as a PTX type, or an immediate."""
        to = like(self.shape, TYPES.get(type_, f32))
        if found := _INTEGER.fullmatch(text):
            number = int(found[1] + found[2], 0)
            if type_ == IMMEDIATE:
                return number
            if isinstance(TYPES[type_], IntegerType):
                return filled(number, to)
            raise self._refused(f"a number of type {type_} is written as 1.0 or 0f3F800000, unlike `{_short(text)}`")
        if type_ == IMMEDIATE:
            raise self._refused(f"the last operand of `lop3` and `prmt` is a written integer, and not `{_short(text)}`")
        value = self._float(text) or self._written(text)
        self._check(text, self._bits(to), value.type)
        return self._cast(value, to)

    def _float(self, text: str) -> SSAValue | None:
        if found := _FLOAT.fullmatch(text):
            (number,) = struct.unpack("!f", bytes.fromhex(found[1]))
        elif _DECIMAL.fullmatch(text):
            number = float(text)
        else:
            return None
        return filled(number, like(self.shape, f32))

    def _register(self, name: str) -> _Register:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        raise self._refused(f"an operand is a number, `$0`, `$1`, … or a temporary, and `{_short(name)}` is none")

    def _written(self, name: str) -> SSAValue:
        value = self._register(name).value
        if value is None:
            raise self._refused(f"`{name}` is written before it is read")
        return value

    def _check(self, name: str, bits: int, type_: Attribute) -> None:
        if self._bits(type_) != bits:
            raise self._refused(f"`{name}` has {self._bits(type_)} bits, where {bits} are needed")

    def _cast(self, value: SSAValue, type_: Attribute) -> SSAValue:
        return value if value.type == type_ else arith.BitcastOp(value, type_).result

    def _bits(self, type_: Attribute) -> int:
        element = element_of(type_)
        if not isinstance(element, IntegerType | AnyFloat):
            raise self._refused(f"operands are numbers, and not {element}")
        return element.bitwidth

    def _refused(self, rule: str, advice: str = "") -> UnsupportedKernelError:
        return _refused(self.op, rule, advice)


def _short(text: str) -> str:
    """The text in one line."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …"


def _refused(op: Operation, rule: str, advice: str = "") -> UnsupportedKernelError:
    return unsupported(f"inline assembly: {rule}", op, advice)
