"""Register tiles beside other 2:4 products: `python benchmarks/register_tiles.py --out FILE.json`.

Protocol: f16 products of a 2:4 weight [M, K] with tokens [N, K], f32 sums, f16 results, by plans of Louver for its own target and for
each of `--targets`, whose kernels keep to that target's instructions and limits; by PyTorch's semi-structured CUTLASS kernels;
by cuBLAS with the pruned weight. A loop of `mma.sp.m16n8k32` with all operands in registers gives the rate of the instruction:
the best of 4, 8 and 16 warps on each SM. All run in turns in one process, by CUDA graphs as `louver bench gemm` runs them.
Results are compared with float64 for 32 tokens. The tiles that Louver's model compares are measured too, for the targets and shapes of `TILED`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import louver
from louver.choose.choose_tiles import costs
from louver.frontend.problem import Problem
from louver.isa.mma import Mma
from louver.isa.targets import target as machine
from louver.library.numerics import accumulation
from louver.measure.machine import forbid_short_sums, require_torch
from louver.measure.operands import beside_float64, make_operands, sampled
from louver.measure.problems import GemmProblem
from louver.measure.protocol import Protocol, median
from louver.measure.record import write_record
from louver.measure.sustained import prepare, take_turns
from louver.measure.tune_run import Task, set_up
from louver.ptx.assembler import assemble
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Kernel, Module, Param
from louver.ptx.printer import print_module
from louver.runtime.device import Device, require_device
from louver.runtime.memory import DeviceBuffer
from louver.runtime.module import ArgumentPack, load
from script import arguments, facts_of

SHAPES = ((4096, 4096, 4096), (4096, 8192, 8192), (4096, 256, 4096), (4096, 16, 4096))
"""M, N and K. Targets are compared in the first two."""

TARGETS = ("sm_80", "sm_86", "sm_120a")
CUTLASS = "PyTorch CUTLASS"
TILED = (("sm_80", SHAPES[0]), ("sm_80", SHAPES[1]), ("sm_80", SHAPES[2]), ("sm_86", SHAPES[0]))
"""What the model of tiles is fitted to: targets and shapes."""

MOST_TILES = 10
"""Tiles that are measured, the best by the model first."""

PRODUCTS = 16
"""Products of a warp that do not depend on each other."""

ROUNDS = 512
"""Rounds of the loop in a launch, each of `PRODUCTS` products."""

FLOPS = 2 * 16 * 8 * 32
"""Of one product, the zeros of A included."""

SHOWN = ("target", "tile_m", "tile_n", "tile_k", "warps", "predicted_clocks", "tflops")
"""Of a measured tile."""

PROTOCOL = Protocol(rounds=5, burst_seconds=0.05, pause_seconds=0.03)


def loop(warps: int) -> Kernel:
    """Each warp multiplies the same registers again and again, into sums of its own."""
    k = KernelBuilder("products", (Param("out", "u64"), Param("rounds", "u32")), threads=32 * warps)
    out, rounds, lane = k.ld_param("out"), k.ld_param("rounds"), k.special("%tid.x")
    # Legal metadata: the first two of each group.
    a, b, metadata = (
        [k.add(lane, each) for each in range(4)],
        [k.add(lane, 4 + each) for each in range(4)],
        k.mov(0x44444444),
    )
    sums = [[k.mov(0.0, kind="f32") for _ in range(4)] for _ in range(PRODUCTS)]
    number = k.mov(0)
    with k.loop(uniform=True) as repeated:
        for index, each in enumerate(sums):
            product = Mma("f16", "f16", "f32", 32, sparse=True, selector=index % 2)
            k.emit(product, tuple(each), tuple(a), tuple(b), tuple(each), metadata)
        k.add(number, 1, into=number)
        repeated.repeat_if(k.setp("lt", "u32", number, rounds))
    for each in sums:
        # No sum is this number, but the assembler does not know.
        with k.if_(k.setp("eq", "f32", each[0], 123.0)):
            k.store_global(Address(out), each[0])
    return k.finish()


def loops(place: Device) -> Iterator[tuple[str, Callable[[int], None], int]]:
    """The loops: name, launch on PyTorch's stream, and operations of a launch."""
    import torch

    out = DeviceBuffer(64)
    for warps in (4, 8, 16):
        kernel = loop(warps)
        assembly = assemble(print_module(Module(place.target, [kernel])), place.target)
        ready = load(assembly.cubin, kernel.name, threads=kernel.threads)
        pack = ArgumentPack(("u64", "u32"))
        pack.bind(out.address, ROUNDS)

        def launch(index: int, ready: Any = ready, pack: Any = pack, held: Any = out) -> None:
            ready.launch(place.sm_count, pack, torch.cuda.current_stream().cuda_stream)

        yield f"mma.sp loop, {warps} warps", launch, FLOPS * PRODUCTS * ROUNDS * warps * place.sm_count


