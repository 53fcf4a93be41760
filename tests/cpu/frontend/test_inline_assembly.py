"""Inline assembly in Triton's text: how it is read, and what a text that is no element-wise PTX is told."""

from __future__ import annotations

import pytest

from louver.frontend.ttir import read_ttir
from louver.frontend.ttir.limits import MAX_ASSEMBLY, MAX_CHAIN, MAX_OPERATIONS
from louver.ir.refusal import UnsupportedKernelError


def kernel(text: str, marks: str = "=r,r,r", types: str = "f32, f32", result: str = "f32", more: str = "") -> str:
    """A kernel with inline assembly of two scalars."""
    quoted = text.replace('"', "\\22").replace("\n", "\\0A")
    first, second = types.split(", ")
    return (
        f"module {{\n  tt.func public @k(%o: !tt.ptr<{result}>, %a: {first}, %b: {second}) {{\n"
        f'    %0 = tt.elementwise_inline_asm "{quoted}" {{constraints = "{marks}", packed_element = 1 : i32, pure = true}}'
        f" %a, %b : {types} -> {result}\n{more}    tt.store %o, %0 : !tt.ptr<{result}>\n    tt.return\n  }}\n}}\n"
    )


def names(text: str) -> list[str]:
    return [op.name for op in read_ttir(text).walk()][2:]


def test_registers_of_one_type_are_not_cast() -> None:
    assert names(kernel("add.ftz.f32 $0, $1, $2;")) == ["arith.addf", "tt.store", "tt.return"]


def test_bits_are_cast() -> None:
    found = names(kernel("{ .reg .b32 t, u ; add.s32 t, $1, $2; mov.b32 $0, t; }"))
    assert found == ["arith.bitcast", "arith.bitcast", "arith.addi", "arith.bitcast", "tt.store", "tt.return"]


def test_several_results() -> None:
    text = kernel("mov.b32 $0, $2; mov.b32 $1, $3;", "=r,=f,r,f").replace("%0 =", "%0:2 =").replace("%0 :", "%0#1 :")
    assert names(text.replace("-> f32", "-> i32, f32")).count("arith.bitcast") == 3


@pytest.mark.parametrize("number", ["0f40490FDB", "0F40490fdb", "3.14159274", "314159274.0e-8"])
def test_numbers_of_floats(number: str) -> None:
    assert "arith.constant 3.14159274 : f32" in str(read_ttir(kernel(f"mov.f32 $0, {number};")))


@pytest.mark.parametrize(("number", "value"), [("0x10", 16), ("0b11", 3), ("4294967295U", -1), ("-5", -5), ("0", 0)])
def test_numbers_of_integers(number: str, value: int) -> None:
    assert f"arith.constant {value} : i32" in str(read_ttir(kernel(f"mov.u32 $0, {number};")))


