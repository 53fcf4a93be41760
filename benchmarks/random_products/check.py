"""One case run and compared."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

import louver
from louver.formats.dtypes import element_type
from louver.isa.wgmma import INTEGER
from louver.library.request import broken_rule
from random_products import operands
from random_products.buffers import Poisoned, poisoned, to_device
from random_products.cases import Case
from random_products.expected import limits, product
from random_products.options import BY_NAME, Draft, has_views, is_floating

REFUSALS = (RuntimeError, ValueError, TypeError)
"""The errors that count as a wrong outcome, not as a broken sweep."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """worst: greatest error over its bound, 0 for exact data. wrong: what is wrong, or "". refused: why no kernel exists, or ""."""

    case: Case
    worst: float
    wrong: str
    refused: str = ""


def checked(torch: Any, place: str, case: Case) -> Outcome:
    """`check`; an exception is an outcome too."""
    try:
        return check(torch, place, case)
    except REFUSALS as error:
        return Outcome(case, math.inf, f"{type(error).__name__}: {str(error)[:300]}")


def check(torch: Any, place: str, case: Case) -> Outcome:
    """Run a case on a device, compare, and look at what lies around its output."""
    setting, rng = case.group.setting, np.random.default_rng(case.seed)
    a, s = operands.weight(rng, case)
    b = to_device(torch, operands.dense(rng, case), place)
    rows = case.m // 2 if "gated" in case.group.forms else case.m
    out = _output(torch, place, case, rows)
    mode = case.group.forms.get("accumulate", "auto")
    expected = product(torch, to_device(torch, a, place).double(), b.double(), setting.a, setting.pattern, mode)

    def placed(array: NDArray[Any], element: str) -> tuple[Any, Any]:
        given = to_device(torch, np.asarray(array).astype(element_type(element).numpy), place)
        return given, given.double()

    views = has_views(case.group.forms)
    result = out.view if views else _shaped(case, out.view)
    draft = Draft(rng, setting, rows, case.n, case.exact, placed, expected, result, weights=case.weights)
    if setting.a in INTEGER and is_floating(case.group.forms):
        expected.to_f32()
    for name, form in case.group.forms.items():
        BY_NAME[name].apply(draft, form)
    dense = _dense(torch, place, case, b)
    if draft.batch:
        dense = draft.divided(dense)
    elif not views:
        dense = _shaped(case, dense)
    try:
        if setting.kind == "linear":
            louver.linear(dense, s, out=draft.result, **draft.arguments)
        else:
            louver.matmul(s, dense, out=draft.result, **draft.arguments)
    except ValueError as error:
        if broken_rule(s) is None:
            raise
        return Outcome(case, 0.0, "", " ".join(str(error).split()))
    return _compare(case, draft, out)


def _compare(case: Case, draft: Draft, out: Poisoned) -> Outcome:
    name = case.group.setting.out
    y = (out.view.T if case.group.setting.kind == "linear" else out.view).double()
    if case.exact:
        ends = limits(name)
        clipped = draft.expected.value.clip(*ends)
        whole = clipped.round() if name == "s8" else clipped
        wrong = int((y.clip(*ends) != whole.to(out.view.dtype).double()).sum())
        worst, problem = (math.inf, f"{wrong} elements differ") if wrong else (0.0, "")
    else:
        ratio = draft.expected.ratio(y, name)
        worst, wrong = float(ratio.max()), int((ratio > 1).sum())
        problem = f"{wrong} elements beyond the bound, worst {worst:.3g} times" if wrong else ""
    outside = out.written_outside()
    if outside:
        problem = f"{problem}; {outside} elements written outside the output".removeprefix("; ")
    return Outcome(case, worst, problem)


def _dense(torch: Any, place: str, case: Case, b: Any) -> Any:
    """`b` [K, N] in the case's layout, x [N, K] for linear."""
    layout, step = case.group.layout, 2 if case.group.layout == "strided" else 1
    inner = case.k if layout == "k_major" else case.n
    pitch = inner * step + case.dense_gap
    strides = (step, pitch) if layout == "k_major" else (pitch, step)
    made = poisoned(torch, place, case.group.setting.b, (case.k, case.n), strides, case.dense_offset)
    made.bits.copy_(b.view(made.bits.dtype))
    return made.view.T if case.group.setting.kind == "linear" else made.view


def _output(torch: Any, place: str, case: Case, rows: int) -> Poisoned:
    shape = (case.n, rows) if case.group.setting.kind == "linear" else (rows, case.n)
    return poisoned(torch, place, case.group.setting.out, shape, (shape[1] + case.out_gap, 1), case.out_offset)


def _shaped(case: Case, array: Any) -> Any:
    """Tokens with the case's leading axis, if it has one."""
    return array.unflatten(0, (case.batch, -1)) if case.batch else array


def described(case: Case) -> dict[str, Any]:
    """A case as JSON."""
    group, setting = case.group, case.group.setting
    own = {each.name: getattr(case, each.name) for each in fields(case) if each.name != "group"}
    return {**asdict(setting), "layout": group.layout, "options": dict(group.forms), **own}
