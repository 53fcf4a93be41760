from __future__ import annotations

from collections.abc import Callable

import pytest

from louver.isa.instruction import Instruction
from louver.isa.matrix import StoreMatrix
from louver.isa.memory import Load, LoadParameter
from louver.isa.move import Move
from louver.isa.scalar import Binary, Compare
from louver.isa.sync import BarrierSync, MbarrierInit, SetMaxRegisters
from louver.ptx.module import Address, Arg, Block, If, Imm, Inst, Kernel, Module, Node, Param, Reg, While
from louver.ptx.validate import ValidationError, check_arguments, validate

R0, R1, R2 = (Reg("b32", i) for i in range(3))
P0, P1 = (Reg("pred", i) for i in range(2))
H0, F0, D0 = Reg("b16", 0), Reg("f32", 0), Reg("b64", 0)
ADD = Binary("add", "u32")


def kernel(*nodes: Node, **changes: object) -> Kernel:
    made = Kernel("test", (Param("x", "u64"), Param("n", "u32")), Block(list(nodes)), threads=128)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def check(*nodes: Node, target: str = "sm_90a", **changes: object) -> None:
    validate(Module(target, [kernel(*nodes, **changes)]))


def set_(register: Reg, value: int = 1, **guard: object) -> Inst:
    return Inst(Move(register.type), (register, Imm(value)), **guard)  # type: ignore[arg-type]


