"""Inline assembly of users' kernels, on the emulator and by the interpreter, against NumPy in float64 or on bits."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import louver
from louver.frontend.ttir.instructions import INSTRUCTIONS
from louver.ir.refusal import UnsupportedKernelError
from louver.ptx.assembler import assemble

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton import assembly as kernels
from support.triton.assembly_cases import CASES, TANH, B, N, arguments, by_table, check, drawn

ENGINES = ("emulator", "interpreter")


def test_every_instruction_has_a_case() -> None:
    assert CASES.keys() == INSTRUCTIONS.keys()


def run(kernel: Any, engine: str, programs: int, **arguments: Any) -> None:
    launched = louver.jit(kernel)
    (launched.emulate[programs,] if engine == "emulator" else launched[programs,])(**arguments)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_instructions(rng: np.random.Generator, name: str, engine: str) -> None:
    known = arguments(rng, CASES[name])
    run(kernels.assembled, engine, 1, **known)
    check(CASES[name], known)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("table", [0x00, 0xFF, 0xEA, 0x6A, 0x96])
def test_tables_of_three_bits(rng: np.random.Generator, table: int, engine: str) -> None:
    x, y, z = drawn(rng, "b32")
    out = np.full(N, 77, np.int32)
    text = f"lop3.b32 $0, $1, $2, $3, {table};"
    run(kernels.assembled, engine, 1, out=out, x=x, y=y, z=z, n=N, ASM=text, CONSTRAINTS="=r, r, r, r", B=B)
    np.testing.assert_array_equal(out, by_table(table)(x, y, z))


@pytest.mark.parametrize("engine", ENGINES)
def test_small_numbers_are_kept_with_ftz(engine: str) -> None:
    """Louver's sum does not flush them."""
    x = np.full(N, 2.0**-140, np.float32)
    out = np.full(N, np.nan, np.float32)
    text = "add.ftz.f32 $0, $1, $2;"
    run(kernels.assembled, engine, 1, out=out, x=x, y=x, z=x, n=N, ASM=text, CONSTRAINTS="=r,r,r,r", B=B)
    np.testing.assert_array_equal(out, np.float32(2.0**-139))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_sequence_with_temporaries(rng: np.random.Generator, engine: str) -> None:
    """Blocks, comments, a name that an inner block declares again, and a result that a later statement reads."""
    x, y = (rng.standard_normal(N).astype(np.float32) for _ in range(2))
    out, bits = np.full(N, np.nan, np.float32), np.full(N, 77, np.int32)
    run(kernels.sums_and_bits, engine, 1, out=out, bits=bits, x=x, y=y, n=N, B=B)
    twice = 2.0 * x.astype(np.float64)
    wanted = np.where(twice > np.abs(y), twice * y - 1.5, twice).astype(np.float32)
    np.testing.assert_array_equal(out, wanted)
    np.testing.assert_array_equal(bits, wanted.view(np.int32) + 1)


def test_a_sequence_assembles_cleanly() -> None:
    x = np.zeros(N, np.float32)
    explanation = louver.jit(kernels.sums_and_bits).explain(out=x, bits=x.view(np.int32), x=x, y=x, n=N, B=B)
    assert assemble(explanation.ptx, "sm_90a").faults == ()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_scalar_of_a_written_number(engine: str) -> None:
    out = np.zeros(1, np.int32)
    run(kernels.constant, engine, 1, out=out, ASM="mov.u32 $0, 0xFFFFFFF0U;", PACK=1)
    assert out[0] == -16


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("columns", [4, 64, 256])
def test_reductions(rng: np.random.Generator, columns: int, engine: str) -> None:
    """The greatest magnitude with the product of signs; a NaN stays, whatever its sign."""
    x = rng.standard_normal((13, columns)).astype(np.float32)
    x[2, 1], x[3, 3], x[4] = np.nan, -np.inf, -0.0
    out = np.full(13, 77, np.uint32)
    run(kernels.reduced, engine, 1, out=out, x=x, m=13, M=16, N=columns, SUM=False)
    odd = np.signbit(x).sum(axis=1) % 2 == 1
    wanted = np.copysign(np.max(np.abs(x), axis=1), np.where(odd, -1.0, 1.0)).astype(np.float32)
    found = out.view(np.float32)
    assert np.isnan(found[2]) and np.isnan(wanted[2])
    rest = np.arange(13) != 2
    np.testing.assert_array_equal(out[rest], wanted.view(np.uint32)[rest])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_reduction_with_constants(rng: np.random.Generator, engine: str) -> None:
    x = rng.integers(-8, 9, (13, 64)).astype(np.float32)
    out = np.full(13, 77, np.uint32)
    run(kernels.reduced, engine, 1, out=out, x=x, m=13, M=16, N=64, SUM=True)
    np.testing.assert_array_equal(out.view(np.float32), x.sum(axis=1))


