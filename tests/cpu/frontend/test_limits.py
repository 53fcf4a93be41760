"""Texts of kernels that are too large, too deep or damaged end with the rule, soon, and never with a traceback."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from louver.cli import app
from louver.cli.commands.kernel_levels import Text
from louver.frontend.ttir import read_ttir
from louver.frontend.ttir.limits import MAX_CHAIN, MAX_DEPTH, MAX_ELEMENTS, MAX_OPERATIONS, MAX_PLACES, MAX_TEXT
from louver.user.arguments import Kind
from louver.user.compiled import Wanted, compile_wanted
from louver.user.hints import Hints
from support.golden import ROOT as GOLDEN
from support.ttir_mutants import mutants
from support.work import cpu_seconds

FILES = [*sorted(GOLDEN.glob("ttir/3.6/*.ttir")), *sorted(GOLDEN.glob("written/3.6/**/*.ttir"))]


def kernel(body: str, arguments: str = "%o: !tt.ptr<f32>, %v0: f32, %c: i1", more: str = "") -> str:
    return f"module {{\n  tt.func public @k({arguments}) {{\n{body}    tt.return\n  }}\n{more}}}\n"


def chain(count: int) -> str:
    """Each operation needs the one before."""
    lines = [f"    %v{i + 1} = arith.addf %v{i}, %v{i} : f32\n" for i in range(count)]
    return kernel("".join(lines) + f"    tt.store %o, %v{count} : !tt.ptr<f32>\n")


def calls(levels: int, last: str = "") -> str:
    """Each function calls the next twice."""
    types = "(f32) -> f32"
    functions = [
        f"  tt.func private @f{i}(%a: f32) -> f32 {{\n    %b = tt.call @f{i + 1}(%a) : {types}\n"
        f"    %c = tt.call @f{i + 1}(%b) : {types}\n    tt.return %c : f32\n  }}\n"
        for i in range(levels)
    ]
    end = f"  tt.func private @f{levels}(%a: f32) -> f32 {{\n    {last or 'tt.return %a : f32'}\n  }}\n"
    body = f"    %v = tt.call @f0(%v0) : {types}\n    tt.store %o, %v : !tt.ptr<f32>\n"
    return kernel(body, more="".join([*functions, end]))


def nested(count: int) -> str:
    return kernel("scf.if %c {\n" * count + "    tt.store %o, %v0 : !tt.ptr<f32>\n" + "}\n" * count)


def placed(definitions: str, place: str = "#loc1") -> str:
    text = chain(3).replace("%v1 = arith.addf %v0, %v0 : f32", f"%v1 = arith.addf %v0, %v0 : f32 loc({place})")
    return text + definitions


def tile(size: str) -> str:
    return kernel(f"    %r = tt.make_range {{end = 4 : i32, start = 0 : i32}} : tensor<{size}xi32>\n")


SELF = "%b = tt.call @f0(%a) : (f32) -> f32\n    tt.return %b : f32"

REFUSED = {
    "characters": (chain(3) + "// " + "x" * MAX_TEXT, f"at most {MAX_TEXT:,} characters, got .*: make loops"),
    "calls": (calls(24), f"at most {MAX_OPERATIONS:,} operations with those of the functions .* got: %b = tt.call @f"),
    "many calls": (calls(200), "got 12,284, got: .*make loops"),
    "recursion": (calls(24, SELF), "a function must not call itself, got: .*tt.call @f.*: write a loop"),
    "unknown function": (
        calls(2).replace("@f0(%v0)", "@g(%v0)"),
        "a function that is called is in the same text, got no @g",
    ),
    "types of a call": (
        calls(1).replace("@f0(%v0) : (f32) -> f32", "@f0(%c) : (i1) -> f32"),
        "a call has the types of its function",
    ),
    "no return": (calls(0, "%b = arith.addf %a, %a : f32"), "a call has the types of its function|terminator"),
    "branches": (nested(5000), f"nested at most {MAX_DEPTH} deep, got more in line {MAX_DEPTH + 1}"),
    "brackets": ("module attributes {a = " + "[" * 10**5 + "]" * 10**5 + "} {}", "in line 1: make a function"),
    "chain": (chain(5000), f"at most {MAX_CHAIN} operations in a row need the one before, got: %v{MAX_CHAIN} ="),
    "operations": (
        kernel("    tt.store %o, %v0 : !tt.ptr<f32>\n" * (MAX_OPERATIONS + 1)),
        f"at most {MAX_OPERATIONS:,} operations",
    ),
    "tile": (
        tile(str(2 * MAX_ELEMENTS)),
        f"a tile has at most {MAX_ELEMENTS:,} elements, got 524288 in line 3: take smaller tiles",
    ),
    "huge tile": (tile("x".join(["9" * 30] * 9)), "a tile has at most"),
    "location of itself": (
        placed("#loc1 = loc(#loc2)\n#loc2 = loc(#loc1)\n"),
        "got #loc1 in #loc2 in #loc1, which names itself",
    ),
    "other names": (placed("#a = loc(#b)\n#b = loc(#a)\n", "#a"), "#a in #b in #a, which names itself"),
    "no location": (placed("", "#loc9"), "defined in the same text, got #loc9"),
    "locations": (
        placed("".join(f"#loc{i} = loc(fused[#loc{i + 1}, #loc{i + 1}])\n" for i in range(1, 999))),
        f"at most {MAX_PLACES} deep",
    ),
    "locations in one": (
        placed("", "callsite(" * 5000 + "unknown" + " at unknown)" * 5000),
        f"at most {MAX_PLACES} deep",
    ),
    "line of a location": (placed("", f'"k.py":{"9" * 5000}:1'), "numbers of at most 9 digits, got '999"),
    "before its definition": (chain(3).replace("%v1, %v1", "%v3, %v3"), "used behind its definition.*; %v3 is not"),
    "itself": (chain(3).replace("%v1, %v1", "%v2, %v2"), "%v2 is not, got: %v2 = "),
    "outside its region": (
        kernel("    scf.if %c {\n    %x = arith.addf %v0, %v0 : f32\n    }\n    tt.store %o, %x : !tt.ptr<f32>\n"),
        "%x",
    ),
    "constant": (
        kernel("    %z = arith.constant 300 : i8\n"),
        r"Integer value 300 is out of range .* got: %z = arith.constant 300",
    ),
    "types of an operation": (chain(3).replace("%v1, %v1 : f32", "%v1, %v1 : i32"), "got: %v2 = arith.addf"),
    "quote": (
        kernel('    tt.store %o, %v0 {a = "' + "x" * 60 + " : f32\n"),
        "a quoted text ends in its line, got none that ends in line 3",
    ),
    "escape": (
        kernel('    tt.store %o, %v0 {a = "' + "x" * 60 + '\\}"} : f32\n'),
        "a quoted text ends in its line, got none that ends in line 3: close it, and write no escapes but",
    ),
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("kind", REFUSED)
def test_a_text_beyond_a_limit_is_refused_before_the_work(kind: str) -> None:
    text, rule = REFUSED[kind]
    with cpu_seconds(20), pytest.raises(ValueError, match=rule) as refused:
        read_ttir(text)
    assert len(str(refused.value)) < 800


def test_texts_within_the_limits_are_read() -> None:
    doubled = (
        "".join(f"#loc{i} = loc(fused[#loc{i + 1}, #loc{i + 1}])\n" for i in range(1, 60))
        + '#loc60 = loc("k.py":1:2)\n'
    )
    for text in (calls(8), nested(MAX_DEPTH - 8), chain(MAX_CHAIN - 10), placed(doubled)):
        with cpu_seconds(20):
            compile_wanted(wanted(text))
    assert "k.py" in str(next(iter(read_ttir(placed(doubled)).body.ops)).body.block.first_op.location)  # pyright: ignore


@pytest.mark.parametrize("kind", ["calls", "location of itself", "constant"])
def test_the_command_refuses_in_one_line(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "k.ttir"
    path.write_text(REFUSED[kind][0], encoding="utf-8")
    result = CliRunner().invoke(app, ["compile", str(path)])
    assert result.exit_code == 2 and not result.stdout and result.stderr.count("\n") == 1
    assert re.search(REFUSED[kind][1], result.stderr)


@pytest.mark.parametrize("name", ["../a b", "a-b", "a.b", "1", "µ"])
def test_any_name_of_a_kernel_becomes_one_of_ptx(name: str) -> None:
    assert ".visible .entry own" in compile_wanted(wanted(chain(3).replace("@k", f'@"{name}"'))).made.ptx


def wanted(text: str) -> Wanted:
    return Wanted(Text("k", lambda: read_ttir(text)), Kind((), (), (), ()), Hints(), "bulk", "sm_90a")


def check_mutants(count: int, seed: int) -> None:
    for name, text in mutants(FILES, count, seed):
        try:
            with cpu_seconds(20):
                compile_wanted(wanted(text))
        except ValueError as error:
            assert 20 < len(str(error)) < 4000, name
        except Exception as error:
            raise AssertionError(name) from error


def test_damaged_texts_are_read_or_refused() -> None:
    check_mutants(60, seed=11)


@pytest.mark.slow
def test_many_damaged_texts_are_read_or_refused() -> None:
    check_mutants(600, seed=12)
