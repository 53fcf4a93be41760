"""Tile IR of one operation on elements, or of atomics on memory, for the emulator and for the device."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i32": np.int32, "i64": np.int64}
UNIT = {"f32": 2.0**-21, "f16": 2.0**-10, "bf16": 2.0**-7}
SIZE = 256

ELEMENTWISE = """tt.func public @k(%out: !tt.ptr<{t}>, %x: !tt.ptr<{t}>, %y: !tt.ptr<{t}>) {{
  %r = tt.make_range {{start = 0 : i32, end = 256 : i32}} : tensor<256xi32>
  %px = tt.splat %x : !tt.ptr<{t}> -> tensor<256x!tt.ptr<{t}>>
  %py = tt.splat %y : !tt.ptr<{t}> -> tensor<256x!tt.ptr<{t}>>
  %po = tt.splat %out : !tt.ptr<{t}> -> tensor<256x!tt.ptr<{t}>>
  %qx = tt.addptr %px, %r : tensor<256x!tt.ptr<{t}>>, tensor<256xi32>
  %qy = tt.addptr %py, %r : tensor<256x!tt.ptr<{t}>>, tensor<256xi32>
  %qo = tt.addptr %po, %r : tensor<256x!tt.ptr<{t}>>, tensor<256xi32>
  %a = tt.load %qx : tensor<256x!tt.ptr<{t}>>
  %b = tt.load %qy : tensor<256x!tt.ptr<{t}>>
  %v = {op} : tensor<256x{t}>
  tt.store %qo, %v : tensor<256x!tt.ptr<{t}>>
  tt.return
}}"""
"""Fields: t, the element type; op, an operation on %a and %b."""

ATOMIC = """tt.func public @k(%out: !tt.ptr<{t}>, %x: !tt.ptr<{t}>, %old: !tt.ptr<{t}>) {{
  %r = tt.make_range {{start = 0 : i32, end = 256 : i32}} : tensor<256xi32>
  %n = arith.constant dense<{bins}> : tensor<256xi32>
  %w = arith.constant dense<250> : tensor<256xi32>
  %m = arith.cmpi slt, %r, %w : tensor<256xi32>
  %at = arith.remui %r, %n : tensor<256xi32>
  %px = tt.splat %x : !tt.ptr<{t}> -> tensor<256x!tt.ptr<{t}>>
  %qx = tt.addptr %px, %r : tensor<256x!tt.ptr<{t}>>, tensor<256xi32>
  %po = tt.splat %out : !tt.ptr<{t}> -> tensor<256x!tt.ptr<{t}>>
  %qo = tt.addptr %po, %at : tensor<256x!tt.ptr<{t}>>, tensor<256xi32>
  %pb = tt.splat %old : !tt.ptr<{t}> -> tensor<256x!tt.ptr<{t}>>
  %qb = tt.addptr %pb, %r : tensor<256x!tt.ptr<{t}>>, tensor<256xi32>
  %v = tt.load %qx : tensor<256x!tt.ptr<{t}>>
  %b = tt.atomic_rmw {kind}, acq_rel, gpu, %qo, %v, %m : (tensor<256x!tt.ptr<{t}>>, tensor<256x{t}>, tensor<256xi1>) -> tensor<256x{t}>
  {store}
  tt.return
}}"""
KEEP = "tt.store %qb, %b : tensor<256x!tt.ptr<{0}>>"

CHANGES: dict[str, Any] = {
    "add": np.add, "fadd": np.add, "max": np.maximum, "min": np.minimum, "umax": np.maximum, "umin": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "exch": lambda a, b: b,
}  # fmt: skip

ATOMICS = [
    *((kind, element) for kind in CHANGES for element in ("i32", "i64") if kind != "fadd"),
    *(("fadd", element) for element in ("f32", "f16", "bf16")),
    ("exch", "f32"),
]


def changed(kind: str, start: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The result of `ATOMIC` on `start`: 250 elements of x, one after the other, into as many bins as it has."""
    wanted = start.copy()
    for at in range(250):
        place = at % start.size
        old, new = wanted[place : place + 1], x[at : at + 1]
        if kind.startswith("u"):
            old, new = old.view(f"u{old.itemsize}"), new.view(f"u{new.itemsize}")
        wanted[place] = CHANGES[kind](old, new).view(start.dtype)[0]
    return wanted


