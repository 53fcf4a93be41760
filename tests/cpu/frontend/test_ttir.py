"""Triton's IR as text, in: what Triton 3.6 and 3.9 made of every case, locations, names, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from xdsl.dialects.builtin import FileLineColLoc

from louver.compile.canonical.canonicalize import drop_assumptions
from louver.frontend.ttir import read_ttir, sparse_mark
from louver.frontend.ttir.locations import resolve_locations
from louver.ir.context import parse_ir
from louver.ir.refusal import UnsupportedKernelError
from louver.ir.tile import DotOp, FuncOp
from support.golden import Golden
from support.triton.cases import CASES, KEPT_CASES, kept
from support.triton.texts import changed

ROOT = Path(__file__).resolve().parents[3]
KERNELS = "tests/support/triton/kernels.py"


@pytest.mark.parametrize(("name", "version"), KEPT_CASES)
def test_what_triton_prints_is_read(name: str, version: str, golden: Golden) -> None:
    module = read_ttir(kept(name, version))
    golden.check(f"ttir/{version}/{name}.mlir", str(module))
    assert str(parse_ir(str(module))) == str(module)


@pytest.mark.parametrize(("name", "version"), KEPT_CASES)
def test_operations_know_their_lines(name: str, version: str) -> None:
    module = read_ttir(kept(name, version))
    dots = [op for op in module.walk() if isinstance(op, DotOp)]
    assert len(dots) == (CASES[name].dots or len(CASES[name].sparse))
    path = f"tests/support/triton/{CASES[name].module}.py"
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    for dot in dots:
        assert isinstance(dot.location, FileLineColLoc)
        assert "tl.dot(" in lines[dot.location.line.data - 1]
    files = {op.location.filename.data for op in module.walk() if isinstance(op.location, FileLineColLoc)}
    assert files == {path}


def test_what_the_library_inlines_is_the_users_line() -> None:
    text = (
        "module {\n"
        "  tt.func public @k(%x: i32) {\n"
        "    %0 = arith.addi %x, %x : i32 loc(#loc3)\n"
        "    tt.return loc(#loc)\n"
        "  } loc(#loc)\n"
        "} loc(#loc)\n"
        "#loc = loc(unknown)\n"
        '#loc1 = loc("/p/site-packages/triton/language/standard.py":43:17)\n'
        '#loc2 = loc("kernel.py":7:21)\n'
        '#loc3 = loc("sum"(#loc4))\n'
        "#loc4 = loc(callsite(#loc1 at #loc2))\n"
    )
    assert 'arith.addi %x, %x : i32 loc("kernel.py":7:21)' in resolve_locations(text)
    assert resolve_locations(text).count("loc(") == 1
    read_ttir(text)


LOCATIONS = [
    ('loc("a.py":3:4)', 'loc("a.py":3:4)'),
    ('loc("a.py":3:4 to :5:6)', 'loc("a.py":3:4)'),
    ('loc(fused["a.py":3:4, "b.py":1:2])', 'loc("a.py":3:4)'),
    ('loc(fused<"x">[unknown, "b.py":1:2])', 'loc("b.py":1:2)'),
    ('loc("name"("a (b).py":3:4))', 'loc("a (b).py":3:4)'),
    ('loc("name")', ""),
    ("loc(unknown)", ""),
    ('loc("x/triton/language/core.py":1:2)', 'loc("x/triton/language/core.py":1:2)'),
]


@pytest.mark.parametrize(("before", "after"), LOCATIONS)
def test_locations(before: str, after: str) -> None:
    line = '%0 = "t.op"() {text = "loc(#x)"} : () -> i32'
    assert resolve_locations(f"{line} {before}\n") == f"{line} {after}".rstrip() + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("op loc(#loc9)", "a location's name is defined in the same text, got #loc9"),
        ("op loc(callsite(unknown))", "expected 'at' in a location"),
        ("op loc(elsewhere)", "a location is a file, a name, callsite, fused or unknown, got 'elsewhere'"),
        ("op loc(unknown", "a location ends with a parenthesis"),
        ('op loc("a.py":3:)', "a location ended early"),
    ],
)
def test_damaged_locations_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        resolve_locations(text)


PROMISED = """module {
  tt.func public @k(%p: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %n: i32 {tt.divisibility = 16 : i32}) {
    %c0 = arith.constant {tt.divisibility = dense<16> : tensor<1xi32>} 0 : i32
    %r = tt.make_range {end = 8 : i32, start = 0 : i32, tt.contiguity = dense<8> : tensor<1xi32>} : tensor<8xi32>
    %s = tt.splat %n {tt.constancy = dense<8> : tensor<1xi32>} : i32 -> tensor<8xi32>
    %z = arith.constant dense<0> : tensor<8xi32>
    %m = arith.cmpi slt, %r, %s {tt.constancy = dense<1> : tensor<1xi32>} : tensor<8xi32>
    %o = arith.select %m, %r, %z {tt.contiguity = dense<8> : tensor<1xi32>} : tensor<8xi1>, tensor<8xi32>
    %w = arith.remsi %o, %s {tt.contiguity = dense<8> : tensor<1xi32>} : tensor<8xi32>
    %f = scf.for %k = %c0 to %n step %n iter_args(%x = %c0) -> (i32) : i32 {
      %y = arith.addi %x, %k {tt.divisibility = dense<16> : tensor<1xi32>} : i32
      scf.yield %y : i32
    } {tt.divisibility = dense<64> : tensor<1xi32>, tt.divisibility_arg1 = dense<64> : tensor<1xi32>}
    %g = scf.while (%x = %f) : (i32) -> i32 {
      %go = arith.cmpi slt, %x, %n : i32
      scf.condition(%go) %x : i32
    } do {
    ^bb0(%x: i32):
      %y = arith.addi %x, %n : i32
      scf.yield %y : i32
    } attributes {tt.divisibility = dense<2> : tensor<1xi32>, tt.divisibility_arg0 = dense<2> : tensor<1xi32>}
    %go = arith.cmpi slt, %g, %n : i32
    %i = scf.if %go -> (i32) {
      scf.yield %g : i32
    } else {
      scf.yield %n : i32
    } {tt.divisibility = dense<64> : tensor<1xi32>}
    %q = tt.addptr %p, %i {tt.divisibility = dense<16> : tensor<1xi32>} : !tt.ptr<f32>, i32
    %l = tt.load %q {tt.constancy = dense<1> : tensor<1xi32>} : !tt.ptr<f32>
    %big = arith.cmpf ogt, %l, %l {tt.constancy = dense<1> : tensor<1xi32>} : f32
    %h = tt.fp_to_fp %l {tt.constancy = dense<1> : tensor<1xi32>}, rounding = rtne : f32 -> f8E5M2
    tt.return
  }
}
"""


def test_promises_on_any_value_are_read_and_then_dropped() -> None:
    module = read_ttir(PROMISED)
    assert str(parse_ir(str(module))) == str(module)
    promise = re.compile(r"tt\.(?:divisibility|contiguity|constancy)\w* =")
    assert len(promise.findall(str(module))) == len(promise.findall(PROMISED))
    drop_assumptions(module)
    assert promise.findall(str(module)) == ["tt.divisibility ="] * 2 + ["tt.contiguity ="]
    assert "%p: !tt.ptr<f32> {tt.divisibility = 16 : i32}" in str(module)


def test_names_are_given_and_descriptors_bring_their_own() -> None:
    text = kept("given_descriptors")
    module = read_ttir(text, names=["d", "a", "b", "K"])
    (function,) = (op for op in module.walk() if isinstance(op, FuncOp))
    found = list(function.argument_names.values())
    assert found == [
        *("d", "d.shape.0", "d.shape.1", "d.stride.0", "d.stride.1"),
        *("a", "a.shape.0", "a.shape.1", "a.stride.0", "a.stride.1"),
        *("b", "b.shape.0", "b.shape.1", "b.stride.0", "b.stride.1", "K"),
    ]
    with pytest.raises(ValueError, match="names are given for each of 4 arguments, got 2: d, a"):
        read_ttir(text, names=["d", "a"])


def test_a_mark_is_an_attribute_of_the_argument() -> None:
    marked = re.sub(r" \{louver\.sparse\.NV24 = 1 : i32\}", "", kept("made_descriptors"))
    module = read_ttir(marked, sparse={"b": "2:4"})
    assert "%b: !tt.ptr<f16> {louver.sparse.NV24 = 1 : i32}" in str(module)
    assert str(module).count("louver.sparse") == 1
    assert sparse_mark("1:2") == "louver.sparse.NV12"
    with pytest.raises(ValueError, match=r"a sparse argument is one of d, a, b, M, .*, got 'c'"):
        read_ttir(marked, sparse={"c": "2:4"})
    with pytest.raises(ValueError, match="the patterns with an encoding are 2:4, 1:2 and vectors N:M@L, got '5:4'"):
        read_ttir(marked, sparse={"a": "5:4"})


def test_an_operation_that_tile_ir_lacks_is_refused_with_its_line() -> None:
    with pytest.raises(
        UnsupportedKernelError, match=r"tt.dot_rotated is not supported, got at .*kernels.py:\d+:\d+: %m"
    ) as e:
        changed("indexed_pointers", (r"%m_5 = tt.make_range \{.*\}", "%m_5 = tt.dot_rotated %m"))
    assert e.value.operation == "%m_5 = tt.dot_rotated %m : tensor<128xi32>"
    assert e.value.location is not None and e.value.location.startswith(f"{KERNELS}:")


def test_what_does_not_verify_is_refused_with_its_line() -> None:
    with pytest.raises(
        UnsupportedKernelError, match=r"a range holds at least one integer, got 9 to 0, got at .*kernels.py:\d+"
    ):
        changed(
            "indexed_pointers",
            (r"%m_5 = tt.make_range \{.*\}", "%m_5 = tt.make_range {end = 0 : i32, start = 9 : i32}"),
        )


def test_what_does_not_parse_is_refused_with_its_line() -> None:
    with pytest.raises(
        UnsupportedKernelError, match=r"a kernel's text must be tile IR \(<ttir>: .*got at .*kernels.py:\d+"
    ):
        changed("indexed_pointers", (r"%m_5 = tt.make_range \{.*\}", "%m_5 = tt.make_range {end 5}"))


def test_a_module_holds_one_kernel() -> None:
    with pytest.raises(ValueError, match="a module holds one kernel, got 0"):
        read_ttir("module {\n}\n")


def test_a_descriptor_argument_is_followed_by_its_sizes() -> None:
    with pytest.raises(ValueError, match="followed by its sizes and strides, got too few arguments"):
        read_ttir("module {\n  tt.func public @k(%d: !tt.tensordesc<8x4xf16>, %x: i32) {\n    tt.return\n  }\n}\n")


def test_every_kernel_is_kept() -> None:
    assert {name for name, _ in KEPT_CASES} == set(CASES)


def test_an_error_at_the_end_of_a_text_is_refused_as_any_other() -> None:
    text = "module {\n  tt.func public @k(%a: i32) {\n    %x = arith.addi %a, %missing : i32\n    tt.return\n  }\n}"
    with pytest.raises(UnsupportedKernelError, match="values used but not defined: .%missing"):
        read_ttir(text)


def test_every_operation_that_tile_ir_lacks_is_told_once() -> None:
    text = kept("made_descriptors")
    text = text.replace("tt.dot ", "tt.dot_rotated ").replace("tt.get_program_id ", "tt.inline_asm ")
    with pytest.raises(UnsupportedKernelError) as caught:
        read_ttir(text)
    first, *others = str(caught.value).splitlines()
    assert re.match(r"tt\.(inline_asm|dot_rotated) is not supported, got at .*kernels.py:\d+:\d+: ", first)
    assert others and all(re.match(r"Also: tt\.\w+ is not supported, got at ", each) for each in others)
    assert len({first, *others}) == 1 + len(others)
    assert {"inline_asm", "dot_rotated"} <= set(re.findall(r"tt\.(\w+) is not", str(caught.value)))


def test_an_operation_beside_the_function() -> None:
    """As where a line was moved above the function's first one: the kernel would be another one."""
    text = 'module {\n  %c = arith.constant 3 : i32 loc("k.py":7:4)\n  tt.func public @k(%x: i32) {\n    tt.return\n  }\n}\n'
    with pytest.raises(UnsupportedKernelError, match=r"operations are in a function.*k\.py:7:4.*put it in the kernel"):
        read_ttir(text)
