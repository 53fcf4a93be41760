"""Cases of the sweep on NumPy arrays, for machines without PyTorch and without a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import element_type
from louver.formats.tensor import SparseTensor
from random_products import operands
from random_products.cases import Case
from random_products.expected import limits, product
from random_products.options import BY_NAME, Draft, has_views


@dataclass(frozen=True)
class Drawn:
    """A case's operands and expectation. dense: [N, K] for linear, [K, N] for matmul. c is one of the draft's arguments, like the output."""

    case: Case
    s: SparseTensor
    dense: NDArray[Any]
    draft: Draft

    def faults(self, y: NDArray[Any]) -> int:
        """Elements of an output that are wrong: beyond the bound or, of exact data, not the expected value rounded once."""
        setting, expected = self.case.group.setting, self.draft.expected
        y = y.T if setting.kind == "linear" else y
        wide = y.astype(np.float64)
        assert y.shape == expected.value.shape and element_type(y.dtype).name == setting.out
        if not self.case.exact:
            return int((expected.ratio(wide, setting.out) > 1).sum())
        ends = limits(setting.out)
        clipped = expected.value.clip(*ends)
        whole = clipped.round() if setting.out == "s8" else clipped
        return int((wide.clip(*ends) != whole.astype(y.dtype).astype(np.float64)).sum())


def runs_on_numpy(case: Case) -> bool:
    """Whether no option needs views of PyTorch's tensors."""
    return not has_views(case.group.forms) and not case.group.forms.get("c", "").endswith("in place")


def drawn(case: Case) -> Drawn:
    """A case that runs on NumPy; its gaps, offsets and leading axes are left out."""
    setting, rng = case.group.setting, np.random.default_rng(case.seed)
    a, s = operands.weight(rng, case)
    b = operands.dense(rng, case)
    rows = case.m // 2 if "gated" in case.group.forms else case.m
    mode = case.group.forms.get("accumulate", "auto")
    expected = product(np, a.astype(np.float64), b.astype(np.float64), setting.a, setting.pattern, mode)

    def placed(array: NDArray[Any], element: str) -> tuple[Any, Any]:
        given = np.asarray(array).astype(element_type(element).numpy)
        return given, given.astype(np.float64)

    shape = (case.n, rows) if setting.kind == "linear" else (rows, case.n)
    draft = Draft(rng, setting, rows, case.n, case.exact, placed, expected, np.zeros(shape))
    # Far below zero an activation's exponential is infinite, and its value 0.
    with np.errstate(over="ignore"):
        for name, form in case.group.forms.items():
            BY_NAME[name].apply(draft, form)
    return Drawn(case, s, np.ascontiguousarray(b.T if setting.kind == "linear" else b), draft)