# --- arguments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "op,args,rule",
    [
        (ADD, (R0, R1), r"takes 3 operands \(d, a, b\), got 2"),
        (BarrierSync(0, 32), (R0,), r"takes 0 operands \(none\), got 1"),
        (ADD, (R0, D0, R1), "operand a is a b32 register, got a b64 register"),
        (ADD, (R0, F0, R1), "operand a is a b32 register, got a f32 register"),
        (ADD, (Imm(3), R0, R1), "operand d must be a register, got the constant 3"),
        (ADD, (R0, R1, Imm(1 << 32)), "operand b holds 32 bits, got 4294967296"),
        (ADD, (R0, R1, Imm(-(1 << 31) - 1)), "operand b holds 32 bits"),
        (ADD, (R0, R1, Imm(1.5)), "operand b takes an int, got 1.5"),
        (ADD, (R0, R1, "x"), "operand b is a b32 value, got the symbol 'x'"),
        (ADD, (R0, R1, (R2,)), "operand b is 1 registers, got 1 in braces"),
        (Move("f32"), (F0, Imm(1)), "operand a takes a float, got 1"),
        (Move("pred"), (P0, Imm(2)), "operand a holds 1 bits, got 2"),
        (Move("pred"), (P0, Imm(-1)), "operand a holds 1 bits, got -1"),
        (Compare("eq", "f32"), (P0, F0, Imm(0)), "takes a float, got 0"),
        (Load("global", "b32"), (R0, D0), "operand a is an address, got a b64 register"),
        (Load("global", "b32"), (R0, Address(R1)), "operand a is addressed by a b64 register, got a b32 register"),
        (Load("global", "b32", 4), (R0, Address(D0)), "operand d is a vector of 4 registers, got a b32 register"),
        (Load("global", "b32", 4), ((R0, R1), Address(D0)), "operand d is 4 registers, got 2 in braces"),
        (StoreMatrix(), (Address(R0), (R0, R1, R2, H0)), "operand r is a b32 register, got a b16 register"),
        (MbarrierInit(), (Imm(8), Imm(1)), "operand addr is an address, got the constant 8"),
        (ADD, (R0, Address(D0), R1), r"operand a is a b32 value, got the address \["),
    ],
)
def test_arguments_fit_their_operands(op: Instruction, args: tuple[Arg, ...], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        check_arguments(op, args)


@pytest.mark.parametrize("value", [-(1 << 31), -1, 0, (1 << 32) - 1])
def test_constants_fill_the_width_either_way(value: int) -> None:
    check_arguments(ADD, (R0, R1, Imm(value)))


def test_errors_name_kernel_index_and_instruction() -> None:
    nodes = [set_(P0), If(P0, Block([set_(R1), Inst(ADD, (R2, R0))]))]
    with pytest.raises(ValidationError, match=r"^test, instruction 3 \(add\.u32\): add\.u32 takes 3 operands"):
        check(*nodes)


# --- assignment ----------------------------------------------------------------------------------------------------


def use(register: Reg) -> Inst:
    return Inst(ADD, (R2, register, Imm(1)))


@pytest.mark.parametrize(
    "nodes",
    [
        [set_(R0), use(R0)],
        [set_(P0), set_(R0, guard=P0), use(R0)],
        [set_(P0), If(P0, Block([set_(R0)]), Block([set_(R0, 2)])), use(R0)],
        [set_(P0), While(Block([set_(R0)]), P0), use(R0)],
        [While(Block([set_(P1)]), P1)],
        [set_(R0), set_(P0), If(P0, Block([use(R0)]))],
    ],
)
def test_registers_written_on_every_path_may_be_read(nodes: list[Node]) -> None:
    check(*nodes)


@pytest.mark.parametrize(
    "nodes,index",
    [
        ([use(R0)], 0),
        ([set_(P0), If(P0, Block([set_(R0)])), use(R0)], 3),
        ([set_(P0), If(P0, Block([set_(R0)]), Block([set_(R1)])), use(R0)], 4),
        ([set_(P0), If(P0, Block([set_(R0)]), Block([use(R0)]))], 3),
        ([If(P0, Block([]))], 0),
        ([While(Block([set_(R0)]), P0)], 0),
        ([set_(R0, guard=P0)], 0),
        ([set_(P0), While(Block([use(R0), set_(R0)]), P0)], 2),
        ([Inst(Load("global", "b32"), (R0, Address(D0)))], 0),
        ([set_(R0), set_(R1), Inst(StoreMatrix(), (Address("smem"), (R0, R1, R2, R0)))], 2),
    ],
)
def test_registers_that_may_be_unwritten_are_refused(nodes: list[Node], index: int) -> None:
    with pytest.raises(ValidationError, match=rf"instruction {index} .* may be read before it is written"):
        check(*nodes, dynamic_shared=512)


def test_a_conditional_write_is_enough_where_it_is_guarded() -> None:
    # `@p ld` followed by `@p use` is how tails are loaded; whether the guards agree is for the emulator to see.
    check(set_(P0), set_(R0, guard=P0, guard_negated=True), use(R0))


# --- convergence ---------------------------------------------------------------------------------------------------

SYNC = Inst(BarrierSync(0, 128), ())


@pytest.mark.parametrize(
    "nodes",
    [
        [SYNC],
        [set_(P0), If(P0, Block([SYNC]), Block([SYNC]), uniform=True)],
        [set_(P0), While(Block([If(P0, Block([SYNC]), uniform=True)]), P0, uniform=True)],
        [set_(P0), If(P0, Block()), SYNC],
    ],
)
def test_whole_warps_may_meet(nodes: list[Node]) -> None:
    check(*nodes)


@pytest.mark.parametrize(
    "nodes,index",
    [
        ([set_(P0), Inst(BarrierSync(0, 128), (), guard=P0)], 1),
        ([set_(P0), If(P0, Block([SYNC]))], 2),
        ([set_(P0), If(P0, Block(), Block([SYNC]))], 2),
        ([set_(P0), While(Block([SYNC]), P0)], 2),
        ([set_(P0), If(P0, Block([If(P0, Block([SYNC]), uniform=True)]))], 3),
    ],
)
def test_parts_of_a_warp_may_not(nodes: list[Node], index: int) -> None:
    with pytest.raises(ValidationError, match=rf"instruction {index} \(barrier.*needs all lanes of the warp"):
        check(*nodes)


# --- the rest ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "act,rule",
    [
        (lambda: check(set_(R0, guard=R1)), "a condition is a pred register, got a b32 register"),
        (lambda: check(set_(R0), If(R0, Block())), r"instruction 1 \(if\): a condition is a pred register"),
        (lambda: check(set_(R0), While(Block(), R0)), r"instruction 1 \(while\): a condition is a pred register"),
        (
            lambda: check(Inst(LoadParameter("u32"), (R0, Address("m")))),
            r"instruction 0 \(ld.param.u32\): the kernel's symbols are n, x, got 'm'",
        ),
        (lambda: check(Inst(LoadParameter("u64"), (D0, Address("n")))), r"a u64 parameter, got n \(u32\) \+ 0"),
        (lambda: check(Inst(LoadParameter("u32"), (R0, Address("n", 4)))), r"a u32 parameter, got n \(u32\) \+ 4"),
        (lambda: check(Inst(Load("shared", "b32"), (R0, Address("smem")))), "symbols are n, x, got 'smem'"),
        (
            lambda: check(Inst(SetMaxRegisters("inc", 240), ()), target="sm_100a"),
            "needs sm_90a, got the target sm_100a",
        ),
        (lambda: check(set_(R0), target="sm_70"), "the targets are"),
        (lambda: check(name="2x"), "a name is a letter, or _"),
        (lambda: check(name="_"), "a name is a letter, or _"),
        (lambda: check(params=(Param("a b", "u32"),)), "a name is a letter, or _"),
        (lambda: check(params=(Param("a", "u32"), Param("a", "u64"))), "have different names"),
        (lambda: check(params=(Param("smem", "u32"),)), "have different names"),
        (lambda: check(threads=0), "sm_90a has 1 to 1024 threads, got 0"),
        (lambda: check(threads=1056), "1 to 1024 threads, got 1056"),
        (lambda: check(cluster=9), "1 to 8 CTAs a cluster, got 9"),
        (lambda: check(min_ctas=25, target="sm_89"), "sm_89 has 1 to 24 CTAs an SM, got 25"),
        (lambda: check(cluster=2, target="sm_80"), "sm_80 has 1 to 1 CTAs a cluster, got 2"),
        (lambda: check(dynamic_shared=227 * 1024 + 1), "bytes of dynamic shared memory, got 232449"),
        (lambda: check(min_ctas=0), "CTAs an SM, got 0"),
        (lambda: validate(Module("sm_90a", [kernel(), kernel()])), "different names, got several of test"),
    ],
)
def test_broken_rules_are_named(act: Callable[[], None], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        act()
