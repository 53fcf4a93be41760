"""The time of a kernel's parts: `python benchmarks/ablations.py --shapes 8448x6144x8192 --dtype f16,e4m3 --out
FILE.json`.

Protocol: the library's kernel and copies that lack one part and give no result. The part is the products, the stores,
or the copies into shared memory (mostly zeros then, whose products draw little power). Each kernel runs alone: one
launch behind another after a pause (median of `LAUNCHES`), then under sustained load with clock and power from
nvidia-smi. "of peak" is dense-equivalent speed over 8,192 (16-bit) or 16,384 (8-bit) operations a cycle and SM at the
measured clock. The whole kernel's result is compared with float64 first.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from louver.choose.configure import choose
from louver.compile.compiled import CompiledProduct
from louver.compile.pipeline import compile_product
from louver.isa.bulk import BulkTensorLoad, BulkTensorStore
from louver.isa.sync import MbarrierArriveExpect
from louver.isa.targets import target
from louver.isa.wgmma import Wgmma
from louver.library.compiled import BuiltKernel, Launch
from louver.library.forms import forms_of
from louver.library.launch import Launcher
from louver.library.state import TensorState
from louver.measure.launches import launches, rows_of
from louver.measure.machine import require_torch
from louver.measure.operands import make_operands, verify
from louver.measure.problems import GemmProblem, parse_dtypes, parse_shapes
from louver.measure.protocol import Protocol
from louver.measure.record import write_record
from louver.measure.report.table import Column, Table, right
from louver.measure.sustained import Sustained, prepare, sustain
from louver.ptx.assembler import assemble
from louver.ptx.module import Block, If, Imm, Inst, Kernel, Module, Node, While
from louver.ptx.printer import print_module
from louver.runtime.device import Device, require_device
from louver.runtime.module import LoadedKernel, load
from script import arguments, facts_of

LAUNCHES = 12
PAUSE_SECONDS = 0.02
OPERATIONS = {32: 4096, 16: 8192, 8: 16384}
"""Dense-equivalent operations per cycle of one SM's tensor cores with 2:4, by bits of an element."""

Change = Callable[[Inst], Inst | None]


def _without(kind: type) -> Change:
    return lambda inst: None if isinstance(inst.op, kind) else inst


def _without_copies(inst: Inst) -> Inst | None:
    if isinstance(inst.op, MbarrierArriveExpect):
        return replace(inst, args=(*inst.args[:-1], Imm(0)))
    return None if isinstance(inst.op, BulkTensorLoad) else inst


PARTS: dict[str, Change] = {
    "whole": lambda inst: inst,
    "without products": _without(Wgmma),
    "without copies": _without_copies,
    "without stores": _without(BulkTensorStore),
}


def _changed(block: Block, change: Change) -> Block:
    nodes: list[Node] = []
    for node in block.nodes:
        match node:
            case If():
                otherwise = None if node.otherwise is None else _changed(node.otherwise, change)
                nodes.append(replace(node, then=_changed(node.then, change), otherwise=otherwise))
            case While():
                nodes.append(replace(node, body=_changed(node.body, change)))
            case Inst():
                kept = change(node)
                nodes += [] if kept is None else [kept]
    return Block(nodes)


@dataclass(frozen=True, slots=True)
class Taken:
    """One kernel's times. single_us: median launch after a pause."""

    part: str
    single_us: float
    sustained: Sustained

    def row(self, problem: GemmProblem, place: Device) -> dict[str, Any]:
        flops = 2.0 * math.prod(problem.shape)
        clock = self.sustained.clock_mhz
        peak = None if clock is None else OPERATIONS[problem.bits] * place.sm_count * clock / 1e6
        long = self.sustained.to_json(flops)
        return {
            "part": self.part,
            "single_us": round(self.single_us, 2),
            "single_tflops": round(flops / self.single_us * 1e-6, 1),
            "sustained": long,
            "of_peak": None if peak is None else round(self.sustained.tflops(flops) / peak, 4),
        }


