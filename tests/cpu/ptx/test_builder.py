"""The builder's text, run on the emulator, and its refusals."""

from __future__ import annotations

import numpy as np
import pytest

from louver.emulator import GlobalMemory, run
from louver.isa.memory import Load
from louver.isa.scalar import Binary
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Imm, Inst, Kernel, Module, Param, Reg, While
from louver.ptx.validate import validate


def builder(**params: str) -> KernelBuilder:
    listed = tuple(Param(name, kind) for name, kind in params.items())  # type: ignore[arg-type]
    return KernelBuilder("test", listed, threads=64, dynamic_shared=256)


def launch(kernel: Kernel, grid: int, **arguments: object) -> None:
    validate(Module("sm_90a", [kernel]))
    memory = GlobalMemory()
    bound = {n: memory.add(n, a) if isinstance(a, np.ndarray) else a for n, a in arguments.items()}
    run(kernel, grid, bound, memory=memory)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [1, 63, 64, 129])
def test_a_guarded_kernel_leaves_the_tail_alone(n: int, rng: np.random.Generator) -> None:
    k = builder(x="u64", y="u64", n="u32", a="f32")
    index = k.mad_lo(k.special("%ctaid.x"), 64, k.special("%tid.x"))
    inside = k.setp("lt", "u32", index, k.ld_param("n"))
    value = k.mov(0, kind="f32")
    k.load_global((value,), Address(k.mad_wide(index, 4, k.ld_param("x"))), guard=inside)
    place = Address(k.mad_wide(index, 4, k.ld_param("y")))
    k.store_global(place, k.add_f32(k.mul_f32(value, k.ld_param("a")), 1), guard=inside)
    x = rng.normal(size=n).astype(np.float32)
    y = np.full(200, 7, np.float32)
    launch(k.finish(), 3 if n > 128 else 2, x=x, y=y, n=n, a=0.25)
    np.testing.assert_array_equal(y[:n], x * np.float32(0.25) + np.float32(1))
    assert (y[n:] == 7).all()


def test_both_sides_of_a_branch_run_for_their_lanes() -> None:
    k = builder(y="u64")
    tid = k.special("%tid.x")
    result = k.mov(0)
    with k.if_(k.setp("lt", "u32", tid, 20)) as branch:
        k.mul_lo(tid, tid)
        k.mov(k.mul_lo(tid, tid), into=result)
    with branch.otherwise(), k.if_(k.setp("eq", "u32", k.and_(tid, 1), 1), negated=True):
        k.mov(5, into=result)
    k.store_global(Address(k.mad_wide(tid, 4, k.ld_param("y"))), result)
    y = np.zeros(64, np.uint32)
    launch(k.finish(), 1, y=y)
    assert y.tolist() == [t * t if t < 20 else 0 if t & 1 else 5 for t in range(64)]


@pytest.mark.parametrize("negated", [False, True])
def test_a_loop_runs_once_before_it_is_asked(negated: bool) -> None:
    k = builder(y="u64")
    tid = k.special("%tid.x")
    count = k.mov(0)
    with k.loop() as loop:
        k.add(count, 1, into=count)
        loop.repeat_if(k.setp("ge" if negated else "lt", "u32", count, tid), negated=negated)
    k.store_global(Address(k.mad_wide(tid, 4, k.ld_param("y"))), count)
    y = np.zeros(64, np.uint32)
    launch(k.finish(), 1, y=y)
    assert y.tolist() == [max(1, t) for t in range(64)]


def test_a_pretested_loop_may_not_run_at_all() -> None:
    k = builder(y="u64")
    tid = k.special("%tid.x")
    count, total = k.mov(0), k.mov(100)
    with k.while_(lambda: k.setp("lt", "u32", count, tid)):
        k.add(total, count, into=total)
        k.add(count, 3, into=count)
    k.store_global(Address(k.mad_wide(tid, 4, k.ld_param("y"))), total)
    y = np.zeros(64, np.uint32)
    launch(k.finish(), 1, y=y)
    assert y.tolist() == [100 + sum(range(0, t, 3)) for t in range(64)]


