"""Random expressions for rows and columns of a sparse operand, each with its value in NumPy: text of a kernel and what it gives."""

from __future__ import annotations

import linecache
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import louver

Array = NDArray[Any]

HELD, N, SIDE = 72, 40, 3
"""Rows of a matrix of w, rows of the result that are read from it, and matrices."""

ROWS = {
    "n": lambda n, t: n,
    "tl.load(table + n, mask=n < N, other=0)": lambda n, t: t[n],
    "HELD - 1 - n": lambda n, t: HELD - 1 - n,
    "n * 2 % HELD": lambda n, t: n * 2 % HELD,
    "(n + 7) % HELD": lambda n, t: (n + 7) % HELD,
    "n // 2": lambda n, t: n // 2,
    "tl.load(table + n // 8, mask=n < N, other=0) // 8 * 8 + n % 8": lambda n, t: t[n // 8] // 8 * 8 + n % 8,
    "tl.where(n % 2 == 0, n, HELD - 1 - n)": lambda n, t: np.where(n % 2 == 0, n, HELD - 1 - n),
    "tl.minimum(n + tl.load(table), HELD - 1)": lambda n, t: np.minimum(n + t[0], HELD - 1),
    "n ^ 5": lambda n, t: n ^ 5,
}
"""Rows of w for columns of the result. Each stays inside the matrix."""

COLUMNS = {
    "k": lambda k, c, w: k,
    "tl.load(pieces + k // 16, mask=k < K, other=0) * 16 + k % 16": lambda k, c, w: c[k // 16] * 16 + k % 16,
    "(K // 16 - 1 - k // 16) * 16 + k % 16": lambda k, c, w: (w // 16 - 1 - k // 16) * 16 + k % 16,
    "(k + 32) % K": lambda k, c, w: (k + 32) % w,
    "(k + 4) % K": lambda k, c, w: (k + 4) % w,
    "k ^ 16": lambda k, c, w: k ^ 16,
    "k ^ 1": lambda k, c, w: k ^ 1,
    "K - 1 - k": lambda k, c, w: w - 1 - k,
    "k * 2 % K": lambda k, c, w: k * 2 % w,
}
"""Columns of w for columns of x. The last three, and `(k + 4) % K` where it wraps inside of a piece, have no pieces of neighbours."""

MASKS = ("(n < N)[:, None] & (k < K)[None, :]", "(k < K)[None, :]", "(n < N)[:, None] & (k < LAST)[None, :]")


NO_NEIGHBOURS = "columns of a tile follow one another along the sparse axis"
"""The refusal of a kernel in which every group breaks the rule of pieces."""


@dataclass(frozen=True)
class Gathered:
    """A draw. carried: whether the offset of the matrix is added to the pointer in a branch, a loop, or before all."""

    seed: int
    rows: str
    columns: str
    mask: str
    turned: bool
    matrix: str
    element: str
    k: int
    last: int
    tile: tuple[int, int, int]

    @classmethod
    def of(cls, seed: int) -> Gathered:
        rng = np.random.default_rng(seed)

        def one(given: Any) -> Any:
            return list(given)[int(rng.integers(len(given)))]

        element = one(("float16", "float16", "bfloat16", "float8_e4m3fn", "float32"))
        k = one((64, 96, 128, 144)) if element != "float8_e4m3fn" else one((128, 192))
        tile = one(((16, 16, 64), (32, 32, 64), (16, 64, 64), (16, 32, 128)))
        # A sum of another part of K has the mask of whole groups, or cuts one.
        last = one((k, k - 16, k - 8, k - 4, k - 6))
        return cls(
            seed, one(ROWS), one(COLUMNS), one(MASKS), bool(rng.integers(2)), one(("0", "tl.program_id(1)", "tl.load(table + 1) % 3")),
            element, k, last, tile,
        )  # fmt: skip

    def source(self) -> str:
        """The text of the kernel."""
        at = "w + matrix * HELD * K + row[:, None] * K + column[None, :]"
        mask = self.mask
        if self.turned:
            at, mask = (
                each.replace("[:, None]", "[]").replace("[None, :]", "[:, None]").replace("[]", "[None, :]")
                for each in (at, mask)
            )
        return f"""import triton
import triton.language as tl


@triton.jit
def gathered(y, x, w, table, pieces, N, K, LAST, HELD: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    m, n = tl.arange(0, TM), tl.program_id(0) * TN + tl.arange(0, TN)
    matrix = {self.matrix}
    row = {self.rows}
    total = tl.zeros((TM, TN), tl.float32)
    for start in range(0, K, TK):
        k = start + tl.arange(0, TK)
        column = {self.columns}
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(k < LAST)[None, :], other=0.0)
        two = tl.load({at}, mask={mask}, other=0.0)
        total = tl.dot(one, {"two" if self.turned else "two.T"}, total)
    tl.store(y + tl.program_id(1) * TM * N + m[:, None] * N + n[None, :], total, mask=(n < N)[None, :])
"""

    @property
    def kernel(self) -> Any:
        """The kernel, decorated. Its lines are found by their file's name."""
        text, name = self.source(), f"<gathered kernel {self.seed}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        module: dict[str, Any] = {"__name__": f"gathered_{self.seed}"}
        exec(compile(text, name, "exec"), module)
        return module["gathered"]

    def fate(self) -> str:
        """What becomes of the kernel: "right", "violation" or "refused". Fails for wrong numbers."""
        rng, (tm, tn, tk) = np.random.default_rng(self.seed + 1), self.tile
        dense = louver.prune(
            rng.integers(-3, 4, (SIDE, HELD, self.k)).astype(self.element),
            "1:2" if self.element == "float32" else "2:4",
        )
        x = rng.integers(-3, 4, (tm, self.k)).astype(self.element)
        table = rng.integers(0, HELD, N).astype(np.int32)
        pieces = rng.permutation(-(-self.k // 16)).astype(np.int32)
        y = np.full((SIDE, tm, N), np.nan, np.float32)
        s = louver.compress(dense, "1:2" if self.element == "float32" else "2:4")
        sizes = {"HELD": HELD, "TM": tm, "TN": tn, "TK": tk}
        refused = False
        try:
            louver.jit(self.kernel).emulate[(-(-N // tn), SIDE)](y, x, s, table, pieces, N, self.k, self.last, **sizes)
        except ValueError as error:
            refused = NO_NEIGHBOURS in str(error)
            if not refused and "computed address against this rule" not in str(error):
                return "refused"
        n, k = np.arange(N), np.arange(self.last)
        rows, columns = ROWS[self.rows](n, table), COLUMNS[self.columns](np.arange(self.k), pieces, self.k)[: self.last]
        assert not refused or (np.diff(columns)[::2] != 1).all(), self.source()
        for program in range(SIDE):
            matrix = {"0": 0, "tl.program_id(1)": program}.get(self.matrix, int(table[1]) % 3)
            flat = (matrix * HELD + rows[:, None]) * self.k + columns[None, :]
            w = dense.astype(np.float64).reshape(-1)[np.minimum(flat, dense.size - 1)]
            right = x.astype(np.float64)[:, k] @ w.T
            shown = ~np.isnan(y[program]).any(0)
            np.testing.assert_array_equal(y[program][:, shown], right[:, shown], err_msg=self.source())
        return "violation" if np.isnan(y).any() else "right"
