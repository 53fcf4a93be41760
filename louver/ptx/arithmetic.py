"""Kernel builder: registers, emission, structured control flow, and methods for scalar instructions. Values are registers,
constants or Python numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Literal, TypeAlias

from louver.isa.bits import TRUTH, CountOnes, Logic3, PermuteBytes
from louver.isa.convert import (
    ConvertInteger,
    Fp8,
    Fp8PairFromF32,
    FromF32,
    Half,
    IntegerToF32,
    IntegerToHalf,
    PairFromF32,
    ToF32,
)
from louver.isa.instruction import Instruction, Operand, RegType
from louver.isa.move import Move, Pack, Select, ShuffleButterfly, ShuffleIndex, Special
from louver.isa.packed import PackedBinary, PackedOp
from louver.isa.scalar import Binary, Compare, MultiplyAdd, MultiplyWide
from louver.ptx.module import Arg, Block, If, Imm, Inst, Kernel, Node, Param, Reg, While
from louver.ptx.validate import check_arguments

Number: TypeAlias = Reg | Imm | int | float


class Loop:
    """The handle of a loop under construction."""

    def __init__(self) -> None:
        self.condition: Reg | None = None
        self.negated = False

    def repeat_if(self, condition: Reg, *, negated: bool = False) -> None:
        """Repeat the body while `condition` holds, or with `negated` does not hold."""
        self.condition = condition
        self.negated = negated


class Branch:
    """The handle of a branch under construction."""

    def __init__(self, builder: BuilderCore, node: If) -> None:
        self._builder = builder
        self._node = node

    @contextmanager
    def otherwise(self) -> Generator[None]:
        """The block for lanes where the condition fails. Raises ValueError unless it directly follows the branch."""
        if not self._builder.is_last(self._node) or self._node.otherwise is not None:
            raise ValueError("otherwise must directly follow its branch, once: join the blocks or branch again")
        self._node.otherwise = Block()
        with self._builder.inside(self._node.otherwise):
            yield


class BuilderCore:
    """Registers, emission and control flow. Arguments: see `Kernel`."""

    def __init__(
        self,
        name: str,
        params: tuple[Param, ...],
        *,
        threads: int,
        min_ctas: int = 1,
        cluster: int = 1,
        dynamic_shared: int = 0,
    ) -> None:
        body = Block()
        self._blocks = [body]
        self._counts: dict[RegType, int] = {}
        self._place: str | None = None
        self._kernel = Kernel(name, params, body, threads, min_ctas, cluster, dynamic_shared)

    def finish(self) -> Kernel:
        """The kernel. Raises ValueError inside an open block."""
        if len(self._blocks) != 1:
            raise ValueError("a kernel must be finished outside of its loops and branches")
        return self._kernel

    @property
    def params(self) -> dict[str, Param]:
        return {param.name: param for param in self._kernel.params}

    def reg(self, kind: RegType) -> Reg:
        index = self._counts.get(kind, 0)
        self._counts[kind] = index + 1
        return Reg(kind, index)

    def regs(self, kind: RegType, count: int) -> list[Reg]:
        """New registers with consecutive numbers."""
        return [self.reg(kind) for _ in range(count)]

    @contextmanager
    def at(self, place: str | None) -> Generator[None]:
        """Nodes of this context come from `place` in the user's text. None keeps the current place."""
        outer, self._place = self._place, place or self._place
        try:
            yield
        finally:
            self._place = outer

    def emit(self, op: Instruction, *args: Arg | int | float, guard: Reg | None = None, negated: bool = False) -> None:
        """Append an instruction for lanes where `guard` holds, or with `negated` does not hold.

        Python numbers become constants. Raises ValueError if the arguments do not fit the operands.
        """
        operands = op.operands
        given = tuple(
            _immediate(operands[index] if index < len(operands) else None, arg) if isinstance(arg, int | float) else arg
            for index, arg in enumerate(args)
        )
        check_arguments(op, given)
        self._append(Inst(op, given, guard, negated))

    @contextmanager
    def if_(self, condition: Reg, *, negated: bool = False, uniform: bool = False) -> Generator[Branch]:
        """The block runs in lanes where `condition` holds. uniform: promises that all lanes of a warp agree."""
        node = If(condition, Block(), negated=negated, uniform=uniform)
        self._append(node)
        with self.inside(node.then):
            yield Branch(self, node)

    @contextmanager
    def loop(self, *, uniform: bool = False) -> Generator[Loop]:
        """A do-while loop. `repeat_if` of its handle must be called inside."""
        block, handle = Block(), Loop()
        with self.inside(block):
            yield handle
        if handle.condition is None:
            raise ValueError("a loop needs a condition to repeat: call repeat_if inside it")
        self._append(While(block, handle.condition, handle.negated, uniform))

    @contextmanager
    def while_(self, condition: Callable[[], Reg], *, uniform: bool = False) -> Generator[None]:
        """A loop that tests first. condition: emits the test, before the loop and at its end."""
        with self.if_(condition(), uniform=uniform), self.loop(uniform=uniform) as handle:
            yield
            handle.repeat_if(condition())

    @contextmanager
    def inside(self, block: Block) -> Generator[None]:
        """Append to `block` in this context."""
        self._blocks.append(block)
        try:
            yield
        finally:
            self._blocks.pop()

    def is_last(self, node: Node) -> bool:
        """Whether `node` is the last one of the current block."""
        nodes = self._blocks[-1].nodes
        return bool(nodes) and nodes[-1] is node

    def _append(self, node: Node) -> None:
        node.place = self._place
        self._blocks[-1].nodes.append(node)


