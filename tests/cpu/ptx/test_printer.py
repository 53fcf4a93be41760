from __future__ import annotations

import struct

import pytest

from louver.isa.matrix import LoadMatrix
from louver.isa.move import Move
from louver.isa.scalar import Binary
from louver.isa.wgmma import Wgmma, WgmmaFence
from louver.ptx.assembler import assemble
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Kernel, Module, Param
from louver.ptx.printer import instruction_text, module_lines, print_module
from support.golden import Golden


def branches() -> Kernel:
    """Nested branches and loops, guards, vectors: everything that has a shape of its own in the text."""
    k = KernelBuilder("branches", (Param("x", "u64"), Param("n", "u32"), Param("scale", "f32")), threads=96, min_ctas=2)
    x, n, scale = (k.ld_param(name) for name in ("x", "n", "scale"))
    index = k.mov(0)
    lane = k.special("%tid.x")
    first = k.setp("eq", "u32", lane, 0)
    total = k.mov(0.5, kind="f32")
    with k.if_(first, uniform=False) as branch, k.while_(lambda: k.setp("lt", "u32", index, n), uniform=True):
        values = tuple(k.regs("b32", 4))
        k.load_global(values, Address(k.mad_wide(index, 16, x), -16), read_only=True)
        with k.if_(k.setp("gt", "s32", values[3], -7), negated=True), k.loop() as loop:
            k.add(index, 2, into=index)
            loop.repeat_if(k.setp("ne", "u32", index, 40), negated=True)
        k.add(index, 1, into=index)
    with branch.otherwise():
        k.mov(-1.25, into=total)
    k.store_global(Address(x), k.mul_f32(total, scale), guard=first)
    k.emit(Move("b32"), index, 3, guard=first, negated=True)
    k.store_global(Address(x, 8), index)
    return k.finish()


def empty(name: str = "empty", **options: int) -> Kernel:
    return KernelBuilder(name, (), threads=32, **options).finish()  # type: ignore[arg-type]


def test_structure_is_golden_and_assembles(golden: Golden) -> None:
    text = print_module(Module("sm_90a", [branches()]))
    golden.check("ptx/branches.ptx", text)
    assert assemble(text).clean


def test_a_cluster_kernel_with_tensor_maps_is_golden(golden: Golden) -> None:
    k = KernelBuilder(
        "copy", (Param("map", "tensormap"), Param("out", "u64")), threads=128, cluster=2, dynamic_shared=2048 + 8
    )
    smem = k.shared_symbol()
    with k.if_(k.setp("eq", "u32", k.special("%tid.x"), 0)):
        k.mbarrier_init(Address(smem, 2048), 1)
        k.fence_mbarrier_init()
        k.mbarrier_arrive_expect(Address(smem, 2048), 2048)
        where = Address(smem, 2048)
        k.bulk_tensor_load(Address(smem), k.map_address("map"), (k.special("%ctaid.x"), k.mov(-3)), where, multicast=3)
    k.cluster_sync()
    k.wait(Address(smem, 2048), k.mov(0))
    k.store_global(Address(k.ld_param("out")), smem)
    text = print_module(Module("sm_90a", [k.finish()]))
    golden.check("ptx/cluster.ptx", text)
    assert assemble(text).clean


def test_the_same_module_prints_the_same_text() -> None:
    assert print_module(Module("sm_90a", [branches()])) == print_module(Module("sm_90a", [branches()]))


def test_the_version_is_the_greatest_need() -> None:
    def version(target: str, kernel: Kernel) -> str:
        return print_module(Module(target, [kernel])).splitlines()[0]

    sparse = KernelBuilder("sparse", (), threads=128)
    sparse.emit(WgmmaFence())
    d = tuple(sparse.mov(0.0, kind="f32") for _ in range(4))
    descriptor, meta, p = sparse.mov(0, kind="b64"), sparse.mov(0), sparse.mov(1, kind="pred")
    sparse.emit(Wgmma(8, "f16", "f16", "f32", True), d, descriptor, descriptor, meta, p)
    assert version("sm_80", empty()) == ".version 7.0"
    assert version("sm_90a", empty()) == ".version 8.0"
    assert version("sm_90a", sparse.finish()) == ".version 8.2"
    assert version("sm_120a", empty()) == ".version 8.7"


def test_shared_memory_is_declared_once_and_only_where_it_is_used() -> None:
    assert ".extern" not in print_module(Module("sm_90a", [empty()]))
    text = print_module(Module("sm_90a", [empty("a", dynamic_shared=16), empty("b", dynamic_shared=32), empty("c")]))
    assert text.count(".extern .shared .align 1024 .b8 smem[];") == 1
    assert [line.split()[2] for line in text.splitlines() if line.startswith(".visible")] == ["a(", "b(", "c("]


@pytest.mark.parametrize("value", [0.1, -0.0, 1.0, float("inf"), float("nan"), 1e-45])
def test_floats_print_as_their_bits(value: float) -> None:
    k = KernelBuilder("float", (), threads=32)
    k.mov(value, kind="f32")
    (move,) = k.finish().body.nodes
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    assert instruction_text(move).endswith(f", 0f{bits:08X}")  # type: ignore[arg-type]


def test_vectors_of_one_register_keep_their_braces() -> None:
    k = KernelBuilder("one", (), threads=32, dynamic_shared=128)
    row = k.reg("b32")
    k.emit(LoadMatrix(count=1), (row,), Address("smem", 16))
    k.emit(Binary("add", "u32"), row, row, -1)
    load, add = k.finish().body.nodes
    assert instruction_text(load) == "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [smem+16]"  # type: ignore[arg-type]
    assert instruction_text(add) == "add.u32 %r0, %r0, -1"  # type: ignore[arg-type]


def test_thousands_of_instructions_assemble() -> None:
    k = KernelBuilder("long", (Param("out", "u64"),), threads=32)
    value = k.special("%laneid")
    for step in range(5000):
        value = k.xor(k.mul_lo(value, 3), step + 1)
    k.store_global(Address(k.ld_param("out")), value)
    text = print_module(Module("sm_80", [k.finish()]))
    assert text.count("\n") > 10_000
    assert assemble(text, "sm_80", options=["-O1"]).clean


def test_lines_know_the_place_that_nodes_were_made_at() -> None:
    k = KernelBuilder("placed", (Param("n", "u32"),), threads=32)
    n = k.ld_param("n")
    with k.at("k.py:1:5"):
        lane = k.special("%tid.x")
        with k.if_(k.setp("lt", "u32", lane, n)) as branch, k.at("k.py:2:9"), k.loop() as loop:
            k.add(lane, 1, into=lane)
            with k.at(None):
                loop.repeat_if(k.setp("lt", "u32", lane, n))
        with branch.otherwise():
            k.add(lane, n, into=lane)
    lines = module_lines(Module("sm_80", [k.finish()]))
    assert "".join(f"{line.text}\n" for line in lines) == print_module(Module("sm_80", [k.finish()]))
    placed = [
        (line.text.split()[0], line.place) for line in lines if line.text.startswith(("    ", "else", "end", "loop"))
    ]
    first, second = "k.py:1:5", "k.py:2:9"
    assert [each for each in placed if not each[0].startswith(".")] == [
        ("ld.param.u32", None),
        *(("mov.u32", first), ("setp.lt.u32", first), ("@!%p0", first)),
        *(("loop_3:", second), ("add.u32", second), ("setp.lt.u32", second), ("@%p1", second)),
        *(("bra.uni", first), ("else_2:", first), ("add.u32", first), ("end_1:", first)),
        ("ret;", None),
    ]
