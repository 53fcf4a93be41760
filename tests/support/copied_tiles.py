"""Kernels that load a tile in one layout, convert it and store it in another one."""

from __future__ import annotations

from collections.abc import Sequence

from louver.compile.compiled import CompiledTiles
from louver.compile.lower.tiles import lower_tiles, place_shared
from louver.compile.read_signature import argument_groups, read_parameters
from louver.compile.signature import Signature
from louver.ir.context import parse_ir
from louver.ir.tile.encodings import Encoding
from louver.isa.targets import target
from louver.ptx.printer import print_module

COPY = """tt.func public @copy(%out: !tt.ptr<{t}>, %x: !tt.ptr<{t}>) {{
{source}
  %v0 = tt.load %s_at : tensor<{m}x{n}x!tt.ptr<{t}>, {first}>
{steps}
{result}
  tt.store %r_at, %v{last} : tensor<{m}x{n}x!tt.ptr<{t}>, {to}>
  tt.return
}}"""


def _pointers(name: str, base: str, encoding: Encoding, m: int, n: int, t: str) -> str:
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


def compiled(
    t: str, m: int, n: int, encodings: Sequence[Encoding], machine: str = "sm_90a", *, truths: bool = False
) -> CompiledTiles:
    """A kernel that copies x [m, n] to out through each of these encodings. truths: as booleans, of what is not 0."""
    first, to = encodings[0], encodings[-1]
    steps: list[str] = []
    inner = "i1" if truths else t
    if truths:
        kind = f"tensor<{m}x{n}x{t}, {first}>"
        steps += [f"  %z = arith.constant dense<0> : {kind}", f"  %b0 = arith.cmpi ne, %v0, %z : {kind}"]
    letter = "b" if truths else "v"
    for number, (one, other) in enumerate(zip(encodings, encodings[1:], strict=False), 1):
        steps.append(
            f"  %{letter}{number} = ttg.convert_layout %{letter}{number - 1} : tensor<{m}x{n}x{inner}, {one}> "
            f"-> tensor<{m}x{n}x{inner}, {other}>"
        )
    last = len(encodings) - 1
    if truths:
        steps.append(f"  %v{last} = arith.extui %b{last} : tensor<{m}x{n}xi1, {to}> to tensor<{m}x{n}x{t}, {to}>")
    text = COPY.format(
        t=t,
        m=m,
        n=n,
        first=first,
        to=to,
        steps="\n".join(steps),
        last=last,
        source=_pointers("s", "x", first, m, n, t),
        result=_pointers("r", "out", to, m, n, t),
    )
    module = parse_ir(text)
    function = next(iter(module.body.ops))
    parameters = read_parameters(function, argument_groups(function))  # type: ignore[arg-type]
    limits = target(machine)
    rooms = place_shared(function, limits)  # type: ignore[arg-type]
    lowered = lower_tiles(function, parameters, first.warps, limits, rooms)  # type: ignore[arg-type]
    kernel = lowered.kernels[0]
    signature = Signature("copy", tuple(parameters), kernel.threads, kernel.dynamic_shared)
    return CompiledTiles(limits, module, module, module, lowered, print_module(lowered), signature)