DOT = """tt.func public @k(%d: !tt.ptr<{out}>, %a: !tt.ptr<{t}>, %b: !tt.ptr<{t}>) {{
  %m = tt.make_range {{start = 0 : i32, end = 16 : i32}} : tensor<16xi32>
  %k = tt.make_range {{start = 0 : i32, end = {k} : i32}} : tensor<{k}xi32>
  %m1 = tt.expand_dims %m {{axis = 1 : i32}} : tensor<16xi32> -> tensor<16x1xi32>
  %n0 = tt.expand_dims %m {{axis = 0 : i32}} : tensor<16xi32> -> tensor<1x16xi32>
  %k1 = tt.expand_dims %k {{axis = 1 : i32}} : tensor<{k}xi32> -> tensor<{k}x1xi32>
  %k0 = tt.expand_dims %k {{axis = 0 : i32}} : tensor<{k}xi32> -> tensor<1x{k}xi32>
  %ck = arith.constant dense<{k}> : tensor<16x1xi32>
  %cn = arith.constant dense<16> : tensor<{k}x1xi32>
  %cd = arith.constant dense<16> : tensor<16x1xi32>
  %ra = arith.muli %m1, %ck : tensor<16x1xi32>
  %rb = arith.muli %k1, %cn : tensor<{k}x1xi32>
  %rd = arith.muli %m1, %cd : tensor<16x1xi32>
  %a0 = tt.broadcast %ra : tensor<16x1xi32> -> tensor<16x{k}xi32>
  %a1 = tt.broadcast %k0 : tensor<1x{k}xi32> -> tensor<16x{k}xi32>
  %b0 = tt.broadcast %rb : tensor<{k}x1xi32> -> tensor<{k}x16xi32>
  %b1 = tt.broadcast %n0 : tensor<1x16xi32> -> tensor<{k}x16xi32>
  %d0 = tt.broadcast %rd : tensor<16x1xi32> -> tensor<16x16xi32>
  %d1 = tt.broadcast %n0 : tensor<1x16xi32> -> tensor<16x16xi32>
  %oa = arith.addi %a0, %a1 : tensor<16x{k}xi32>
  %ob = arith.addi %b0, %b1 : tensor<{k}x16xi32>
  %od = arith.addi %d0, %d1 : tensor<16x16xi32>
  %pa = tt.splat %a : !tt.ptr<{t}> -> tensor<16x{k}x!tt.ptr<{t}>>
  %pb = tt.splat %b : !tt.ptr<{t}> -> tensor<{k}x16x!tt.ptr<{t}>>
  %pd = tt.splat %d : !tt.ptr<{out}> -> tensor<16x16x!tt.ptr<{out}>>
  %qa = tt.addptr %pa, %oa : tensor<16x{k}x!tt.ptr<{t}>>, tensor<16x{k}xi32>
  %qb = tt.addptr %pb, %ob : tensor<{k}x16x!tt.ptr<{t}>>, tensor<{k}x16xi32>
  %qd = tt.addptr %pd, %od : tensor<16x16x!tt.ptr<{out}>>, tensor<16x16xi32>
  %va = tt.load %qa : tensor<16x{k}x!tt.ptr<{t}>>
  %vb = tt.load %qb : tensor<{k}x16x!tt.ptr<{t}>>
  %zero = arith.constant dense<{zero}> : tensor<16x16x{out}>
  %v = tt.dot %va, %vb, %zero{precision} : tensor<16x{k}x{t}> * tensor<{k}x16x{t}> -> tensor<16x16x{out}>
  tt.store %qd, %v : tensor<16x16x!tt.ptr<{out}>>
  tt.return
}}"""
"""A dot of 16×k and k×16. t, out: element types. zero: of `out`. precision: of f32."""

CONVERSION = """tt.func public @k(%out: !tt.ptr<{to}>, %x: !tt.ptr<{source}>) {{
  %n = tt.make_range {{start = 0 : i32, end = 256 : i32}} : tensor<256xi32>
  %xs = tt.splat %x : !tt.ptr<{source}> -> tensor<256x!tt.ptr<{source}>>
  %xp = tt.addptr %xs, %n : tensor<256x!tt.ptr<{source}>>, tensor<256xi32>
  %a = tt.load %xp : tensor<256x!tt.ptr<{source}>>
  %c = {op} %a {more} : tensor<256x{source}> {arrow} tensor<256x{to}> loc("kernel.py":7:4)
  %os = tt.splat %out : !tt.ptr<{to}> -> tensor<256x!tt.ptr<{to}>>
  %op = tt.addptr %os, %n : tensor<256x!tt.ptr<{to}>>, tensor<256xi32>
  tt.store %op, %c : tensor<256x!tt.ptr<{to}>>
  tt.return
}}
"""


def conversion(source: str, to: str, op: str) -> str:
    """A kernel that converts 256 elements at x to others at out."""
    arrow, more = ("->", ", rounding = rtne" if to.startswith("f8") else "") if op == "tt.fp_to_fp" else ("to", "")
    return CONVERSION.format(source=source, to=to, op=op, arrow=arrow, more=more)
