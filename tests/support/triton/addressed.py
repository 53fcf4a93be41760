"""Random products as users address them: masks that stay, move, or have a limit of their own, on a dense and a sparse operand.

A program, or one that goes through all rows, sums x @ w.T. An array ends with the last element that a mask lets through,
so Triton would run each launch. What the kernel does not read is NaN.
"""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import louver

Array = NDArray[Any]

WARPS = {"TM": 16, "TN": 16, "TK": 32}
WARPGROUP = {"TM": 64, "TN": 64, "TK": 64}


@dataclass(frozen=True)
class Side:
    """How x [rows, K] or w [columns, K] is read.

    mask: of K. steps: whether a pointer moves in the loop, or is computed. rows: whether rows (of x) or columns are masked.
    entry: whether each program along z has its own matrix.
    """

    mask: str
    steps: str
    rows: bool
    entry: bool


@dataclass(frozen=True)
class Addressed:
    """A kernel. over: what follows rows: programs, or a loop whose mask of rows moves or stays. beside: a limit of a second read of x.

    side: of w in the dot. store: through pointers or a descriptor.
    """

    seed: int
    x: Side
    w: Side
    over: str
    beside: str
    side: str
    store: str
    tile: Mapping[str, int]

    @property
    def kernel(self) -> Any:
        """The kernel, decorated. Its lines are found by their file's name."""
        text, name = self.source(), f"<addressed kernel {self.seed}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        module: dict[str, Any] = {"__name__": f"addressed_{self.seed}"}
        exec(compile(text, name, "exec"), module)
        return module["addressed"]

    def source(self) -> str:
        """The text of the kernel."""
        strides = "sxm, sxe, swn, swe, sym, sye"
        lines = [
            "import triton",
            "import triton.language as tl",
            "",
            "",
            "@triton.jit",
            f"def addressed(x, w, y, M, N, K, LIMIT, {strides}, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):",
            "    z = tl.program_id(2)",
            "    lanes = tl.arange(0, TM)",
            "    cs = tl.program_id(1) * TN + tl.arange(0, TN)",
            "    ks = tl.arange(0, TK)",
            f"    y_at = y{' + z * sye' if self._batch else ''}",
        ]
        if self.over == "programs":
            lines += ["    rs = tl.program_id(0) * TM + lanes", *self._tile("    ")]
        elif self.over == "loop":
            lines += ["    for m0 in range(0, M, TM):", "        rs = m0 + lanes", *self._tile("        ")]
        else:
            # The mask of rows is that of the first tile.
            lines += ["    rs = lanes", "    for m0 in range(0, M, TM):", *self._tile("        ", moved=" + m0 * sxm")]
        return "\n".join([*lines, ""])

    @property
    def _batch(self) -> bool:
        return self.x.entry or self.w.entry

    def _tile(self, indent: str, moved: str = "") -> list[str]:
        x = f"x{moved}{' + z * sxe' if self.x.entry else ''} + rs[:, None] * sxm + ks[None, :]"
        w = f"w{' + z * swe' if self.w.entry else ''} + cs[None, :] * swn + ks[:, None]"
        if self.side == "left":
            w = w.replace("cs[None, :]", "cs[:, None]").replace("ks[:, None]", "ks[None, :]")
            x = x.replace("rs[:, None]", "rs[None, :]").replace("ks[None, :]", "ks[:, None]")
        lines = [f"x_at = {x}", f"w_at = {w}"]
        shape = "(TM, TN)" if self.side == "right" else "(TN, TM)"
        lines += [f"total = tl.zeros({shape}, dtype=tl.float32)", "for k in range(0, K, TK):"]
        loads = [("x", self.x, self.x.mask), ("w", self.w, self.w.mask)]
        if self.beside:
            loads.insert(1, ("x", self.x, self.beside))
        tiles = {"x": list[str](), "w": list[str]()}
        for name, side, mask in loads:
            tiles[name].append(f"{name}_{len(tiles[name])}")
            at = f"{name}_at" if side.steps == "carried" else f"{name}_at + k"
            lines.append(f"    {tiles[name][-1]} = tl.load({at}{self._mask(name, side, mask)})")
        for tile in tiles["x"]:
            pair = f"{tile}, w_0" if self.side == "right" else f"w_0, {tile}"
            lines.append(f"    total = tl.dot({pair}, total)")
        lines += [f"    {name}_at += TK" for name, side in (("x", self.x), ("w", self.w)) if side.steps == "carried"]
        return [indent + line for line in [*lines, *self._store(moved.replace("sxm", "sym"))]]

    def _mask(self, name: str, side: Side, mask: str) -> str:
        along = {"x": ("rs", "M"), "w": ("cs", "N")}[name]
        first, second = (
            ("[:, None]", "[None, :]") if (name == "x") == (self.side == "right") else ("[None, :]", "[:, None]")
        )
        parts = [f"({along[0]}{first} < {along[1]})"] if side.rows else []
        index, _, limit = mask.partition(" ")
        parts += [f"({'k + ' if index == 'moving' else ''}ks{second} < {limit})"] if mask else []
        return f", mask={' & '.join(parts)}, other=0.0" if parts else ""

    def _store(self, moved: str) -> list[str]:
        turned = self.side == "left"
        if self.store == "descriptor":
            first = "tl.program_id(0) * TM" if self.over == "programs" else "m0"
            made = "tl.make_tensor_descriptor(y_at, [M, N], [sym, 1], [TM, TN])"
            value = "total.T" if turned else "total"
            return [f"{made}.store([{first}, tl.program_id(1) * TN], {value})"]
        rows, columns = ("[None, :]", "[:, None]") if turned else ("[:, None]", "[None, :]")
        mask = f"(rs{rows} < M) & (cs{columns} < N)"
        return [f"tl.store(y_at{moved} + rs{rows} * sym + cs{columns}, total, mask={mask})"]

    def launch(self, index: int) -> Launch | None:
        """Arguments and what is right; None if a sparse operand would have gaps, or be read beyond its end."""
        return _launch(self, np.random.default_rng([self.seed, index, 1]))


