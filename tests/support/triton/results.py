"""Results of a call beside those that are expected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from louver.measure.forms import Call


def check(call: Call, outs: Mapping[str, Any], tolerance: float = 2.0**-7, of_greatest: float = 2.0**-8) -> None:
    """Every element of the outputs, within what rounding of operands, sums and outputs explains: parts of it and of the greatest one."""
    for name, expected in call.expected().items():
        assert np.isfinite(expected).all() and np.abs(expected).max() > 0.01
        most = of_greatest * np.abs(expected).max()
        np.testing.assert_allclose(outs[name].astype(np.float64), expected, rtol=tolerance, atol=most, err_msg=name)
