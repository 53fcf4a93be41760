"""Operands with large rounding errors of sums, to test and measure the bounds for any data. Each row is a separate
case.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import element_type

Float64 = NDArray[np.float64]

Family: TypeAlias = Literal["small beside large", "cancelling", "one sign", "wide range"]
"""small beside large: a 1, then equal small products that are lost in the sum. cancelling: the same with a final -1,
which leaves the small ones. one sign: truncations err in one direction. wide range: many powers of two.
"""

FAMILIES: tuple[Family, ...] = get_args(Family)

RANGE = {"f16": 14.0, "bf16": 14.0, "e4m3": 9.0, "e5m2": 14.0}
"""Powers of two below 1 of a factor. The product of two factors reaches below the last place of an f32 sum of 1."""


def adversarial(
    family: Family, rng: np.random.Generator, dtype: str, m: int, n: int, k: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """A weight [m, k] with zeros in a 2:4 pattern, and tokens [n, k], of element type `dtype`, a float of 8 or 16 bits."""
    kept = np.arange(k) % 4 < 2
    weight, tokens = (_rows(family, rng, rows, k, RANGE[dtype]) for rows in (m, n))
    if family == "cancelling":
        last = int(np.flatnonzero(kept)[-1])
        weight[:, last], tokens[:, last] = -1.0, 1.0
    numpy = element_type(dtype).numpy
    return np.where(kept, weight, 0.0).astype(numpy), tokens.astype(numpy)


def _rows(family: Family, rng: np.random.Generator, rows: int, k: int, powers: float) -> Float64:
    if family == "one sign":
        return rng.uniform(0.5, 1.0, (rows, k))
    if family == "wide range":
        return rng.choice([-1.0, 1.0], (rows, k)) * np.exp2(-rng.uniform(0, powers, (rows, k)))
    values = np.repeat(np.exp2(-rng.uniform(0, powers, (rows, 1))), k, axis=1)
    values[:, 0] = 1.0
    return values
