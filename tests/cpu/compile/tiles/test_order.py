"""Instructions that move down to their first reader do not pass what orders memory."""

from __future__ import annotations

import pytest

from louver.compile.lower.tiles.order import order_by_demand
from louver.isa.async_copy import AsyncCommit, AsyncCopy, AsyncWait
from louver.isa.matrix import LoadMatrix
from louver.isa.memory import Load
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Inst, Param


@pytest.mark.parametrize("between", [AsyncCopy(), AsyncCommit(), AsyncWait(1)], ids=lambda form: form.mnemonic)
@pytest.mark.parametrize("load", [Load("shared", "b32"), LoadMatrix(count=1)], ids=lambda form: form.mnemonic)
def test_loads_of_shared_memory_stay_on_their_side_of_asynchronous_copies(
    between: AsyncCopy | AsyncCommit | AsyncWait, load: Load | LoadMatrix
) -> None:
    k = KernelBuilder("order", (Param("x", "u64"),), threads=32, dynamic_shared=1024)
    x, smem, never = k.ld_param("x"), k.shared_symbol(), k.mov(0, kind="pred")
    before, after = k.regs("b32", 2)
    vector = isinstance(load, LoadMatrix)
    k.emit(load, (before,) if vector else before, Address(smem))
    k.emit(between, *((Address(smem, 16), Address(x), never) if isinstance(between, AsyncCopy) else ()))
    k.emit(load, (after,) if vector else after, Address(smem))
    k.store_global(Address(x), after)
    k.store_global(Address(x, 4), before)
    kernel = k.finish()
    order_by_demand(kernel.body)
    forms = [node.op for node in kernel.body.nodes if isinstance(node, Inst)]
    assert [form for form in forms if form in (load, between)] == [load, between, load]