def _immediate(operand: Operand | None, number: int | float) -> Imm:
    return Imm(float(number)) if operand is not None and operand.type == "f32" else Imm(number)


Unsigned = Literal["u32", "u64"]


def _register_type(*numbers: Number) -> RegType:
    """The class of the first register among the operands; b32 when all are constants."""
    for number in numbers:
        if isinstance(number, Reg):
            return number.type
    return "b32"


def _unsigned(kind: RegType) -> Unsigned:
    return "u64" if kind == "b64" else "u32"


def _is_zero(number: Number) -> bool:
    return number == 0 or number == Imm(0)


class Arithmetic(BuilderCore):
    """Integers are unsigned, with the 32 or 64 bits of their registers."""

    def _result(self, op: Instruction, kind: RegType, into: Reg | None, *args: Number) -> Reg:
        result = self.reg(kind) if into is None else into
        self.emit(op, result, *args)
        return result

    def _binary(self, name: str, a: Number, b: Number, into: Reg | None = None) -> Reg:
        kind = _register_type(a, b)
        return self._result(Binary(name, _unsigned(kind)), kind, into, a, b)

    def _bitwise(self, name: Literal["and", "or", "xor"], a: Number, b: Number, into: Reg | None = None) -> Reg:
        kind = _register_type(a, b)
        return self._result(Binary(name, "b64" if kind == "b64" else "b32"), kind, into, a, b)

    def add(self, a: Number, b: Number, *, into: Reg | None = None) -> Reg:
        """a + b. Adding 0 to a register emits nothing."""
        if into is None and isinstance(a, Reg) and _is_zero(b):
            return a
        return self._binary("add", a, b, into)

    def sub(self, a: Number, b: Number, *, into: Reg | None = None) -> Reg:
        """a - b. Subtracting 0 from a register emits nothing."""
        if into is None and isinstance(a, Reg) and _is_zero(b):
            return a
        return self._binary("sub", a, b, into)

    def mul_lo(self, a: Number, b: Number, *, into: Reg | None = None) -> Reg:
        """The low half of a · b."""
        return self._binary("mul.lo", a, b, into)

    def mad_lo(self, a: Number, b: Number, c: Number) -> Reg:
        """The low half of a · b + c."""
        kind = _register_type(a, b, c)
        return self._result(MultiplyAdd(_unsigned(kind)), kind, None, a, b, c)

    def mul_wide(self, a: Number, b: Number) -> Reg:
        """The 64-bit product of 32-bit factors."""
        return self._result(MultiplyWide(), "b64", None, a, b)

    def mad_wide(self, a: Number, b: Number, c: Number) -> Reg:
        """The 64-bit product of 32-bit factors, plus a 64-bit c."""
        return self._result(MultiplyWide(add=True), "b64", None, a, b, c)

    def div(self, a: Number, b: Number) -> Reg:
        """a / b, rounded down. Division by 1 emits nothing, by a power of two a shift, which ptxas does not do."""
        if isinstance(a, Reg) and b in (1, Imm(1)):
            return a
        divisor = b.value if isinstance(b, Imm) else b
        if isinstance(divisor, int) and divisor > 0 and divisor & (divisor - 1) == 0:
            return self.shr(a, divisor.bit_length() - 1)
        return self._binary("div", a, b)

    def min(self, a: Number, b: Number) -> Reg:
        return self._binary("min", a, b)

    def shr(self, a: Number, amount: Number) -> Reg:
        """a >> amount, filled with zeros."""
        return self._binary("shr", a, amount)

    def shl(self, a: Number, amount: Number) -> Reg:
        kind = _register_type(a)
        return self._result(Binary("shl", "b64" if kind == "b64" else "b32"), kind, None, a, amount)

    def and_(self, a: Number, b: Number) -> Reg:
        return self._bitwise("and", a, b)

    def or_(self, a: Number, b: Number, *, into: Reg | None = None) -> Reg:
        return self._bitwise("or", a, b, into)

    def xor(self, a: Number, b: Number, *, into: Reg | None = None) -> Reg:
        return self._bitwise("xor", a, b, into)

    def logic(self, function: Callable[[int, int, int], int], a: Number, b: Number, c: Number) -> Reg:
        """A bitwise function of three 32-bit values, such as `lambda a, b, c: a & b | ~c`."""
        return self._result(Logic3(function(*TRUTH) & 0xFF), "b32", None, a, b, c)

    def permute(self, a: Number, b: Number, selector: Number) -> Reg:
        """Four of the bytes of a (0 to 3) and b (4 to 7), lowest first. Each nibble of the selector names a byte. 8
        more gives copies of its top bit.
        """
        return self._result(PermuteBytes(), "b32", None, a, b, selector)

    def count_ones(self, a: Number) -> Reg:
        return self._result(CountOnes(), "b32", None, a)

    def and_pred(self, a: Reg, b: Reg) -> Reg:
        return self._result(Binary("and", "pred"), "pred", None, a, b)

    def setp(self, compare: str, kind: Literal["s32", "u32", "s64", "u64", "f32"], a: Number, b: Number) -> Reg:
        """A predicate: `a compare b`."""
        return self._result(Compare(compare, kind), "pred", None, a, b)

    def selp(self, a: Number, b: Number, condition: Reg, *, into: Reg | None = None) -> Reg:
        """a where `condition` holds, else b."""
        kind = _register_type(a, b) if into is None else into.type
        return self._result(Select(kind), kind, into, a, b, condition)

    def mov(self, a: Number, *, into: Reg | None = None, kind: RegType | None = None) -> Reg:
        """A copy in a register of `kind`: by default the class of `into`, of `a`, or b32 for a constant."""
        kind = kind or (_register_type(a) if into is None else into.type)
        return self._result(Move(kind), kind, into, a)

    def widen_u64(self, a: Number) -> Reg:
        """The 64-bit register of a 32-bit value."""
        return self._result(ConvertInteger("u64", "u32"), "b64", None, a)

    def low_half(self, a: Reg) -> Reg:
        """The low 16 bits of a 32-bit register."""
        return self._result(ConvertInteger("u16", "u32"), "b16", None, a)

    def pack_b64(self, low: Reg, high: Reg) -> Reg:
        """Two 32-bit registers as one of 64 bits."""
        result = self.reg("b64")
        self.emit(Pack("b64"), result, (low, high))
        return result

    def pack_b32(self, low: Reg, high: Reg) -> Reg:
        """Two 16-bit registers as one of 32 bits."""
        result = self.reg("b32")
        self.emit(Pack("b32"), result, (low, high))
        return result

    def add_f32(self, a: Number, b: Number, *, into: Reg | None = None) -> Reg:
        return self._result(Binary("add", "f32"), "f32", into, a, b)

    def mul_f32(self, a: Number, b: Number) -> Reg:
        return self._result(Binary("mul", "f32"), "f32", None, a, b)

    def packed(self, op: PackedOp, kind: Half, a: Reg, b: Reg) -> Reg:
        """`op` on two 16-bit floats in a register each, see `PackedBinary`."""
        return self._result(PackedBinary(op, kind), "b32", None, a, b)

    def halves(self, a: Reg) -> tuple[Reg, Reg]:
        """The low and the high 16 bits of a 32-bit register."""
        return self.low_half(a), self.low_half(self.shr(a, 16))

    def from_f32(self, to: Half, a: Reg) -> Reg:
        """A 16-bit float, to nearest even."""
        return self._result(FromF32(to), "b16", None, a)

    def pair_from_f32(self, to: Half, low: Reg, high: Reg) -> Reg:
        """Two 16-bit floats in one register."""
        return self._result(PairFromF32(to), "b32", None, high, low)

    def fp8_pair_from_f32(self, to: Fp8, low: Reg, high: Reg) -> Reg:
        """Two 8-bit floats in a 16-bit register. Greater numbers become the greatest finite value."""
        return self._result(Fp8PairFromF32(to), "b16", None, high, low)

    def half_from_s32(self, to: Half, a: Reg) -> Reg:
        """A signed integer as a 16-bit float, to nearest even."""
        return self._result(IntegerToHalf(to, "s32"), "b16", None, a)

    def f32_from_s32(self, a: Reg) -> Reg:
        """A signed integer as f32, to nearest even."""
        return self._result(IntegerToF32("s32"), "f32", None, a)

    def to_f32(self, source: Half, a: Reg) -> Reg:
        return self._result(ToF32(source), "f32", None, a)

    def special(self, name: str) -> Reg:
        return self._result(Special(name), "b32", None)

    def shuffle(self, a: Reg, lane: Number) -> Reg:
        return self._result(ShuffleIndex(), "b32", None, a, lane)

    def shuffle_xor(self, a: Reg, mask: Number) -> Reg:
        """`a` of the lane whose number is the own one xor `mask`, a number below 32."""
        return self._result(ShuffleButterfly(), "b32", None, a, mask)