def test_operations_take_the_width_of_their_registers(rng: np.random.Generator) -> None:
    k = builder(x="u64", y="u64", z="u32")
    x, z = k.ld_param("x"), k.ld_param("z")
    results = [
        k.add(x, 5),
        k.sub(x, x),
        k.mul_lo(x, 3),
        k.mad_lo(x, x, 7),
        k.shl(x, 9),
        k.shr(x, 40),
        k.div(x, 1000),
        k.min(x, 123),
        k.and_(x, 0xFF00FF00FF),
        k.or_(x, 1),
        k.xor(x, -1),
        k.selp(x, 9, k.setp("gt", "u64", x, 3)),
        k.mov(x),
        k.widen_u64(z),
        k.mul_wide(z, z),
        k.mad_wide(z, 2, x),
        k.pack_b64(z, k.mov(1)),
    ]
    assert all(register.type == "b64" for register in results)
    y = k.ld_param("y")
    with k.if_(k.setp("eq", "u32", k.special("%tid.x"), 0)):
        for index, register in enumerate(results):
            k.store_global(Address(y, 8 * index), register)
    v, w = int(rng.integers(1 << 62, 1 << 63)), int(rng.integers(1 << 31, 1 << 32))
    out = np.zeros(len(results), np.uint64)
    launch(k.finish(), 1, x=v, y=out, z=w)
    mask = (1 << 64) - 1
    expected = [v + 5, 0, v * 3, v * v + 7, v << 9, v >> 40, v // 1000, 123, v & 0xFF00FF00FF, v | 1, v ^ mask, v, v, w]
    assert out.tolist() == [e & mask for e in [*expected, w * w, w * 2 + v, w | 1 << 32]]


def test_nothing_is_emitted_for_neutral_constants() -> None:
    k = builder()
    x = k.mov(4)
    assert k.add(x, 0) == x and k.sub(x, Imm(0)) == x and k.div(x, 1) == x
    assert len(k.finish().body.nodes) == 1
    assert k.add(x, 0, into=k.reg("b32")) != x


def test_waiting_is_a_loop_around_one_poll() -> None:
    k = builder()
    k.wait(Address(k.shared_symbol(), 8), k.mov(0))
    loop = k.finish().body.nodes[-1]
    assert isinstance(loop, While) and loop.negated
    (poll,) = loop.body.nodes
    assert isinstance(poll, Inst) and poll.op.mnemonic.startswith("mbarrier.try_wait") and loop.condition in poll.args


def test_registers_are_numbered_by_class() -> None:
    k = builder()
    assert [k.reg("b32"), *k.regs("f32", 2), k.reg("b32")] == [
        Reg("b32", 0),
        Reg("f32", 0),
        Reg("f32", 1),
        Reg("b32", 1),
    ]


def test_wrong_arguments_are_refused_where_they_are_emitted() -> None:
    k = builder()
    wide = k.mov(1, kind="b64")
    with pytest.raises(ValueError, match=r"add.u64: operand b is a b64 register, got a b32 register"):
        k.add(wide, k.mov(1))
    with pytest.raises(ValueError, match="takes 3 operands"):
        k.emit(Binary("add", "u32"), k.reg("b32"), 1, 2, 3)


@pytest.mark.parametrize("count", [3, 8])
def test_vectors_have_one_two_or_four_registers(count: int) -> None:
    k = builder(x="u64")
    with pytest.raises(ValueError, match=f"1, 2 or 4 registers, got {count}"):
        k.load_global(k.regs("b32", count), Address(k.ld_param("x")))
    with pytest.raises(ValueError, match="at most 16 bytes"):
        Load("global", "b64", 4)


def test_tensor_maps_are_not_loaded() -> None:
    k = builder(m="tensormap")
    with pytest.raises(ValueError, match="m is a tensor map, which is not loaded"):
        k.ld_param("m")


def test_a_loop_must_say_when_it_repeats() -> None:
    k = builder()
    with pytest.raises(ValueError, match="a loop needs a condition to repeat"), k.loop():
        k.mov(0)


def test_the_other_side_follows_its_branch() -> None:
    k = builder()
    p = k.mov(1, kind="pred")
    with (
        k.if_(p) as branch,
        pytest.raises(ValueError, match="otherwise must directly follow its branch"),
        branch.otherwise(),
    ):
        pass
    with branch.otherwise():
        k.mov(1)
    with pytest.raises(ValueError, match="once: join the blocks"), branch.otherwise():
        pass
    with k.if_(p) as second:
        k.mov(2)
    k.mov(3)
    with pytest.raises(ValueError, match="otherwise must directly follow its branch"), second.otherwise():
        pass


def test_a_kernel_is_finished_outside_its_blocks() -> None:
    k = builder()
    with k.if_(k.mov(1, kind="pred")), pytest.raises(ValueError, match="finished outside of its loops and branches"):
        k.finish()


def test_an_exception_inside_a_block_passes_unchanged() -> None:
    k = builder()
    with pytest.raises(KeyError, match="mine"), k.loop():
        raise KeyError("mine")
    k.mov(1)
    assert len(k.finish().body.nodes) == 1