def products(torch: Any, operands: Any, targets: tuple[str, ...]) -> Iterator[tuple[str, Callable[[int], Any]]]:
    """The contenders. A call returns tokens [N, M]."""
    problem, x = operands.problem, operands.x
    for target in (None, *targets):
        plans = [louver.plan("linear", s, problem.n, like=x, target=target) for s in operands.sparse]

        def planned(index: int, plans: Any = plans) -> Any:
            return plans[index % len(plans)](x, out=operands.y)

        yield f"louver {target or 'own target'}", planned
    weights: list[Any] = []

    def cutlass(index: int) -> Any:
        if not weights:
            weights.extend(torch.sparse.SparseSemiStructuredTensorCUTLASS.from_dense(each) for each in operands.dense)
        return torch.nn.functional.linear(x, weights[index % len(weights)])

    yield CUTLASS, cutlass
    yield "cuBLAS dense", lambda index: torch.mm(x, operands.dense[index % operands.sets].t(), out=operands.y)


def measure(torch: Any, shape: tuple[int, int, int], targets: tuple[str, ...], place: Device) -> dict[str, Any]:
    """The rows of one shape."""
    m, n, k = shape
    problem = GemmProblem(m, n, k, "f16")
    sets = PROTOCOL.sets(m * k)
    operands = make_operands(torch, problem, sets)
    tokens, loads, work, refused = sampled(torch, n), {}, {}, {}
    for name, call in products(torch, operands, targets):
        operands.poison()
        try:
            agreement = beside_float64(operands.x, operands.dense[0], call(0), tokens, "f16", accumulation("f16"))
            loads[name], work[name] = prepare(torch, call, sets, PROTOCOL), 2 * m * n * k
        except (RuntimeError, ValueError) as error:
            if "louver" in name:
                raise
            refused[name] = str(error).splitlines()[0]
            continue
        if not agreement.ok and "louver" in name:
            raise ArithmeticError(f"{name} is wrong in {agreement.violations} results of {shape}")
    for name, call, count in loops(place):
        loads[name], work[name] = prepare(torch, call, 1, PROTOCOL), count
    times = {name: median(taken) for name, taken in take_turns(loads, PROTOCOL).items()}
    rates = {name: work[name] / seconds / 1e12 for name, seconds in times.items()}
    instruction = max(rate for name, rate in rates.items() if "loop" in name)
    rows = [
        {
            "contender": name,
            "us": round(1e6 * seconds, 2),
            "tflops": round(rates[name], 1),
            "share_of_loop": round(rates[name] / instruction, 3),
            "over_cutlass": None if "loop" in name or CUTLASS not in times else round(times[CUTLASS] / seconds, 3),
        }
        for name, seconds in times.items()
    ]
    for row in rows:
        print(m, n, k, row, flush=True)
    return {"m": m, "n": n, "k": k, "contenders": rows, "refused": refused}


def tiles(torch: Any, shape: tuple[int, int, int], target: str, place: Device) -> list[dict[str, Any]]:
    """The tiles that Louver compares for a target, each measured, with what the model predicts of them."""
    m, n, k = shape
    task = Task(Problem("linear"), m, n, k)
    found = costs(task.problem, (*shape, 1), machine(target), place.sm_count, aligned_output=True)[:MOST_TILES]
    times = set_up(torch, task, place, PROTOCOL).measure([each.schedule for each in found])
    rows = [
        {
            "shape": [m, n, k],
            **each.schedule.flat(),
            "predicted_clocks": round(each.clocks),
            "us": round(1e6 * times[each.schedule], 2),
            "tflops": round(2 * m * n * k / times[each.schedule] / 1e12, 1),
        }
        for each in found
        if each.schedule in times
    ]
    for row in rows:
        print(m, n, k, {name: row[name] for name in SHOWN}, flush=True)
    return rows


def main() -> None:
    parser = arguments(__doc__, needed=True)
    parser.add_argument("--targets", default=",".join(TARGETS), help="targets whose kernels run, beside the GPU's own")
    given = parser.parse_args()
    torch, place = require_torch(), require_device()
    forbid_short_sums(torch)
    targets = tuple(given.targets.split(","))
    rows = [measure(torch, shape, targets, place) for shape in SHAPES]
    record = {**facts_of(torch, "register tiles", __doc__), "rows": rows}
    record["tiles"] = [row for target, shape in TILED for row in tiles(torch, shape, target, place)]
    record["bursts"] = PROTOCOL.describe_bursts()
    write_record(given.out, record)


if __name__ == "__main__":
    main()
