"""Kernels whose loops carry two tiles of 8 or 16 bits, which wide loads bring."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

SIZE = 2048
"""Elements of a tile: 16 for each of 128 threads, in 4 words of 8-bit ones or 8 of 16-bit ones."""

TYPES: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "i8": np.int8,
    "i16": np.int16,
}

HEAD = """tt.func public @k(%out: !tt.ptr<{t}>, %x: !tt.ptr<{t}>, %n: i32) {{
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %row = arith.constant 2048 : i32
  %r = tt.make_range {{start = 0 : i32, end = 2048 : i32}} : tensor<2048xi32>
  %far = tt.splat %row : i32 -> tensor<2048xi32>
  %p0 = tt.splat %x : !tt.ptr<{t}> -> tensor<2048x!tt.ptr<{t}>>
  %p1 = tt.addptr %p0, %r : tensor<2048x!tt.ptr<{t}>>, tensor<2048xi32>
  %p2 = tt.addptr %p1, %far : tensor<2048x!tt.ptr<{t}>>, tensor<2048xi32>
  %one = tt.load %p1 : tensor<2048x!tt.ptr<{t}>>
  %two = tt.load %p2 : tensor<2048x!tt.ptr<{t}>>"""

TAIL = """
  %o0 = tt.splat %out : !tt.ptr<{t}> -> tensor<2048x!tt.ptr<{t}>>
  %o1 = tt.addptr %o0, %r : tensor<2048x!tt.ptr<{t}>>, tensor<2048xi32>
  %o2 = tt.addptr %o1, %far : tensor<2048x!tt.ptr<{t}>>, tensor<2048xi32>
  tt.store %o1, %u : tensor<2048x!tt.ptr<{t}>>
  tt.store %o2, %v : tensor<2048x!tt.ptr<{t}>>
  tt.return
}}"""

NEXT = """
    %k = arith.addi %i, %c2 : i32
    %at = arith.muli %k, %row : i32
    %by = tt.splat %at : i32 -> tensor<2048xi32>
    %q = tt.addptr %p1, %by : tensor<2048x!tt.ptr<{t}>>, tensor<2048xi32>
    %w = tt.load %q : tensor<2048x!tt.ptr<{t}>>"""
"""The tile two rows behind the loop's number."""

FOR = """
  %c2 = arith.constant 2 : i32
  %u, %v = scf.for %i = %c0 to %n step %c1 iter_args(%a = %one, %b = %two) -> (tensor<2048x{t}>, tensor<2048x{t}>) : i32 {{BODY
    scf.yield ENDS : tensor<2048x{t}>, tensor<2048x{t}>
  }}"""

WHILE = """
  %c2 = arith.constant 2 : i32
  %u, %v, %last = scf.while (%a = %one, %b = %two, %i = %c0) : (tensor<2048x{t}>, tensor<2048x{t}>, i32) -> (tensor<2048x{t}>, tensor<2048x{t}>, i32) {{
    %some = arith.remsi %i, %c2 : i32
    %more = arith.cmpi slt, %i, %n : i32
    scf.condition(%more) %b, %a, %i : tensor<2048x{t}>, tensor<2048x{t}>, i32
  }} do {{
  ^bb0(%b: tensor<2048x{t}>, %a: tensor<2048x{t}>, %i: i32):BODY
    %j = arith.addi %i, %c1 : i32
    scf.yield ENDS, %j : tensor<2048x{t}>, tensor<2048x{t}>, i32
  }}"""


def kernel(element: str, loop: str, body: str, ends: str) -> str:
    return (HEAD + loop.replace("BODY", body).replace("ENDS", ends) + TAIL).format(t=element)


def draw(rng: np.random.Generator, element: str) -> np.ndarray:
    return rng.integers(-7, 8, (8, SIZE)).astype(TYPES[element])