@pytest.mark.parametrize("family", [None, "register tiles"])
def test_a_product_with_a_cap(rng: np.random.Generator, family: str | None) -> None:
    m, n, k = 40, 56, 200
    x = rng.standard_normal((m, k)).astype(np.float16)
    w = louver.prune((rng.standard_normal((n, k)) * 0.2).astype(np.float16), "2:4")
    y = np.full((m, n), np.nan, np.float32)
    known: dict[str, Any] = {"x": x, "w": louver.compress(w, "2:4"), "y": y, "M": m, "N": n, "K": k}
    known |= {"sx": k, "sw": k, "sy": n, "TM": 32, "TN": 32, "TK": 64}
    launched = louver.jit(kernels.capped_product, **({} if family is None else {"family": family}))
    assert launched.explain(**known).family == (family or "product")
    launched.emulate[2, 2](**known)
    wanted = 4.0 * np.tanh(x.astype(np.float64) @ w.T.astype(np.float64) / 4.0)
    np.testing.assert_allclose(y, wanted, rtol=TANH, atol=TANH)
    interpreted = np.full_like(y, np.nan)
    louver.jit(kernels.capped_product)[2, 2](**(known | {"y": interpreted}))
    np.testing.assert_allclose(interpreted, wanted, rtol=2.0**-18, atol=2.0**-18)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "bar.sync 0;",
            "inline assembly: `bar.sync` is not element-wise, .*, got at .*assembly.py:.*: use Triton's own",
        ),
        ("mov.u32 $0, %laneid;", "inline assembly: an operand is a number, .* and `%laneid` is none"),
        ("ld.global.b32 $0, [$1];", "`ld.global.b32` is not element-wise"),
        ("@p mov.b32 $0, 1;", "`@p` is not element-wise"),
        ("again: mov.b32 $0, 1;", "`again:` is not element-wise"),
        ("add.f16x2 $0, 1, 1;", "`add.f16x2` is not element-wise"),
        ("add.rz.f32 $0, 1.0, 1.0;", "`add.rz.f32` is not element-wise, or is not among the instructions that Louver"),
    ],
)
def test_what_is_not_element_wise_is_named(text: str, message: str) -> None:
    with pytest.raises(UnsupportedKernelError, match=message):
        run(kernels.constant, "emulator", 1, out=np.zeros(1, np.int32), ASM=text, PACK=1)


def test_packed_elements_are_refused() -> None:
    with pytest.raises(
        UnsupportedKernelError, match="inline assembly: pack is 1, and not 2: .*, got at .*: set pack=1"
    ):
        run(kernels.constant, "emulator", 1, out=np.zeros(1, np.int32), ASM="mov.b32 $0, 1;", PACK=2)


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        ("=r,h,r,r", "`h` of .1 is none for 32 bits, got at .*: convert the tile before"),
        ("r,r,r,r", r"constraints are r or f for 32 bits, .*; `r` of .0 is none"),
        ("=r,r,r,r,~{memory}", "each of 4 operands has a constraint, unlike in `=r,r,r,r,~"),
    ],
)
def test_constraints(marks: str, message: str) -> None:
    x = np.zeros(N, np.float32)
    known: dict[str, Any] = {"out": x, "x": x, "y": x, "z": x, "n": N, "ASM": "mov.b32 $0, $1;", "B": B}
    with pytest.raises(UnsupportedKernelError, match=message):
        run(kernels.assembled, "emulator", 1, **known, CONSTRAINTS=marks)