@dataclass(frozen=True)
class Launch:
    """A grid, arguments by name, w [E, rows, K] or [rows, K] among them as it is before compression, and y in float64."""

    grid: tuple[int, ...]
    arguments: Mapping[str, Any]
    right: Array


def addressed(seed: int) -> Addressed:
    """The kernel of a seed."""
    rng = np.random.default_rng([seed, 0])

    def pick(*options: Any) -> Any:
        return options[int(rng.integers(len(options)))]

    masks = "", "fixed K", "fixed LIMIT", "moving K", "moving K", "moving LIMIT"
    sides = [
        Side(pick(*masks), pick("computed", "carried"), pick(True, True, True, False), pick(False, False, True))
        for _ in "xw"
    ]
    found = Addressed(
        seed,
        *sides,
        over=pick("programs", "programs", "loop", "loop, mask stays"),
        beside=pick("", "", "", *masks[1:]),
        side=pick("right", "right", "left"),
        store=pick("pointers", "pointers", "descriptor"),
        tile=(WARPS, WARPGROUP)[seed % 2],
    )
    # A descriptor drops what the mask of the first tile would keep, or the other way round.
    return replace(found, store="pointers") if found.over == "loop, mask stays" else found


def _launch(c: Addressed, rng: np.random.Generator) -> Launch | None:
    pick = lambda *among: int(among[int(rng.integers(len(among)))])  # noqa: E731
    tm, tn, tk = (c.tile[name] for name in ("TM", "TN", "TK"))
    # A mask of rows that stays is right for whole tiles, or in one.
    m = pick(tm, 2 * tm, int(rng.integers(1, (1 if c.over == "loop, mask stays" else 2) * tm + 1)))
    n = pick(tn, 2 * tn, 8 * int(rng.integers(1, tn // 4 + 1)))
    k = pick(tk, 2 * tk, 8 * int(rng.integers(1, 3 * tk // 8 + 1)))
    limit = pick(k, k, tk // 2, k + 8, k + tk, int(rng.integers(1, 2 * k)))
    entries = pick(1, 2) if c.x.entry or c.w.entry else 1
    pitch = -(-k // 8) * 8 + pick(0, 0, 8)
    strides = {
        "sxm": pitch,
        "sxe": pitch * (m + pick(0, 1)),
        "sym": n + pick(0, 8) if c.store == "pointers" else -(-n // 4) * 4,
    }
    strides |= {"swn": k, "swe": n * k, "sye": strides["sym"] * m}
    numbers = {"M": m, "N": n, "K": k, "LIMIT": limit} | strides
    grid = (-(-m // tm) if c.over == "programs" else 1, -(-n // tn), entries)
    w_shape = (entries, n, k) if c.w.entry else (n, k)
    w = louver.prune(rng.integers(-3, 4, w_shape).astype(np.float16), "2:4")
    reads = _Reads(c, numbers)
    tiles = [
        (at, program, column) for at in range(entries) for program in range(-(-m // tm)) for column in range(grid[1])
    ]
    x_reads = {key: reads.x(key[0], key[1], c.x.mask) for key in tiles}
    others = {key: reads.x(key[0], key[1], c.beside) for key in tiles} if c.beside else {}
    w_reads = {key: reads.w(key[0], key[2]) for key in tiles}
    if any(offsets[inside].max(initial=0) >= w.size for offsets, inside in w_reads.values()):
        return None
    used = np.unique(np.concatenate([offsets[inside] for offsets, inside in [*x_reads.values(), *others.values()]]))
    x = np.full(int(used.max(initial=0)) + 1, np.nan, np.float16)
    x[used] = rng.integers(-3, 4, used.size)
    right = np.full(entries * strides["sye"], np.nan)
    flat = w.reshape(-1).astype(np.float64)
    for key in tiles:
        parts = [_taken(x.astype(np.float64), *each[key]) for each in (x_reads, others) if each]
        total = sum(parts) @ _taken(flat, *w_reads[key]).T
        reads.store(right, key, total)
    given = {"x": x, "w": w, "y": np.full(right.shape, np.nan, np.float32)}
    return Launch(grid, given | numbers | dict(c.tile), right)


def _taken(array: Array, offsets: Array, inside: Array) -> Array:
    found = np.zeros(offsets.shape)
    found[inside] = array[offsets[inside]]
    return found


@dataclass(frozen=True)
class _Reads:
    """Offsets and masks of all of K for a tile of rows (x) or columns (w), and the places of a tile of y."""

    c: Addressed
    numbers: Mapping[str, int]

    def x(self, entry: int, tile: int, mask: str) -> tuple[Array, Array]:
        return self._all(self.c.x, entry, tile, mask, ("M", "TM", "sxm", "sxe"))

    def w(self, entry: int, tile: int) -> tuple[Array, Array]:
        return self._all(self.c.w, entry, tile, self.c.w.mask, ("N", "TN", "swn", "swe"))

    def _all(self, side: Side, entry: int, tile: int, mask: str, names: tuple[str, ...]) -> tuple[Array, Array]:
        numbers, (size, extent, pitch, apart) = self.numbers, names
        lanes, step = np.arange(self.c.tile[extent]), self.c.tile["TK"]
        columns = np.arange(-(-numbers["K"] // step) * step)
        rows = tile * self.c.tile[extent] + lanes
        offsets = (entry * numbers[apart] if side.entry else 0) + rows[:, None] * numbers[pitch] + columns
        stays = size == "M" and self.c.over == "loop, mask stays"
        inside = np.ones(offsets.shape, np.bool_)
        if side.rows:
            inside &= ((lanes if stays else rows) < numbers[size])[:, None]
        if mask:
            kind, limit = mask.split()
            inside &= (columns if kind == "moving" else columns % step) < numbers[limit]
        return offsets, inside

    def store(self, y: Array, key: tuple[int, int, int], total: Array) -> None:
        entry, tile, column = key
        numbers = self.numbers
        lanes = np.arange(self.c.tile["TM"])
        rows, columns = tile * self.c.tile["TM"] + lanes, column * self.c.tile["TN"] + np.arange(self.c.tile["TN"])
        kept = lanes if self.c.over == "loop, mask stays" else rows
        at = entry * numbers["sye"] + rows[:, None] * numbers["sym"] + columns
        inside = (kept < numbers["M"])[:, None] & (columns < numbers["N"])
        y[at[inside]] = total[inside]