BAD = {
    "add.f32 $0, $1, $2": "a statement ends with `;`, unlike `add.f32 $0, $1, $2`",
    "{ add.f32 $0, $1, $2;": "a block ends with `}`",
    "add.f32 $0, $1, $2; }": "a `}` ends a block",
    "add.f32 $0, $1;": "`add.f32` has 3 operands, and not 2",
    "neg.f32;": "`neg.f32` has 2 operands, and not 0",
    "add.f32 $0, $1, t;": "an operand is a number, .* and `t` is none",
    "{ .reg .f32 t; } neg.f32 $0, t;": "an operand is a number, .* and `t` is none",
    "mov.b32 {$0, $1}, $2;": "`mov.b32` has 2 operands, and not 3",
    "mov.b32 $0, {$1};": "an operand is a number, .* and `{$1}` is none",
    "setp.lt.f32 p|q, $1, $2;": "an operand is a number, .* and `p|q` is none",
    "mov.b32 $0, 017;": "an operand is a number, .* and `017` is none",
    "{ .reg .f32 t; neg.f32 $0, t; }": "`t` is written before it is read",
    "neg.f32 $1, $2;": "`$0` is written before it is read",
    ".reg .f64 t;": "temporaries are .pred, or have 16, 32 or 64 bits, unlike `.reg .f64 t`",
    ".reg;": "temporaries are .*, unlike `.reg`",
    ".reg .b32 a, [b];": "a temporary has a name, or stands for up to 256, unlike `[b]`",
    ".reg .b32 a<999999999>;": "a temporary has a name, .*, unlike `a<999999999>`",
    "{ .reg .b16 h; cvt.rn.f16.f32 h, $1; neg.f32 $0, h; }": "`h` has 16 bits, where 32 are needed",
    "cvt.rn.f16.f32 $0, $1;": "`$0` has 16 bits, where 32 are needed",
    "{ .reg .pred p; selp.f32 $0, $1, $2, $1; }": "`$1` has 32 bits, where 1 are needed",
    "add.f32 $0, $1, 1;": "a number of type f32 is written as 1.0 or 0f3F800000, unlike `1`",
    "lop3.b32 $0, $1, $2, $1, $2;": "the last operand of `lop3` and `prmt` is a written integer, and not `$2`",
    "@p bra done;": "`@p` is not element-wise, or is not among the instructions that Louver reads",
    "add.sat.f32 $0, $1, $2;": "`add.sat.f32` is not element-wise",
    "membar.gl;": "`membar.gl` is not element-wise",
    "x" * 99 + ";": f"`{'x' * 60} …` is not element-wise",
}


@pytest.mark.parametrize("text", BAD, ids=lambda text: text[:40])
def test_texts_that_are_refused(text: str) -> None:
    with pytest.raises(UnsupportedKernelError) as caught:
        read_ttir(kernel(text))
    rule, dots, rest = BAD[text].partition(".*")
    assert caught.value.rule.startswith(f"inline assembly: {rule}")
    assert not dots or rest in caught.value.rule
    assert "elementwise_inline_asm" in caught.value.operation


@pytest.mark.parametrize(
    ("marks", "types", "result", "message"),
    [
        ("=l,l,r", "!tt.ptr<f32>, f32", "f32", "operands are numbers, and not !tt.ptr<f32>"),
        ("=f,r,r", "i16, f32", "f32", "`r` of $1 is none for 16 bits"),
        ("=f,0,r", "f32, f32", "f32", "`0` of $1 is none for 32 bits"),
        ("=f,f", "f32, f32", "f32", "each of 3 operands has a constraint, unlike in `=f,f`"),
    ],
)
def test_operands_that_are_refused(marks: str, types: str, result: str, message: str) -> None:
    with pytest.raises(UnsupportedKernelError) as caught:
        read_ttir(kernel("mov.b32 $0, $1;", marks, types, result))
    assert message in caught.value.rule


@pytest.mark.parametrize("part", ['constraints = "=r,r,r", ', "packed_element = 1 : i32, "])
def test_a_damaged_text(part: str) -> None:
    with pytest.raises(UnsupportedKernelError, match="inline assembly has constraints and a number of packed elements"):
        read_ttir(kernel("add.f32 $0, $1, $2;").replace(part, ""))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("add.f32 $0, $1, $2;" + "add.f32 $0, $0, $2;" * MAX_CHAIN, f"at most {MAX_CHAIN} operations in a row"),
        ("prmt.b32 $0, $1, $2, 0x3210;" * 400, f"a kernel has at most {MAX_OPERATIONS:,} operations"),
        (" " * MAX_ASSEMBLY + ";", f"inline assembly: a text has at most {MAX_ASSEMBLY:,} characters"),
        ("mov.b32 $0, " + "{" * 9000, "a statement ends with `;`"),
    ],
)
def test_long_texts(text: str, message: str) -> None:
    with pytest.raises(UnsupportedKernelError, match=message):
        read_ttir(kernel(text))
