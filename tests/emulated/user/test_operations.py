"""Operations of users' kernels, each on the emulator and by the interpreter, against NumPy in float64."""

from __future__ import annotations

import importlib.util
import inspect
import re
from typing import Any

import numpy as np
import pytest

import louver
from louver.emulator.errors import DeadlockError, UseBeforeArrivalError
from louver.frontend.ttir.libdevice import triton_name
from louver.ir.interpret.values import InterpretationError
from louver.ir.refusal import UnsupportedKernelError

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton import operations as kernels

N, B = 100, 128
ENGINES = ("emulator", "interpreter")


def run(kernel: Any, engine: str, programs: int, **arguments: Any) -> None:
    launched = louver.jit(kernel)
    (launched.emulate[programs,] if engine == "emulator" else launched[programs,])(**arguments)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", kernels.OPERATIONS)
def test_operations(rng: np.random.Generator, name: str, engine: str) -> None:
    x = (rng.standard_normal(N) * 3).astype(np.float32)
    y = (1.0 + 0.1 * rng.standard_normal(N)).astype(np.float32)
    out = np.full(N, np.nan, np.float32)
    run(kernels.operation, engine, 1, out=out, x=x, y=y, n=N, OPERATION=name, B=B)
    whole = [np.concatenate([each, np.full(B - N, fill)]).astype(np.float64) for each, fill in ((x, 0.0), (y, 1.0))]
    wanted = kernels.OPERATIONS[name](*whole)[:N]
    np.testing.assert_allclose(out.astype(np.float64), wanted, rtol=2.0**-16, atol=2.0**-18 * np.abs(wanted).max())


def test_small_powers_are_products() -> None:
    given = {each: np.ones(N, np.float32) for each in ("out", "x", "y")}
    kernel = louver.jit(kernels.operation)
    powers = [kernel.explain[1,](**given, n=N, OPERATION=f"{each}powers", B=B).ptx for each in ("", "small ")]
    assert ["lg2" in each for each in powers] == [True, False]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("forwards", [True, False])
def test_programs_that_wait_for_one_another_take_turns(forwards: bool, engine: str) -> None:
    """Each for the one before it, in the order in which they begin and against it."""
    out, locks = np.full((4, 40), np.nan, np.float32), np.zeros(4, np.int32)
    run(kernels.relay, engine, 4, locks=locks, out=out, n=40, FORWARDS=forwards, B=64)
    np.testing.assert_array_equal(out, np.repeat(np.arange(1.0, 5.0), 40).reshape(4, 40))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("lock", [np.uint8, np.int32])
@pytest.mark.parametrize("cached", ["", ".cv"])
def test_programs_that_wait_for_a_stored_flag(cached: str, lock: type, engine: str) -> None:
    """A load that another program ends is no dead code, and the number is stored behind all else."""
    out, locks = np.full((4, 40), np.nan, np.float32), np.zeros(4, lock)
    run(kernels.flags, engine, 4, locks=locks, out=out, n=40, CACHED=cached, B=64)
    np.testing.assert_array_equal(out, np.repeat(np.arange(1.0, 5.0), 40).reshape(4, 40))


def test_atomics_without_an_order_hand_nothing_on() -> None:
    out = np.full((2, 40), np.nan, np.float32)
    with pytest.raises(UseBeforeArrivalError, match="are read by warp .*, and nothing orders that write first"):
        run(kernels.unordered, "emulator", 2, locks=np.zeros(1, np.int32), out=out, n=40, B=64)


@pytest.mark.parametrize(
    ("engine", "error", "message"),
    [
        ("emulator", DeadlockError, "deadlock: atomics of CTA 0, 1 poll memory that no other CTA changes"),
        (
            "interpreter",
            InterpretationError,
            "2 programs poll memory that none of them changes, got at .*operations.py:",
        ),
    ],
)
def test_programs_that_wait_for_nothing_end_with_an_error(engine: str, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        run(kernels.waits, engine, 2, locks=np.zeros(1, np.int32), out=np.zeros(2, np.float32))


@pytest.mark.parametrize("engine", ENGINES)
def test_updates_that_change_nothing_are_no_deadlock(engine: str) -> None:
    """A flag of violations is set again and again."""
    flag, out = np.zeros(1, np.int32), np.zeros(2, np.float32)
    run(kernels.reports, engine, 2, flag=flag, out=out, steps=150)
    assert flag[0] == 3
    np.testing.assert_array_equal(out, np.ones(2))


def test_printing_is_left_out_and_says_so() -> None:
    out, x = np.zeros(1, np.float32), np.ones(1, np.float32)
    with pytest.warns(UserWarning, match=r"tl.device_print does nothing in Louver \(at .*operations.py:"):
        run(kernels.prints, "emulator", 1, out=out, x=x)
    assert out[0] == 1.0


@pytest.mark.parametrize(
    ("name", "x", "message"),
    [
        (
            "table",
            np.zeros(1, np.int64),
            "a pointer must come from an argument, got .*: pass each array as an argument, not a table",
        ),
        (
            "bessel",
            np.zeros(1, np.float32),
            "libdevice.j0 is not supported for f32, got at .*operations.py:.*: use one of abs, acos, ",
        ),
        (
            "quadrupled",
            np.zeros(1, np.float32),
            r"libdevice.ldexp is not supported for f32, got at .*: write x \* tl.exp2\(n.to\(tl.float32\)\)",
        ),
        ("calls_itself", np.zeros(1, np.float32), "a function with noinline must return once, at its end"),
    ],
)
def test_what_stays_refused_says_what_to_write(name: str, x: np.ndarray, message: str) -> None:
    with pytest.raises(UnsupportedKernelError, match=message):
        run(getattr(kernels, name), "emulator", 1, out=np.zeros(1, np.float32), x=x)


def test_refused_functions_have_the_names_that_users_type() -> None:
    """Each symbol of Triton's module is told by its function's name."""
    from triton.language.extra.cuda import libdevice

    source = inspect.getsource(libdevice)
    parts = re.split(r"^def (\w+)\(", source, flags=re.MULTILINE)
    named = [
        (name, symbol)
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
        for symbol in re.findall(r'"(__nv_\w+)"', text)
    ]
    assert len(named) > 200
    assert [(name, symbol) for name, symbol in named if triton_name(symbol) != name] == []
