"""Encodings of tiles in registers: every element has one place, and what cannot be is an error."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from xdsl.utils.exceptions import ParseError, VerifyException

from louver.ir.context import parse_ir
from louver.ir.tile import BlockedAttr, DotOperandAttr, LinearAttr, MmaAttr, SharedAttr, SliceAttr
from louver.ir.tile.encodings import METADATA, VALUES, Encoding
from louver.ir.tile.layout import Layout
from louver.isa.mma import Mma

MMA = "#tt.mma<{version = 2, warpsPerCTA = [2, 1], instrShape = [16, 8]}>"
ENCODINGS: list[Encoding] = [
    BlockedAttr.default((64, 32), 4),
    MmaAttr.of(2, 2),
    MmaAttr.of(4, 1, transposed=True),
    *(DotOperandAttr.of(index, MmaAttr.of(2, 2), bits) for index in (0, 1) for bits in (8, 16, 32)),
    DotOperandAttr.of(0, MmaAttr.of(2, 2), 16, VALUES),
    DotOperandAttr.of(1, MmaAttr.of(4, 1, transposed=True), 8, VALUES),
    DotOperandAttr.of(0, MmaAttr.of(2, 2), 16, METADATA),
]
SHAPES = [(64, 64), (32, 128), (16, 16), (8, 64), (64, 8), (1, 64), (128, 1)]


def places_of(layout: Layout) -> list[tuple[int, int, tuple[int, ...]]]:
    """(thread, register, element), of all of them."""
    firsts = [layout.of_thread(thread) for thread in range(1 << len(layout.thread))]
    return [
        (thread, register, tuple(a + b for a, b in zip(first, place, strict=True)))
        for (thread, first), (register, place) in product(enumerate(firsts), enumerate(layout.registers))
    ]


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_element_has_a_place(encoding: Encoding, shape: tuple[int, int]) -> None:
    layout = encoding.layout(shape)
    assert layout.warps == encoding.warps == 4
    places = places_of(layout)
    assert {place for *_, place in places} == set(product(*map(range, shape)))
    # Threads differ in the repeated bits alone where they hold the same element.
    mask = ~sum(1 << bit for bit in layout.repeats)
    holders: dict[tuple[int, ...], set[tuple[int, int]]] = {}
    for thread, register, place in places:
        holders.setdefault(place, set()).add((thread & mask, register))
    assert all(len(each) == 1 for each in holders.values())


@pytest.mark.parametrize(("bits", "name"), [(8, "s8"), (16, "f16"), (32, "tf32")])
def test_operands_are_the_fragments_of_the_instruction(bits: int, name: str) -> None:
    instruction = Mma(name, name, "s32" if name == "s8" else "f32", 256 // bits)
    one = MmaAttr.of(1, 1)
    pairs = [
        (one, instruction.d_fragment, (16, 8)),
        (DotOperandAttr.of(0, one, bits), instruction.a_fragment, (16, 256 // bits)),
        (DotOperandAttr.of(1, one, bits), instruction.b_fragment, (256 // bits, 8)),
    ]
    for encoding, fragment, shape in pairs:
        rows, columns = fragment.coordinates()
        for thread, register, place in places_of(encoding.layout(shape)):
            word, part = divmod(register, fragment.packed)
            assert (rows[word, part, thread], columns[word, part, thread]) == place


def test_slices_permutations_and_reshapes_keep_places() -> None:
    whole = MmaAttr.of(2, 2).layout((64, 32))
    row = SliceAttr.of(0, MmaAttr.of(2, 2)).layout((32,))
    assert {place for *_, place in places_of(row)} == {(column,) for column in range(32)}
    turned = {(thread, place[::-1]) for thread, _, place in places_of(whole)}
    assert {(thread, place) for thread, _, place in places_of(whole.permuted((1, 0)))} == turned
    flat = whole.reshaped((2048,))
    assert [place[0] for *_, place in places_of(flat)] == [row * 32 + column for *_, (row, column) in places_of(whole)]
    assert flat.reshaped((64, 32)) == whole
    assert LinearAttr.of(whole).layout((64, 32)) == whole
    first, second = (
        np.asarray([place for *_, place in places_of(whole.paired()) if place[2] == part]) for part in (0, 1)
    )
    np.testing.assert_array_equal(first[:, :2], second[:, :2])


@pytest.mark.parametrize("encoding", [*ENCODINGS, SliceAttr.of(1, MmaAttr.of(2, 1)), SharedAttr.along(0)], ids=str)
def test_round_trip(encoding: Encoding) -> None:
    module = parse_ir(f"tt.func @f() attributes {{e = {encoding}}} {{ tt.return }}")
    assert str(encoding) in str(module)
    assert str(parse_ir(str(module))) == str(module)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("#tt.mma<{version = 3, warpsPerCTA = [1, 1], instrShape = [16, 8]}>", "products of warps are version 2"),
        ("#tt.mma<{version = 2, warpsPerCTA = [3, 1], instrShape = [16, 8]}>", "warpsPerCTA has powers of two"),
        (f"#tt.dot_op<{{opIdx = 2, parent = {MMA}, kWidth = 2}}>", "a dot has operands 0 and 1"),
        (f"#tt.dot_op<{{opIdx = 0, parent = {MMA}, kWidth = 2, meta = 2}}>", "meta is one of -1, 0, 1, got 2"),
        (f"#tt.dot_op<{{opIdx = 1, parent = {MMA}, kWidth = 2, meta = 0}}>", "an instruction's A may be sparse"),
        (f"#tt.slice<{{dim = -1, parent = {MMA}}}>", "a dimension is counted from 0"),
        ("#tt.shared<{order = [1, 1]}>", "order has the two dimensions of a matrix"),
        (
            "#tt.blocked<{sizePerThread = [1], threadsPerWarp = [16], warpsPerCTA = [1], order = [0]}>",
            "32 threads, got 16",
        ),
        (
            "#tt.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [1], order = [1]}>",
            "order names each dimension once",
        ),
        ("#tt.mma<{version = 2}>", "has the fields version, warpsPerCTA, instrShape, transposed, got"),
    ],
)
def test_an_encoding_that_cannot_be_is_an_error(text: str, rule: str) -> None:
    with pytest.raises((VerifyException, ParseError), match=rule):
        parse_ir(f"tt.func @f() attributes {{e = {text}}} {{ tt.return }}")


@pytest.mark.parametrize(
    ("steps", "rule"),
    [
        (((48,), ((1,),), ((0,),) * 5, ()), "powers of two, got"),
        (((2,), ((1,),), ((0,),) * 4, ()), "5 bits, got 4"),
        (((4,), ((1,),), ((0,),) * 5, ()), "reach each element of"),
        (((2,), ((1,), (0,)), ((0,),) * 5, ()), "holds another element"),
        (((2, 2), ((1, 1),), ((0, 0),) * 5, ()), "along one dimension of 2"),
    ],
)
def test_a_layout_that_cannot_be_is_an_error(steps: tuple[object, ...], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        Layout(*steps)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (
            f"%y = tt.expand_dims %x {{axis = 0 : i32}} : tensor<64xf32, {MMA}> -> tensor<1x64xf32, {MMA}>",
            "from the slice without it",
        ),
        (f"%y = ttg.convert_layout %x : tensor<64xf32, {MMA}> -> tensor<64xf32>", "tiles in registers have encodings"),
    ],
)
def test_operations_on_tiles_in_registers_are_checked(line: str, rule: str) -> None:
    with pytest.raises(VerifyException, match=rule):
        parse_ir(f"tt.func @f(%x: tensor<64xf32, {MMA}>) {{ {line}\n tt.return }}")


def test_bits_of_floats_are_not_numbers() -> None:
    text = str(parse_ir("%a = arith.constant dense<0xFF800000> : tensor<4xf32>"))
    assert str(parse_ir(text)) == text and "4.28" not in text
