"""Equal values are computed once: rows, masks and divisors that several tiles read."""

from __future__ import annotations

import importlib.util
import re

import numpy as np
import pytest

import louver
from louver.compile.lower.tiles.join_equal import join_equal
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Inst, Param

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton
import triton.language as tl

HEIGHT, WIDTH, DEPTH, COLUMNS, ROWS = 6, 7, 96, 32, 32


@triton.jit
def picture(x, w, y, HEIGHT, WIDTH, DEPTH, S_H, S_W, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr):
    """Rows of x by line and column of a picture, whose sizes are numbers of the call."""
    n, m = tl.arange(0, COLUMNS), tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for k0 in range(0, DEPTH, STEP):
        k = k0 + tl.arange(0, STEP)
        line, column = m // WIDTH, m % WIDTH
        inside = (line < HEIGHT)[:, None] & (k < DEPTH)[None, :]
        left = tl.load(x + line[:, None] * S_H + column[:, None] * S_W + k[None, :], mask=inside, other=0)
        right = tl.load(w + n[None, :] * DEPTH + k[:, None], mask=(k < DEPTH)[:, None], other=0)
        total = tl.dot(left, right, total)
    tl.store(y + m[:, None] * COLUMNS + n[None, :], total, mask=(m < HEIGHT * WIDTH)[:, None])


def test_quotient_and_remainder_are_one_division(rng: np.random.Generator) -> None:
    x = rng.standard_normal((HEIGHT, WIDTH + 1, DEPTH)).astype(np.float16)
    w = louver.prune(rng.standard_normal((COLUMNS, DEPTH)).astype(np.float16), "2:4")
    y = np.zeros((HEIGHT * WIDTH, COLUMNS), np.float32)
    grid = (-(-HEIGHT * WIDTH // ROWS),)
    call = x, louver.compress(w, "2:4"), y, HEIGHT, WIDTH, DEPTH, (WIDTH + 1) * DEPTH, DEPTH, ROWS, COLUMNS, 32
    text = louver.jit(picture).explain[grid](*call).ptx
    assert "div.s32" in text
    assert "rem.s32" not in text
    louver.jit(picture).emulate[grid](*call)
    rows = x[:, :WIDTH].reshape(-1, DEPTH).astype(np.float64)
    np.testing.assert_allclose(y, rows @ w.astype(np.float64).T, rtol=1e-3, atol=1e-3)


def test_nothing_is_computed_twice_in_a_block(rng: np.random.Generator) -> None:
    x = rng.standard_normal((HEIGHT, WIDTH + 1, DEPTH)).astype(np.float16)
    w = louver.compress(louver.prune(rng.standard_normal((COLUMNS, DEPTH)).astype(np.float16), "2:4"), "2:4")
    y = np.zeros((HEIGHT * WIDTH, COLUMNS), np.float32)
    call = x, w, y, HEIGHT, WIDTH, DEPTH, (WIDTH + 1) * DEPTH, DEPTH, ROWS, COLUMNS, 32
    text = louver.jit(picture).explain[(2,)](*call).ptx
    written = re.findall(r"^ +(?:@!?%p\d+ )?\S+ \{?(%\w+)", text, re.MULTILINE)
    once = {each for each in written if written.count(each) == 1}
    found: set[str] = set()
    for block in re.split(r"^\w+:|\bbra\b", text, flags=re.MULTILINE):
        made = re.findall(r"^ +((?:add|mul|shl|and|setp|div)[\w.]*) (%\w+), (.*);", block, re.MULTILINE)
        forms = [(form, given) for form, to, given in made if {to, *re.findall(r"%\w+", given)} <= once]
        assert len(forms) == len(set(forms))
        found.update(form for form, _ in forms)
    assert {"div.s32", "setp.lt.s32"} <= found


def test_a_value_that_changes_is_computed_again() -> None:
    k = KernelBuilder("again", (Param("x", "u64"),), threads=32)
    x, number = k.ld_param("x"), k.mov(1, kind="b32")
    with k.loop() as loop:
        first = k.add(number, 3)
        k.store_global(Address(x), first)
        k.add(number, 1, into=number)
        k.store_global(Address(x, 4), k.add(number, 3))
        k.store_global(Address(x, 8), k.mul_f32(k.mov(0.0, kind="f32"), k.mov(-0.0, kind="f32")))
        loop.repeat_if(k.setp("lt", "u32", number, 9))
    kernel = k.finish()
    before = [node for node in kernel.body.walk() if isinstance(node, Inst)]
    join_equal(kernel.body, k.reg)
    assert [node for node in kernel.body.walk() if isinstance(node, Inst)] == before