def load_part(compiled: CompiledProduct, change: Change, ordinal: int) -> BuiltKernel[LoadedKernel]:
    kernel: Kernel = replace(compiled.kernel, body=_changed(compiled.kernel.body, change))
    cubin = assemble(print_module(Module(compiled.module.target, [kernel])), compiled.target.name).cubin
    facts = compiled.signature
    loaded = load(
        cubin,
        facts.kernel,
        dynamic_shared=facts.shared_bytes,
        threads=facts.threads,
        cluster=facts.cluster,
        ordinal=ordinal,
    )
    return BuiltKernel(loaded, Launch.of(compiled))


def measure(torch: Any, gemm: GemmProblem, protocol: Protocol) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The schedule, and a row for each part."""
    place = require_device()
    problem = gemm.product
    schedule = choose(problem, gemm.m, gemm.n, target(place.target), place.sm_count, aligned_output=True)
    compiled = compile_product(problem, schedule, place.target)
    operands = make_operands(torch, gemm, sets=2)
    held = [TensorState().operand(s, place.ordinal, forms_of(schedule, s)) for s in operands.sparse]
    rows: list[dict[str, Any]] = []
    for part, change in PARTS.items():
        product = load_part(compiled, change, place.ordinal)
        launchers = [Launcher(product, operand, (gemm.m, gemm.k)) for operand in held]
        call = launches(torch, launchers, gemm.n, rows_of(operands.x), rows_of(operands.y))
        operands.poison()
        call(0)
        if part == "whole" and not verify(torch, operands, 0, operands.y).ok:
            raise ArithmeticError(f"{schedule} computes wrongly on {gemm}")
        single = statistics.median(_single(torch, call) for _ in range(LAUNCHES))
        load_ = prepare(torch, call, operands.sets, protocol)
        rows.append(Taken(part, single, sustain(torch, load_, protocol)).row(gemm, place))
    return schedule.flat(), rows


def _single(torch: Any, call: Callable[[int], Any]) -> float:
    """Microseconds of a launch behind another one, after a pause of the device."""
    torch.cuda.synchronize()
    time.sleep(PAUSE_SECONDS)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    call(1)
    begin.record()
    call(0)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--shapes", default="8448x6144x8192")
    parser.add_argument("--dtype", default="f16,e4m3")
    given = parser.parse_args()
    torch = require_torch()
    protocol = Protocol(settle_seconds=0.4, sustained_seconds=0.9)
    rows: list[dict[str, Any]] = []
    for m, n, k in parse_shapes(given.shapes):
        for dtype in parse_dtypes(given.dtype):
            gemm = GemmProblem(m, n, k, dtype)
            schedule, taken = measure(torch, gemm, protocol)
            rows.append({"shape": [m, n, k], "dtype": dtype, "out": gemm.out, "schedule": schedule, "parts": taken})
            show(f"{m}×{n}×{k} {dtype}", taken)
    if given.out is not None:
        record = {**facts_of(torch, "ablations", __doc__), "rows": rows}
        print(f"wrote {write_record(given.out, record)}")


def show(title: str, taken: list[dict[str, Any]]) -> None:
    numbers = ("single TFLOP/s", "sustained", "MHz", "W", "of peak")
    rows: list[list[str]] = []
    for row in taken:
        long = row["sustained"]
        cells = (row["single_tflops"], long["tflops"], long["clock_mhz"], long["power_w"])
        speeds = ["–" if cell is None else f"{cell:.0f}" for cell in cells]
        rows.append([row["part"], *speeds, "–" if row["of_peak"] is None else f"{row['of_peak']:.3f}"])
    columns = (Column("part"), *right(*numbers))
    print("\n".join(Table(title, columns, rows).lines()))


if __name__ == "__main__":
    main()
