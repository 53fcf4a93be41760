"""Calls whose host time is measured: every form of Louver's calls, and PyTorch's calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import louver
from louver.library.execute import schedule_for
from louver.library.launch import Sendable
from louver.library.state import TensorState
from louver.measure.contenders import DENSE_CALLS, REFUSALS, Contender, CuSparseLt, cublas
from louver.measure.launches import rows_of
from louver.measure.operands import Operands, verify

Work: TypeAlias = Callable[[], Any]

CANNOT = (*REFUSALS, AttributeError, ArithmeticError)
"""Errors of a library's call that cannot run, is missing in PyTorch, or gives a wrong result."""


@dataclass(frozen=True, slots=True)
class HostCall:
    """A call as users write it.

    make: returns the call. product: the operands of its result, [N, M], or [M, N] if turned; None without a product.
    ours: a failure is an error of Louver. Failing calls of other libraries are left out.
    """

    name: str
    make: Callable[[], Work]
    product: Operands | None
    ours: bool = False
    turned: bool = False

    def ready(self, torch: Any) -> Work:
        """The call, after its result was compared with float64. Raises ArithmeticError if the result is wrong."""
        work = self.make()
        if self.product is not None:
            self.product.poison()
            y = work()
            found = verify(torch, self.product, 0, y.t() if self.turned else y)
            if not found.ok:
                raise ArithmeticError(
                    f"{self.name}: {found.violations} results are wrong, the worst by {found.worst:.3g} times its bound"
                )
        return work


def calls_of(torch: Any, operands: Operands) -> Iterator[HostCall]:
    """The calls that compute the product, with `out=` the operands' y. PyTorch has no calls with a bias for 8-bit
    types.
    """
    wide = operands.problem.bits > 8
    yield from _ours(operands)
    if wide:
        yield from _biased(torch, operands)
    yield from _dense(torch, operands) if wide else _dense8(torch, operands)
    cslt = partial(_first, lambda: CuSparseLt(torch, operands).contender(0))
    yield HostCall("torch._cslt_sparse_mm", cslt, operands, turned=True)
    like = {"dtype": operands.y.dtype, "device": operands.y.device}
    yield HostCall("torch.empty", lambda: lambda: torch.empty(*operands.y.shape, **like), None)


def _ours(operands: Operands) -> Iterator[HostCall]:
    problem, x, y, s = operands.problem, operands.x, operands.y, operands.sparse[0]
    options: dict[str, Any] = {} if problem.out == problem.dtype else {"out_dtype": problem.out}
    plan = louver.plan("linear", s, n=problem.n, like=x, out_dtype=problem.out)
    b, c, right = x.t(), y.view(problem.m, problem.n), s.T
    launch = _launch(plan, operands)
    linear: dict[str, Work] = {
        "plan's launch alone": lambda: (launch.send(), y)[1],
        "plan(x, out=y)": lambda: plan(x, out=y),
        "plan(x)": lambda: plan(x),
        "louver.linear(x, s)": lambda: louver.linear(x, s, **options),
        "louver.linear(x, s, out=y)": lambda: louver.linear(x, s, out=y),
        "louver.matmul(x, s.T, out=y)": lambda: louver.matmul(x, right, out=y),
    }
    matmul: dict[str, Work] = {
        "louver.matmul(s, b)": lambda: louver.matmul(s, b, **options),
        "louver.matmul(s, b, out=c)": lambda: louver.matmul(s, b, out=c),
    }
    yield from _calls(linear, operands, ours=True)
    yield from _calls(matmul, operands, ours=True, turned=True)


def _launch(plan: louver.Plan, operands: Operands) -> Sendable:
    """The launch that a warm call of the plan sends to the default stream."""
    assert plan.device is not None, "host times are taken on a device"
    s, dense, out = operands.sparse[0], rows_of(operands.x), rows_of(operands.y)
    (m, k), n = s.shape[-2:], plan.n
    schedule = schedule_for(plan.problem, m, n, k, plan.device, aligned_output=out.bulk_writable)
    launcher = s.derived.of(TensorState).launcher(s, plan.problem, schedule, plan.device.ordinal, 0)
    return launcher.bound(launcher.sized(n, dense, out), dense, out)


def _biased(torch: Any, operands: Operands) -> Iterator[HostCall]:
    x, y, s, w = operands.x, operands.y, operands.sparse[0], operands.dense[0]
    bias = torch.randn(operands.problem.m, device=x.device).to(x.dtype)
    plan = louver.plan("linear", s, n=operands.problem.n, like=x, bias=bias)
    # A bias is one more column of the weight, multiplied by 1.
    wider = replace(operands, x=torch.cat([x, torch.ones_like(x[:, :1])], 1), dense=(torch.cat([w, bias[:, None]], 1),))
    ours: dict[str, Work] = {
        "plan with bias (x, out=y)": lambda: plan(x, out=y),
        "louver.linear(x, s, bias)": lambda: louver.linear(x, s, bias),
    }
    yield from _calls(ours, wider, ours=True)
    functional = torch.nn.functional
    yield from _calls({"F.linear(x, w, bias)": lambda: functional.linear(x, w, bias)}, wider)


def _dense(torch: Any, operands: Operands) -> Iterator[HostCall]:
    x, y, w = operands.x, operands.y, operands.dense[0]
    works: dict[str, Work] = {
        "torch.mm(x, w.t())": lambda: torch.mm(x, w.t()),
        "torch.mm(x, w.t(), out=y)": lambda: torch.mm(x, w.t(), out=y),
    }
    return _calls(works, operands)


def _dense8(torch: Any, operands: Operands) -> Iterator[HostCall]:
    name = DENSE_CALLS.get((operands.problem.dtype, operands.problem.out))
    if name is not None:
        yield HostCall(name, partial(_first, lambda: cublas(torch, operands)), operands)


def _calls(
    works: dict[str, Work], product: Operands, *, ours: bool = False, turned: bool = False
) -> Iterator[HostCall]:
    for name, work in works.items():
        yield HostCall(name, lambda work=work: work, product, ours, turned)


def _first(make: Callable[[], Contender]) -> Work:
    return partial(make().call, 0)
