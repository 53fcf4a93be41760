"""Products whose sparse operand is a batch, of which an array has an entry for each tile: how they are read, scheduled and refused."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from xdsl.utils.exceptions import VerifyException

from louver.choose.configure import choose_for_nest
from louver.compile.canonical.canonicalize import canonicalize
from louver.compile.check.check import check_protocol
from louver.compile.check.events import ProtocolError
from louver.compile.compiled import CompiledProduct
from louver.compile.pipeline import compile_tile_ir
from louver.compile.plan.nest import read_nest
from louver.frontend.ttir import read_ttir
from louver.ir.context import parse_ir
from louver.ir.product import Batch, EntryIndex, LoadVector, ProductNest, walk
from louver.ir.refusal import UnsupportedKernelError
from louver.ir.sched import ops
from louver.isa.targets import SM_90A
from support.compiled import read_copy
from support.golden import Golden
from support.sizes import size, sizes
from support.triton.cases import kept
from support.triton.grouped import GROUPED
from support.triton.texts import changed_text, nest

POINTERS, LEFT = "expert_pointers", "weights_left"

ENTRIES = {
    POINTERS: Batch(None, size("stride_e"), EntryIndex("ids", "s32", "n")),
    "expert_groups": Batch(None, size("stride_e"), EntryIndex("ids", "s32", "n")),
    LEFT: Batch(size("E"), nest(LEFT).a.batch.stride, EntryIndex("ids", "s32", "n")),  # type: ignore[union-attr]
    "rows_numbered": Batch(size("E"), nest(LEFT).a.batch.stride, EntryIndex("ids", "s32", "m")),  # type: ignore[union-attr]
}


def compiled(text: str, **fixed: object) -> CompiledProduct:
    return compile_tile_ir(
        read_ttir(text), lambda each: choose_for_nest(each, SM_90A, aligned_output=True, fixed=fixed)
    )


@pytest.mark.parametrize("name", GROUPED)
def test_an_array_says_the_entry(name: str) -> None:
    found = nest(name)
    assert found.a.index is not None and found.a.index.argument == "ids"
    assert found.a.batch == ENTRIES.get(name, found.a.batch)
    assert found.b.batch is None and found.store.batch is None
    assert str(nest(name).a.batch.stride) in ("stride_e", "K*N", "N*K", "N*stride_w", "stride_w*N")  # type: ignore[union-attr]


def test_an_epilogue_reads_vectors_along_the_tokens() -> None:
    assert [node for node in walk(nest("expert_groups").epilogue) if isinstance(node, LoadVector)] == [
        LoadVector("scale", "f32", "n")
    ]


def test_canonical_and_schedule_ir_are_golden(golden: Golden) -> None:
    module = canonicalize(read_copy(kept(POINTERS)))
    golden.check(f"canonical/{POINTERS}.mlir", str(module))
    text = compiled(kept(POINTERS), stages=3).text("sched")
    golden.check("sched/experts.mlir", text)
    assert str(parse_ir(text)) + "\n" == text


def test_signature_and_loads() -> None:
    made = compiled(kept(POINTERS))
    assert {("ids", "u64"), ("entries", "u32")} <= {(each.name, each.type) for each in made.signature.parameters}
    # The producer's first and next tile, the consumers' first and next one.
    assert made.ptx.count("ld.global.nc.b32") == 4
    wide = compiled(kept("wide_numbers"))
    assert wide.nest.a.index == EntryIndex("ids", "s64", "n")
    assert wide.ptx.count("ld.global.nc.b64") == 4


@pytest.mark.parametrize("role", ["values", "dense", "consumer"])
def test_each_role_of_a_dependent_kernel_waits_before_it_reads_the_array(role: str) -> None:
    """By ordinary loads: a kernel before it may write the array while this one runs."""
    made = compiled(kept(POINTERS), dependent=True, stages=3)
    assert "ld.global.nc" not in made.ptx and made.ptx.count("griddepcontrol.wait") == 3
    module = made.sched.clone()
    (kernel,) = module.body.block.ops
    assert isinstance(kernel, ops.KernelOp)
    (each,) = (each for each in kernel.roles if each.sym_name.data == role)
    first = each.body.block.first_op
    assert isinstance(first, ops.WaitGridsOp)
    first.detach()
    with pytest.raises(ProtocolError, match=rf"(?s)grids before it have ended.*sched\.tiles.*role @{role}"):
        check_protocol(module)


def test_an_array_may_be_called_as_a_parameter_of_the_kernel() -> None:
    text = kept(POINTERS).replace("%ids", "%entries").replace('"ids"', '"entries"')
    assert ("own_entries", "u64") in {(each.name, each.type) for each in compiled(text).signature.parameters}


MASK = (r"tt.load %expert :", "tt.load %expert, %yes :"), (r"(    %block = )", r"    %yes = arith.constant true\n\1")
DENSE = [
    (r"tt.make_tensor_descriptor %x, \[%M, %K\], \[%w_tiles_3, %c1_i64\] : <f16>, <tensor<64x64xf16>>",
     "tt.make_tensor_descriptor %x, [%E, %M, %K], [%w_tiles_2, %w_tiles_3, %c1_i64] : <f16>, <tensor<1x64x64xf16>>"),
    (r"%total_10 = tt.descriptor_load %x_tiles\[%total_9, %k\] : !tt.tensordesc<tensor<64x64xf16>> -> tensor<64x64xf16>",
     "%whole = tt.descriptor_load %x_tiles[%expert_0, %total_9, %k] : !tt.tensordesc<tensor<1x64x64xf16>> -> tensor<1x64x64xf16>\n"
     "      %total_10 = tt.reshape %whole : tensor<1x64x64xf16> -> tensor<64x64xf16>"),
]  # fmt: skip
OUTPUT = [
    (r"tt.make_tensor_descriptor %y, \[%N, %M\], \[%y_tiles, %c1_i64\] : <f16>, <tensor<128x64xf16>>",
     "tt.make_tensor_descriptor %y, [%E, %N, %M], [%w_tiles_2, %y_tiles, %c1_i64] : <f16>, <tensor<1x128x64xf16>>"),
    (r"tt.descriptor_store %y_tiles_5\[%n_1, %0\], %1 : !tt.tensordesc<tensor<128x64xf16>>, tensor<128x64xf16>",
     "%2 = tt.reshape %1 : tensor<128x64xf16> -> tensor<1x128x64xf16>\n    tt.descriptor_store %y_tiles_5[%expert_0, %n_1, %0], "
     "%2 : !tt.tensordesc<tensor<1x128x64xf16>>, tensor<1x128x64xf16>"),
]  # fmt: skip
LAYERS = [
    (each[0], each[1].replace("%expert_0", "%layer")) for each in OUTPUT
] + [(r"(    %block = )", r"    %layer = tt.get_program_id z : i32\n\1")]  # fmt: skip
UNMASKED = "the index in a batch must be loaded without a mask from an array of int32 or int64"

REFUSED = {
    "a mask": (list(MASK), UNMASKED),
    "not at a tile's number": ([(r"tt.addptr %ids, %block", "tt.addptr %ids, %M")], UNMASKED),
    "at its first row": (
        [(r"tt.addptr %ids, %block", "tt.addptr %ids, %first"), (r"(    %expert = )", r"    %first = arith.muli %block, %c64_i32 : i32\n\1")],
        UNMASKED,
    ),
    "volatile": ([(r"tt.load %expert :", "tt.load %expert {isVolatile = true} :")], UNMASKED),
    "along no axis of the product": (
        [(r"tt.addptr %ids, %block", "tt.addptr %ids, %z"), (r"(    %expert = )", r"    %z = tt.get_program_id z : i32\n\1")],
        "ids must hold the index of a matrix for each tile along one axis of the product",
    ),
    "an argument": ([(r"%expert_0, %n_1", "%E, %n_1")], "the index in a batch must be a program's number, or be loaded at one"),
    "a dense operand's": (DENSE, "ids may select matrices of a sparse operand, not of a dense one"),
    "the output's": (OUTPUT, "ids may select matrices of the sparse operand only"),
    "beside a batch": (LAYERS, "ids selects matrices of the sparse operand, so no other operand may be a batch"),
}  # fmt: skip


@pytest.mark.parametrize("change", REFUSED)
def test_other_entries_are_refused_at_their_line(change: str) -> None:
    changes, message = REFUSED[change]
    with pytest.raises(UnsupportedKernelError, match=re.escape(message)):
        nest(LEFT, *changes)


def test_entries_of_numbers_of_other_widths_are_refused() -> None:
    text = changed_text(
        POINTERS,
        (r"%expert_4, %stride_e", "%wide, %stride_e"),
        (r"(    %m = )", r"    %wide = arith.extsi %expert_4 : i16 to i32\n\1"),
    )
    text = text.replace("ptr<i32>", "ptr<i16>")
    with pytest.raises(UnsupportedKernelError, match=UNMASKED):
        read_nest(canonicalize(read_ttir(text)))


def test_a_nest_has_no_other_entries() -> None:
    found = nest(POINTERS)
    fields = {name: getattr(found, name) for name in ProductNest.__dataclass_fields__}
    for part in ("b", "store"):
        with pytest.raises(ValueError, match="a product whose matrices an array selects has no other batch"):
            ProductNest(**fields | {part: replace(fields[part], batch=Batch(*sizes("E", "stride")))})


def test_tiles_are_numbered_along_an_axis() -> None:
    text = compiled(kept(POINTERS)).text("sched")
    with pytest.raises(VerifyException, match='an array of entries is along "m" or "n"'):
        parse_ir(text.replace('along "n"', 'along "k"')).verify()
