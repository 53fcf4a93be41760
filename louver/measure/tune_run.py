"""Compiles, checks and times schedules of one problem on the current GPU, in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from louver.compile.plan.register_tiles import AnySchedule
from louver.formats.dtypes import element_type
from louver.formats.tensor import SparseTensor
from louver.frontend.epilogue import NO_EPILOGUE
from louver.frontend.problem import Problem
from louver.isa.bulk import COPY_CHUNK
from louver.library.fused import NOTHING_BOUND, Bound
from louver.library.numerics import accumulation
from louver.library.state import TensorState
from louver.measure.launches import compile_all, launches, rows_of
from louver.measure.operands import beside_float64, converted, poison, pruned, sampled, torch_dtype
from louver.measure.protocol import Protocol, median
from louver.measure.report.gemm import compressed_bytes
from louver.measure.sustained import prepare, take_turns
from louver.runtime.device import Device
from louver.runtime.driver import is_capturing

K_MULTIPLE = 16
"""K is rounded up to a multiple of this number, so that rows of all operands are whole 16-byte chunks."""


@dataclass(frozen=True, slots=True)
class Task:
    """A problem of sizes M, N and K to tune. Its epilogue has at most a bias."""

    problem: Problem
    m: int
    n: int
    k: int

    def __post_init__(self) -> None:
        if min(self.m, self.n, self.k) < 1:
            raise ValueError(f"sizes are at least 1, got {self.m}x{self.n}x{self.k}")
        if self.problem.epilogue != NO_EPILOGUE:
            raise ValueError(
                f"schedules are tuned for products with a bias at most, got {self.problem.epilogue}: the model chooses for it"
            )

    @property
    def aligned_output(self) -> bool:
        """Whether bulk copies can write a contiguous output."""
        inner = self.m if self.problem.kind == "linear" else self.n
        return inner * element_type(self.problem.out).bytes % COPY_CHUNK == 0

    def __str__(self) -> str:
        problem = self.problem
        return f"{problem.kind} {self.m}×{self.n}×{self.k} {problem.a}×{problem.b}→{problem.out} {problem.b_layout}"


@dataclass(slots=True)
class Bench:
    """Operands of a task and the schedules measured on them. refused: the reasons for schedules that were left out.

    x: [N, K]. y: the output in the product's layout, poisoned before each check. dense, sparse: the same weights.
    """

    torch: Any
    task: Task
    place: Device
    protocol: Protocol
    x: Any
    operand: Any
    y: Any
    bias: Any
    dense: tuple[Any, ...]
    sparse: tuple[SparseTensor, ...]
    refused: dict[AnySchedule, str] = field(default_factory=dict[AnySchedule, str])
    _compiled: set[AnySchedule] = field(default_factory=set[AnySchedule])
    _states: list[TensorState] = field(init=False)

    def __post_init__(self) -> None:
        self._states = [TensorState() for _ in self.sparse]

    def measure(self, schedules: Sequence[AnySchedule]) -> Mapping[AnySchedule, float]:
        """Seconds of a launch of each schedule that compiles. Raises ArithmeticError if a result is wrong."""
        problem = self.task.problem
        fresh = [(problem, schedule) for schedule in schedules if schedule not in self._compiled]
        self.refused |= {schedule: why for (_, schedule), why in compile_all(fresh, self.place.target).items()}
        self._compiled |= {schedule for _, schedule in fresh}
        runs = {schedule: self._call(schedule) for schedule in schedules if schedule not in self.refused}
        for schedule, call in runs.items():
            self._verify(schedule, call)
        loads = {
            schedule: prepare(self.torch, call, len(self.sparse), self.protocol) for schedule, call in runs.items()
        }
        return {schedule: median(taken) for schedule, taken in take_turns(loads, self.protocol).items()}

    def _call(self, schedule: AnySchedule) -> Callable[[int], None]:
        bound = NOTHING_BOUND if self.bias is None else Bound({"bias": int(self.bias.data_ptr())})
        launchers = [
            state.launcher(s, self.task.problem, schedule, self.place.ordinal, 0)
            for state, s in zip(self._states, self.sparse, strict=True)
        ]
        return launches(self.torch, launchers, self.task.n, rows_of(self.operand), rows_of(self.y), bound)

    def _verify(self, schedule: AnySchedule, call: Callable[[int], None]) -> None:
        problem = self.task.problem
        self.y.fill_(poison(element_type(problem.out)))
        call(0)
        y = self.y if problem.kind == "linear" else self.y.t()
        tokens = sampled(self.torch, self.task.n)
        accumulate = accumulation(problem.a, problem.accumulate, unit=problem.unit)
        agreement = beside_float64(self.x, self.dense[0], y, tokens, problem.out, accumulate, self.bias)
        if not agreement.ok:
            raise ArithmeticError(
                f"{schedule} computes wrongly: {self.task}, {agreement.violations} results out of bounds, the worst by "
                f"{agreement.worst:.3g} times its bound"
            )


def whole_k(k: int) -> int:
    """K as it is measured."""
    return -(-k // K_MULTIPLE) * K_MULTIPLE


def set_up(torch: Any, task: Task, place: Device, protocol: Protocol) -> Bench:
    """Draw the operands. Raises RuntimeError while torch's stream is being captured."""
    if is_capturing(torch.cuda.current_stream().cuda_stream):
        raise RuntimeError(
            "tuning times kernels, which a stream's capture forbids: call louver.prepare(s, n=…, tune=True) before it"
        )
    problem, m, n = task.problem, task.m, task.n
    k = whole_k(task.k)
    generator = torch.Generator(device="cuda").manual_seed(0)

    def draw(rows: int, columns: int, dtype: str) -> Any:
        normal = torch.randn(rows, columns, generator=generator, device="cuda")
        if dtype == "u8":
            normal = normal.abs()
        return converted(torch, normal, dtype)

    sets = protocol.sets(compressed_bytes(m, k, problem.a))
    dense, sparse = zip(*(pruned(draw(m, k, problem.a), problem.a) for _ in range(sets)), strict=True)
    x = draw(n, k, problem.b)
    shape = (n, m) if problem.kind == "linear" else (m, n)
    return Bench(
        torch,
        task,
        place,
        protocol,
        x,
        x if problem.b_layout == "k_major" else _padded(torch, x.t()),
        torch.empty(*shape, dtype=torch_dtype(torch, problem.out), device="cuda"),
        None if problem.bias is None else draw(1, m, problem.bias_element)[0].contiguous(),
        dense,
        sparse,
    )


def _padded(torch: Any, rows: Any) -> Any:
    """The same matrix with rows of whole 16-byte chunks."""
    count, inner = rows.shape
    whole = COPY_CHUNK // rows.element_size()
    padded = torch.zeros(count, -(-inner // whole) * whole, dtype=rows.dtype, device="cuda")
    padded[:, :inner] = rows
    return padded[:, :inner]
