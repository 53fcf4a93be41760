"""Tiles through shared memory, from every layout in which they are loaded to those in which products take them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from louver.emulator import Seeded
from louver.ir.context import parse_ir
from louver.ir.tile import BlockedAttr, DotOperandAttr, MmaAttr, SharedAttr
from louver.ir.tile.encodings import Encoding
from louver.isa.targets import target
from louver.kernels.emulate_tiles import emulate_tiles
from louver.passes.compile_tiles import CompiledTiles, argument_groups, read_parameters
from louver.passes.lower_tiles import lower_tiles
from louver.passes.tile_signature import TileSignature
from louver.ptx.printer import print_module

WARPS = 4
ELEMENTS = {"f16": np.float16, "i8": np.int8, "f32": np.float32, "f8E4M3FN": np.uint8, "bf16": np.uint16}
BITS = {"f16": 16, "i8": 8, "f32": 32, "f8E4M3FN": 8, "bf16": 16}

COPY = """tt.func public @copy(%out: !tt.ptr<{t}>, %x: !tt.ptr<{t}>) {{
{source}
  %a = tt.load %s_at : tensor<{m}x{n}x!tt.ptr<{t}>, {from_}>
  %b = ttg.convert_layout %a : tensor<{m}x{n}x{t}, {from_}> -> tensor<{m}x{n}x{t}, {through}>
  %c = ttg.convert_layout %b : tensor<{m}x{n}x{t}, {through}> -> tensor<{m}x{n}x{t}, {to}>
{result}
  tt.store %r_at, %c : tensor<{m}x{n}x!tt.ptr<{t}>, {to}>
  tt.return
}}"""


def pointers(name: str, base: str, encoding: Encoding, m: int, n: int, t: str) -> str:
    """Of a row-major matrix."""
    rows, columns = f"tensor<{m}x1xi32, {encoding}>", f"tensor<1x{n}xi32, {encoding}>"
    whole, at = f"tensor<{m}x{n}xi32, {encoding}>", f"tensor<{m}x{n}x!tt.ptr<{t}>, {encoding}>"
    slices = [f"#tt.slice<{{dim = {dim}, parent = {encoding}}}>" for dim in (1, 0)]
    return f"""  %{name}_m = tt.make_range {{start = 0 : i32, end = {m} : i32}} : tensor<{m}xi32, {slices[0]}>
  %{name}_n = tt.make_range {{start = 0 : i32, end = {n} : i32}} : tensor<{n}xi32, {slices[1]}>
  %{name}_m1 = tt.expand_dims %{name}_m {{axis = 1 : i32}} : tensor<{m}xi32, {slices[0]}> -> {rows}
  %{name}_n1 = tt.expand_dims %{name}_n {{axis = 0 : i32}} : tensor<{n}xi32, {slices[1]}> -> {columns}
  %{name}_p = arith.constant dense<{n}> : {rows}
  %{name}_q = arith.muli %{name}_m1, %{name}_p : {rows}
  %{name}_r = tt.broadcast %{name}_q : {rows} -> {whole}
  %{name}_c = tt.broadcast %{name}_n1 : {columns} -> {whole}
  %{name}_o = arith.addi %{name}_r, %{name}_c : {whole}
  %{name}_b = tt.splat %{base} : !tt.ptr<{t}> -> {at}
  %{name}_at = tt.addptr %{name}_b, %{name}_o : {at}, {whole}"""


def compiled(t: str, m: int, n: int, encodings: tuple[Encoding, Encoding, Encoding]) -> CompiledTiles:
    from_, through, to = encodings
    text = COPY.format(
        t=t,
        m=m,
        n=n,
        from_=from_,
        through=through,
        to=to,
        source=pointers("s", "x", from_, m, n, t),
        result=pointers("r", "out", to, m, n, t),
    )
    module = parse_ir(text)
    function = next(iter(module.body.ops))
    parameters = read_parameters(function, argument_groups(function))  # type: ignore[arg-type]
    lowered = lower_tiles(function, parameters, WARPS, target("sm_90a"))  # type: ignore[arg-type]
    kernel = lowered.kernels[0]
    signature = TileSignature("copy", tuple(parameters), kernel.threads, kernel.dynamic_shared, (), (), ())
    return CompiledTiles(target("sm_90a"), module, module, module, lowered, print_module(lowered), signature)


def operands(bits: int) -> dict[str, DotOperandAttr]:
    return {
        "a": DotOperandAttr.of(0, MmaAttr.of(2, 2), bits),
        "b": DotOperandAttr.of(1, MmaAttr.of(2, 2), bits),
        "a of few rows": DotOperandAttr.of(0, MmaAttr.of(1, 4), bits),
        "transposed b": DotOperandAttr.of(0, MmaAttr.of(2, 2, transposed=True), bits),
        "transposed a": DotOperandAttr.of(1, MmaAttr.of(4, 1, transposed=True), bits),
    }


@pytest.mark.parametrize(
    ("t", "along", "name", "shape"),
    [
        *product(ELEMENTS, (0, 1), operands(16), [(64, 64)]),
        *product(("f16", "i8"), (0, 1), ("a", "b"), [(16, 128), (128, 16), (32, 32)]),
    ],
    ids=lambda each: "x".join(map(str, each)) if isinstance(each, tuple) else str(each),
)
def test_tiles_keep_their_elements(
    rng: np.random.Generator, t: str, along: int, name: str, shape: tuple[int, int]
) -> None:
    bits = BITS[t]
    encoding = operands(bits)[name]
    loaded = BlockedAttr.default(shape, WARPS, 128 // bits, (along, 1 - along))
    made = compiled(t, *shape, (loaded, SharedAttr.along(along), encoding))
    x = rng.integers(0, 256, (*shape, bits // 8), dtype=np.uint8).view(ELEMENTS[t])[..., 0]
    x = np.nan_to_num(x) if t in ("f16", "f32") else x
    out = np.zeros_like(x)
    arguments = {"out": out, "x": x}
    emulate_tiles(made, (1,), arguments, order=Seeded(3), uninitialised=["out"])  # type: ignore[arg-type]
    np.testing.assert_array_equal(out, x)
    k_is_along = (along == 1) == (encoding.index.data == 0)
    assert (".trans" in made.ptx) == (bits == 16 and not k_is_along)
    assert ("ldmatrix" in made.ptx) == (k_is_along or bits == 16)


def test_what_shares_memory_waits_for_all_threads() -> None:
    made = compiled(
        "f16",
        64,
        64,
        (BlockedAttr.default((64, 64), WARPS, 8), SharedAttr.along(1), operands(16)["a"]),
    )
    lines = [line for line in made.ptx.splitlines() if any(word in line for word in ("st.shared", "bar", "ldmatrix"))]
    kinds = ["put" if "st.shared" in line else "take" if "ldmatrix" in line else "meet" for line in lines]
    assert [kind for number, kind in enumerate(kinds) if number == 0 or kinds[number - 1] != kind] == [
        "put",
        "meet",
        "take",
    ]
    assert made.signature.shared_bytes == 64 * 64 * 2
