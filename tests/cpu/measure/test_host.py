from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from louver.library.numerics import Agreement
from louver.measure import host, host_calls, start
from louver.measure.host import batch_times, measure_host, summary
from louver.measure.host_calls import HostCall
from louver.measure.problems import GemmProblem
from louver.measure.start import start_times

TORCH = SimpleNamespace(cuda=SimpleNamespace(synchronize=lambda: None))
PROBLEM = GemmProblem(64, 16, 64, "f16")
RIGHT, WRONG = Agreement(True, 0.5, (0, 0), 0), Agreement(False, 7.0, (1, 2), 3)


class Product:
    """Operands as far as a check needs them."""

    def __init__(self) -> None:
        self.poisoned = 0

    def poison(self) -> None:
        self.poisoned += 1


class Result:
    def __init__(self, name: str) -> None:
        self.name = name

    def t(self) -> Result:
        return Result(f"{self.name} turned")


def test_the_device_is_idle_before_each_batch_and_all_calls_count() -> None:
    events: list[str] = []
    ticks = iter([10.0, 16.0, 20.0, 23.0])
    found = batch_times(
        lambda: events.append("call"), lambda: events.append("idle"), calls=3, batches=2, clock=lambda: next(ticks)
    )
    assert found == [2.0, 1.0]
    assert events == ["call"] * 3 + (["idle"] + ["call"] * 3) * 2 + ["idle"]


def test_the_summary_has_median_least_and_90th_percentile_in_microseconds() -> None:
    taken = summary("a", [float(i) * 1e-6 for i in (5, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11)], "s8", "s32")
    assert (taken.name, taken.types) == ("a", "s8→s32")
    assert math.isclose(taken.us, 6) and math.isclose(taken.least_us, 1) and math.isclose(taken.p90_us, 10)
    assert summary("a part", [1e-6, 2e-6]).types == ""


@pytest.mark.parametrize("turned", [False, True])
def test_a_call_is_ready_once_its_result_is_right(turned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    product, seen = Product(), list[str]()

    def verify(_torch: Any, _operands: Any, _index: int, y: Result) -> Agreement:
        assert product.poisoned == 1
        seen.append(y.name)
        return RIGHT

    monkeypatch.setattr(host_calls, "verify", verify)
    call = HostCall("a", lambda: lambda: Result("y"), product, turned=turned)  # pyright: ignore[reportArgumentType]
    assert call.ready(TORCH)().name == "y"
    assert seen == ["y turned" if turned else "y"]


def test_a_call_without_a_product_is_ready_at_once() -> None:
    assert HostCall("torch.empty", lambda: lambda: 5, None).ready(TORCH)() == 5


def test_a_wrong_result_says_how_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_calls, "verify", lambda *_: WRONG)
    call = HostCall("a", lambda: lambda: Result("y"), Product())  # pyright: ignore[reportArgumentType]
    with pytest.raises(ArithmeticError, match=r"a: 3 results are wrong, the worst by 7 times"):
        call.ready(TORCH)


def failing(error: Exception) -> Callable[[], Any]:
    def make() -> Any:
        raise error

    return make


def measure_with(monkeypatch: pytest.MonkeyPatch, *calls: HostCall) -> host.HostTimes:
    def calls_of(_torch: Any, _operands: Any) -> Iterator[HostCall]:
        yield from calls

    monkeypatch.setattr(host, "calls_of", calls_of)
    monkeypatch.setattr(host, "make_operands", lambda *_, **__: None)
    monkeypatch.setattr(host, "require_device", lambda: None)
    monkeypatch.setattr(host, "runtime_parts", lambda *_: {"empty launch": lambda: None})
    monkeypatch.setattr(host, "start_times", dict)
    return measure_host(TORCH, [PROBLEM], calls=2, batches=3)


@pytest.mark.parametrize(
    "error", [RuntimeError("not\nbuilt in"), AttributeError("no call"), ValueError("refused"), ArithmeticError("wrong")]
)
def test_a_library_that_fails_is_left_out_with_its_reason(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    good = HostCall("good", lambda: lambda: None, None)
    found = measure_with(monkeypatch, HostCall("bad", failing(error), None), good)
    assert [(row.name, row.dtype) for row in found.times] == [("empty launch", ""), ("good", "f16")]
    assert found.missing == {"bad, 64×16×64 f16": str(error).split("\n")[0]}


@pytest.mark.parametrize("error", [RuntimeError("launch failed"), ArithmeticError("wrong")])
def test_a_call_of_ours_that_fails_ends_the_benchmark(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(type(error), match=str(error)):
        measure_with(monkeypatch, HostCall("plan(x)", failing(error), None, ours=True))


def test_new_processes_compile_once_and_read_afterwards() -> None:
    times = start_times(rounds=1)
    assert list(times) == [
        f"{state}, {kernel}"
        for state in ("compile", "read from disk")
        for kernel in ("a process's first kernel", "the next kernel")
    ]
    assert all(seconds > 0 for taken in times.values() for seconds in taken)
    assert times["read from disk, the next kernel"] < times["compile, the next kernel"]


def test_a_process_that_fails_is_an_error_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start.sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="a process that compiles a kernel failed"):
        start_times(rounds=1)
