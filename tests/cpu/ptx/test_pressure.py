"""The registers that a kernel needs, without the assembler."""

from __future__ import annotations

from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Kernel, Param
from louver.ptx.pressure import most_live


def built(count: int, *, looped: int = 0) -> Kernel:
    """A kernel that adds `count` numbers. looped: numbers that a loop before it carries."""
    k = KernelBuilder("k", (Param("x", "u64"),), threads=32)
    x = k.ld_param("x")
    carried = [k.mov(each, kind="b32") for each in range(looped)]
    if looped:
        with k.loop() as loop:
            for each in carried:
                k.add(each, 1, into=each)
            loop.repeat_if(k.setp("lt", "u32", carried[0], 9))
        # Only the first one is needed behind the loop, and all of them in each iteration.
        k.store_global(Address(x), carried[0])
    loaded = [k.mov(each, kind="b32") for each in range(count)]
    total = loaded[0]
    for each in loaded[1:]:
        total = k.add(total, each)
    k.store_global(Address(x, 4), total)
    return k.finish()


def test_values_that_wait_for_each_other_need_a_register_each() -> None:
    assert most_live(built(40).body) == 42, "forty numbers and an address of two registers"


def test_a_loop_needs_what_its_next_iteration_reads() -> None:
    assert most_live(built(8, looped=30).body) == 32


def test_a_value_that_one_way_of_a_branch_reads_is_needed_before_it() -> None:
    k = KernelBuilder("k", (Param("x", "u64"),), threads=32)
    x, one, two = k.ld_param("x"), k.mov(1, kind="b32"), k.mov(2, kind="b32")
    with k.if_(k.setp("lt", "u32", one, 5)) as branch:
        k.store_global(Address(x), one)
    with branch.otherwise():
        k.store_global(Address(x), two)
    assert most_live(k.finish().body) == 4
