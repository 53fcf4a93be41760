"""`louver.jit(…, find=…)` on the device: writes of every kind between calls, streams, graphs and threads, against float64."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import louver
from louver.user.finding import FindingKernel, Outcome
from support.finds import TILE, Matrices, arguments, call, finding

pytest.importorskip("triton", reason="Triton is not installed: pip install 'louver[triton]'")
torch = pytest.importorskip("torch")

from support.triton.found import matmul  # noqa: E402 - needs Triton

pytestmark = pytest.mark.usefixtures("torch")

M, N, K = 200, 264, 512


class AlwaysFound(dict[Any, Outcome]):
    """Outcomes of calls that were all faster when found: small products are not."""

    def get(self, key: Any, default: Any = None) -> Any:
        return Outcome(True, "chosen by the test")


def always(kernel: FindingKernel) -> FindingKernel:
    kernel._outcomes = AlwaysFound()
    return kernel


@pytest.fixture
def kernel() -> FindingKernel:
    return always(finding(matmul))


def on_device(matrices: Matrices) -> tuple[Any, Any, Any]:
    """x, the weight as it is stored, y."""
    return tuple(torch.from_numpy(each).cuda() for each in (matrices.x, matrices.stored, matrices.output()))


def as_read(matrices: Matrices, stored: Any) -> Any:
    """The weight [K, N]."""
    return stored if matrices.w is matrices.stored else stored.T


def pruned(rng: np.random.Generator, shape: tuple[int, ...], axis: int = -1) -> np.ndarray:
    return louver.prune(rng.standard_normal(shape).astype(np.float16), "2:4", axis=axis)


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("family", [None, "register tiles"])
def test_layouts_that_hold_the_pattern_and_that_do_not(
    rng: np.random.Generator, kernel: FindingKernel, across: bool, family: str | None
) -> None:
    hints = {} if family is None else {"family": family}
    for holds in (True, False, True):
        m = Matrices.of(rng, M, N, K, across=across, holds=holds)
        x, stored, y = on_device(m)
        kernel[m.grid](*arguments(x, as_read(m, stored), y), **TILE, **hints)
        m.assert_right(y.cpu().numpy())


def writes(rng: np.random.Generator, shape: tuple[int, ...]) -> dict[str, Callable[[Any], None]]:
    """Ways to write to a weight, of which `_version` shows few."""

    def new() -> Any:
        return torch.from_numpy(pruned(rng, shape)).cuda()

    def in_place(w: Any) -> None:
        with torch.no_grad():
            w.copy_(new())

    def data(w: Any) -> None:
        w.data[:] = new()

    def through_dlpack(w: Any) -> None:
        torch.from_dlpack(w.detach())[:] = new()

    def breaks(w: Any) -> None:
        w.data[1:3] = 0.5

    def optimizer(w: Any) -> None:
        w.grad = torch.randn_like(w)
        torch.optim.AdamW([w], lr=0.1, fused=True).step()
        w.grad = None

    def graph(w: Any) -> None:
        source = new()
        captured = torch.cuda.CUDAGraph()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            w.data.copy_(source)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(captured):
            w.data.copy_(source)
        source.copy_(new())
        captured.replay()

    return {each.__name__: each for each in (in_place, data, through_dlpack, breaks, optimizer, graph)}


def test_every_write_is_seen_by_the_next_call(rng: np.random.Generator, kernel: FindingKernel) -> None:
    m = Matrices.of(rng, M, N, K)
    x, stored, y = on_device(m)
    w = torch.nn.Parameter(stored)
    for name, write in writes(rng, tuple(stored.shape)).items():
        with torch.no_grad():
            call(kernel, m.grid, x, w.T, y)
        write(w)
        y.fill_(float("nan"))
        with torch.no_grad():
            call(kernel, m.grid, x, w.T, y)
        try:
            m.assert_right(y.cpu().numpy(), w.detach().cpu().numpy().T)
        except AssertionError as error:
            raise AssertionError(f"wrong after {name}") from error


def test_inference_tensors_and_addresses_used_again(rng: np.random.Generator, kernel: FindingKernel) -> None:
    frozen = finding(matmul, frozen=("w",))
    for _ in range(4):
        m = Matrices.of(rng, M, N, K)
        with torch.inference_mode():
            x, stored, y = on_device(m)
            for each in (kernel, frozen):
                y.fill_(float("nan"))
                call(each, m.grid, x, stored.T, y)
                m.assert_right(y.cpu().numpy())
        del stored


def test_graphs_follow_the_weight(rng: np.random.Generator, kernel: FindingKernel) -> None:
    m = Matrices.of(rng, M, N, K)
    x, stored, y = on_device(m)
    call(kernel.prepare, m.grid, x, stored.T, y)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(kernel, m.grid, x, stored.T, y)
    for holds in (True, False, True):
        w = pruned(rng, (N, K)) if holds else rng.standard_normal((N, K)).astype(np.float16)
        stored.copy_(torch.from_numpy(w))
        y.fill_(float("nan"))
        graph.replay()
        m.assert_right(y.cpu().numpy(), w.T)


def test_threads_on_one_stream_and_on_their_own(rng: np.random.Generator, kernel: FindingKernel) -> None:
    given = [Matrices.of(rng, M, N, K, holds=index % 2 == 0) for index in range(4)]
    held = [on_device(each) for each in given]
    wrong: list[BaseException] = []
    torch.cuda.synchronize()

    def work(index: int, own: bool) -> None:
        m, (x, stored, y) = given[index], held[index]
        try:
            stream = torch.cuda.Stream() if own else torch.cuda.current_stream()
            with torch.cuda.stream(stream):
                for _ in range(20):
                    y.fill_(float("nan"))
                    call(kernel, m.grid, x, stored.T, y)
            stream.synchronize()
            m.assert_right(y.cpu().numpy())
        except BaseException as error:
            wrong.append(error)

    for own in (False, True):
        threads = [threading.Thread(target=work, args=(index, own)) for index in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert not wrong, wrong


def test_a_frozen_weight_is_looked_at_once_until_it_is_forgotten(rng: np.random.Generator) -> None:
    frozen = finding(matmul, frozen=("w",))
    m = Matrices.of(rng, M, N, K)
    x, stored, y = on_device(m)
    call(frozen, m.grid, x, stored.T, y)
    m.assert_right(y.cpu().numpy())
    new = pruned(rng, (N, K))
    stored.copy_(torch.from_numpy(new))
    call(frozen, m.grid, x, stored.T, y)
    m.assert_right(y.cpu().numpy())
    frozen.forget(stored)
    call(frozen, m.grid, x, stored.T, y)
    m.assert_right(y.cpu().numpy(), new.T)


def test_the_faster_way_is_measured(rng: np.random.Generator) -> None:
    """On the user's own Triton kernel too, whichever way wins."""
    measured = louver.jit(matmul, find=("w",))
    m = Matrices.of(rng, M, N, K)
    x, stored, y = on_device(m)
    for _ in range(3):
        y.fill_(float("nan"))
        call(measured, m.grid, x, stored.T, y)
        m.assert_right(y.cpu().numpy())
    (outcome,) = measured._outcomes.values()
    assert "measured on this GPU" in outcome.why
