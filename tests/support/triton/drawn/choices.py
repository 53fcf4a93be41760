"""The choices that make a random kernel: each is drawn from a seed, then mended where two exclude each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

POINTERS = ("masked", "wrapped", "moved", "blocks")
DESCRIPTORS = ("made", "handed")

FLOATS = ("f16", "bf16", "e4m3", "e5m2")


@dataclass(frozen=True)
class Choices:
    """One random kernel: sums [P, Q] of a sparse operand w [P, K] and a dense operand x [Q, K].

    w, x: element types. cast: x's type is w's after the cast, in the loop. out: of y.
    side: of w in the dot. w_stored: "rows" [P, K], "columns" [K, P], "turned" is a transposed view of rows. x_rows: x is [Q, K], not [K, Q].
    w_feed, x_feed: "masked", "wrapped", "moved" and "blocks" are pointers, "made" and "handed" descriptors, "gathered" rows by an index.
    BP, BQ, BK: tiles. warps: num_warps, 0 to leave it out.
    loop: "steps", "elements", "while", "peeled" or "once". whole: K is a multiple of BK, and nothing masks it.
    into: the dot adds to the sums itself. inside: what else the loop does. made: what is done to a tile before the dot.
    epilogue: steps in order. after: what follows the epilogue. y_turned: y is [Q, P]. store: how y is stored.
    numbering: of the tiles. batch: "" or which axis of the grid it is; shared: all entries of a batch have one w.
    constant: sizes are constants of the kernel.
    fixed: what nothing masks is masked along K as in the first step.
    """

    seed: int
    w: str
    x: str
    cast: str
    out: str
    side: str
    w_stored: str
    x_rows: bool
    w_feed: str
    x_feed: str
    BP: int
    BQ: int
    BK: int
    warps: int
    loop: str
    whole: bool
    into: bool
    inside: str
    made: str
    epilogue: tuple[str, ...]
    after: str
    y_turned: bool
    store: str
    numbering: str
    batch: str
    shared: bool
    constant: bool
    fixed: bool = False

    @property
    def dot(self) -> str:
        """The element type of the dot's operands."""
        return self.x if self.cast == "w" else self.w

    @property
    def integer(self) -> bool:
        """Whether the dot sums integers."""
        return self.dot == "s8"

    @property
    def splits(self) -> bool:
        """Whether programs share K."""
        return self.store == "atomic" and self.loop in ("steps", "while")


def draw(seed: int, *, largest: int = 256, blocks: bool = False) -> Choices:
    """The choices of a seed. largest: side of a tile. blocks: whether there are block pointers."""
    rng = np.random.default_rng(seed)

    def pick(*options: T) -> T:
        return options[int(rng.integers(len(options)))]

    w = pick("f16", "f16", "bf16", "e4m3", "e5m2", "s8")
    cast = pick("", "", "", "", "", "w", "x")
    x = w
    if cast == "w":
        x = pick("f16", "bf16")
    elif cast == "x":
        x = "f32"
    elif w in ("e4m3", "e5m2"):
        x = pick("e4m3", "e5m2", w)
    sides = [side for side in (16, 32, 64, 64, 128, 128, 256) if side <= largest]
    ks = [side for side in (16, 32, 64, 64, 128) if side <= largest]
    found = Choices(
        seed=seed,
        w=w,
        x=x,
        cast=cast,
        out=pick("f16", "bf16", "f32", "f32", "e4m3"),
        side=pick("left", "right"),
        w_stored=pick("rows", "rows", "rows", "columns", "turned"),
        x_rows=pick(True, True, False),
        w_feed=pick(*POINTERS, *DESCRIPTORS, "masked"),
        x_feed=pick(*POINTERS, *DESCRIPTORS, "masked", "gathered"),
        BP=pick(*sides),
        BQ=pick(*sides),
        BK=pick(*ks),
        warps=pick(0, 4, 8, 0),
        loop=pick("steps", "steps", "elements", "elements", "while", "peeled", "once"),
        whole=pick(False, False, False, True),
        into=pick(True, False),
        inside=pick(
            "", "", "", "", "second sparse", "second dense", "sums of x", "scale", "scale of q", "scale of p", "atomic"
        ),
        made=pick("", "", "", "", "doubled x", "relu x", "masked x", "doubled w"),
        epilogue=tuple(
            pick("alpha", "bias p", "bias q", "scale p", "scale q", "residual", "relu", "silu", "clamp")
            for _ in range(pick(0, 0, 1, 2, 3))
        ),
        after=pick("", "", "", "", "sums", "largest", "chain"),
        y_turned=pick(False, False, True),
        store=pick("masked", "masked", "masked", "made", "atomic", "scattered"),
        numbering=pick("grid", "grid", "rows", "groups", "persistent"),
        batch=pick("", "", "", "", "y", "z"),
        shared=pick(True, False),
        constant=pick(False, False, False, True),
        fixed=pick(False, True),
    )
    return _mended(found, blocks)


def _mended(c: Choices, blocks: bool) -> Choices:
    changes: dict[str, Any] = {}

    def change(**more: Any) -> Choices:
        changes.update(more)
        return replace(c, **changes)

    new = c
    if c.integer:
        # The epilogue is in f32: sums that stay integers have none.
        new = change(inside=c.inside if c.inside in ("second sparse", "sums of x", "scale") else "")
        new = change(made="" if c.made == "doubled w" or c.made == "doubled x" else c.made)
    if c.x == "f32":
        new = change(made="" if c.made == "masked x" else c.made)
    if new.made and new.dot in ("e4m3", "e5m2"):
        # Arithmetic of 8-bit floats rounds.
        new = change(made="masked x" if "x" in c.made and c.x != "f32" else "")
    if not blocks:
        for name in ("w_feed", "x_feed"):
            if getattr(new, name) == "blocks":
                new = change(**{name: "moved"})
    for name in ("w_feed", "x_feed"):
        if getattr(new, name) in ("moved", "blocks") and new.loop == "once":
            new = change(**{name: "masked"})
    if new.numbering == "persistent" and new.batch == "y":
        new = change(batch="z")
    if new.numbering == "grid" and new.batch == "y":
        new = change(batch="z")
    if new.batch:
        # Descriptors of a batch would have three dimensions, or an entry's address.
        new = change(
            w_feed="masked" if new.w_feed == "handed" else new.w_feed,
            x_feed="masked" if new.x_feed == "handed" else new.x_feed,
            after="" if new.after != "sums" else "sums",
        )
    if new.store == "atomic":
        # Each part of K would add it.
        new = change(out="f32", epilogue=(), after="", y_turned=False)
    if new.batch and new.splits:
        new = change(batch="")
    if new.w in ("e4m3", "e5m2", "s8") or new.dot in ("e4m3", "e5m2", "s8"):
        new = change(BK=max(64 if new.w in ("e4m3", "e5m2", "s8") else 32, new.BK))
    if new.splits and new.inside in ("atomic", "second sparse"):
        new = change(inside="")
    return new
