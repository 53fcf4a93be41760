"""Results sent by bulk copies: every width of output, orientation and schedule, into bytes that are checked all around."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import louver
from louver.choose.configure import choose, deepest
from louver.compile.plan.schedule import Schedule
from louver.formats.dtypes import element_type
from louver.frontend.problem import Problem
from louver.isa.targets import SM_90A
from louver.library import reference
from louver.library.numerics import accumulation, compare
from louver.library.state import TensorState
from louver.measure.launches import rows_of
from support.device_products import to_numpy, to_torch, torch_dtype
from support.products import Operands, operands

pytestmark = pytest.mark.sampled(4)

POISON = 0xA5

OUTPUTS = {
    "f32": ("f16", "f16", "f32"),
    "s32": ("s8", "s8", "s32"),
    "bf16": ("bf16", "bf16", "bf16"),
    "f16": ("u8", "s8", "f16"),
    "e4m3": ("e4m3", "e5m2", "e4m3"),
    "s8": ("s8", "s8", "s8"),
}

SCHEDULES = {
    "wide": {},
    "narrow": {"tile_n": 64},
    "two blocks": {"tile_m": 256, "tile_n": 128},
    "tall": {"tile_m": 256, "tile_n": 192, "staging": 96},
    "three consumers": {"tile_m": 192, "tile_n": 192, "consumers": 3},
    "cluster": {"cluster": 2},
    "values kept in L2": {"raster": 32, "l2": "values"},
    "staging 32": {"staging": 32},
    "staging 64": {"staging": 64},
    "staging 128": {"tile_n": 128, "staging": 128},
    "a last chunk of fewer columns": {"tile_n": 160, "staging": 96},
    "the same in two blocks": {"tile_m": 256, "tile_n": 160, "staging": 64},
}

every_output = pytest.mark.parametrize("name", OUTPUTS)
every_kind = pytest.mark.parametrize("kind", ["linear", "matmul"])


@dataclass(frozen=True)
class Target:
    """An output [rows, inner] amid poisoned bytes; rows begin a whole number of 16-byte chunks apart."""

    whole: Any
    view: Any

    @classmethod
    def of(cls, rows: int, inner: int, element: str, gap: int = 1) -> Target:
        """gap: unused chunks at the end of each row."""
        torch: Any = sys.modules["torch"]
        size = element_type(element).bytes
        pitch = -(-inner * size // 16) * 16 + 16 * gap
        whole = torch.full(((rows + 2) * pitch,), POISON, dtype=torch.uint8, device="cuda")
        view = whole.view(torch_dtype(element)).as_strided((rows, inner), (pitch // size, 1), pitch // size)
        return cls(whole, view)

    def result(self) -> np.ndarray:
        """A host copy, after a look at the bytes around it."""
        found = to_numpy(self.view.contiguous())
        size = self.view.element_size()
        rows, inner = self.view.shape
        pitch = self.view.stride(0) * size
        around = self.whole.cpu().numpy().reshape(rows + 2, pitch)
        assert (around[0] == POISON).all() and (around[-1] == POISON).all()
        assert (around[1:-1, inner * size :] == POISON).all()
        return found


def given_of(rng: np.random.Generator, name: str, m: int, n: int, k: int) -> Operands:
    a, b, out = OUTPUTS[name]
    return operands(rng, m, n, k, a, "normal", dense=b, bias=Problem("linear", a, b, out, bias="row").bias_element)


def check(y: np.ndarray, given: Operands, out: str, *, bias: bool) -> None:
    """y: [M, N]."""
    added = given.bias if bias else None
    operand = element_type(given.a.dtype).name
    if accumulation(operand) == "s32":
        expected = reference.product(given.a, given.b, added, y.dtype)
        np.testing.assert_array_equal(y.astype(np.float64), expected.astype(np.float64))
        return
    exact, magnitude = reference.exact_product(given.a, given.b, added)
    agreement = compare(y, exact, magnitude, given.sizes[2], out, accumulation(operand))
    assert agreement.ok, agreement


@every_kind
@every_output
@pytest.mark.parametrize("gap", [0, 1, 3])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(16, 16, 40), (80, 48, 130), (272, 144, 515), (1040, 528, 1024), (4112, 2512, 72)]
)
def test_rows_of_whole_chunks(rng: np.random.Generator, kind: str, name: str, gap: int, m: int, n: int, k: int) -> None:
    a, b, out = OUTPUTS[name]
    assert n < 32 or choose(Problem(kind, a, b, out), m, n, SM_90A, 132, aligned_output=True).store.way == "bulk"
    given = given_of(rng, name, m, n, k)
    dense = to_torch(given.b.T)
    if kind == "linear":
        target = Target.of(n, m, out, gap)
        louver.linear(dense, given.s, to_torch(given.bias), out=target.view)
        check(target.result().T, given, out, bias=True)
    else:
        target = Target.of(m, n, out, gap)
        louver.matmul(given.s, dense.T, out=target.view)
        check(target.result(), given, out, bias=False)


@every_kind
@every_output
def test_rows_that_are_not_whole_chunks(rng: np.random.Generator, kind: str, name: str) -> None:
    out = OUTPUTS[name][2]
    for m, n in ((81, 47), (67, 261)):
        given = given_of(rng, name, m, n, 130)
        dense = to_torch(given.b.T)
        target = Target.of(*((n, m) if kind == "linear" else (m, n)), out)
        if kind == "linear":
            louver.linear(dense, given.s, out=target.view)
        else:
            louver.matmul(given.s, dense.T, out=target.view)
        y = target.result()
        check(y.T if kind == "linear" else y, given, out, bias=False)


@every_kind
@every_output
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule(rng: np.random.Generator, kind: str, name: str, schedule: str) -> None:
    """Several tiles a CTA, so that buffers are used again; neither size a multiple of a tile's."""
    a, b, out = OUTPUTS[name]
    problem = Problem(kind, a, b, out)
    base = Schedule.of(tile_k=1024 // element_type(b).bits, stages=2, store="bulk")
    chosen = deepest(problem, base.changed(**SCHEDULES[schedule]), SM_90A)
    given = given_of(rng, name, 3216, 2576, 272)
    target = Target.of(*((2576, 3216) if kind == "linear" else (3216, 2576)), out)
    dense = to_torch(given.b.T)
    launcher = TensorState().launcher(given.s, problem, chosen, 0, 0)
    matrices = rows_of(dense), rows_of(target.view)
    launch = launcher.bound(launcher.sized(2576, *matrices), *matrices)
    torch: Any = sys.modules["torch"]
    for _ in range(3):
        launch.on(torch.cuda.current_stream().cuda_stream)()
    y = target.result()
    check(y.T if kind == "linear" else y, given, out, bias=False)
