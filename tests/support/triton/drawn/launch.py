"""Launches of random kernels: random arrays between poison, and what is right in float64 with how far a result may be from it."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import louver
from louver.formats.dtypes import element_type
from louver.library import numerics
from louver.user.descriptor import TensorDescriptor
from random_products.expected import F32_UNIT, Expected, rounding
from support.triton.drawn.choices import Choices
from support.triton.drawn.text import CHAIN, NAME, source

Array = NDArray[Any]

POISON = -77
"""Of integers; of floats it is NaN."""


def load_kernel(c: Choices) -> Any:
    """The kernel, decorated. Its lines are found by their file's name."""
    text, name = source(c), f"<drawn kernel {c.seed}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    module: dict[str, Any] = {"__name__": f"drawn_{c.seed}"}
    exec(compile(text, name, "exec"), module)
    return module[NAME]


@dataclass(frozen=True)
class Guarded:
    """An array inside of a larger one, whose other elements no kernel may use. block: of the descriptor that it is handed as."""

    buffer: Array
    shape: tuple[int, ...]
    block: tuple[int, ...] | None = None

    @classmethod
    def of(cls, array: Array, pitch: int | None = None, block: tuple[int, ...] | None = None) -> Guarded:
        """A copy of an array; its rows begin `pitch` elements apart."""
        whole = list(array.shape)
        whole[-1] = pitch or whole[-1] + 8
        if len(whole) > 1:
            whole[-2] += 1
        buffer = np.full(whole, POISON if array.dtype.kind in "iu" else np.nan).astype(array.dtype)
        found = cls(buffer, array.shape, block)
        found.view(buffer)[...] = array
        return found

    def view(self, whole: Any) -> Any:
        """The part of an array like the buffer."""
        return whole[tuple(slice(0, size) for size in self.shape)]

    def strides(self) -> list[int]:
        """Steps in elements."""
        return [step // self.buffer.itemsize for step in self.buffer.strides]


@dataclass(frozen=True)
class Output:
    """The element type and the value of an output: `element` rounds it."""

    element: str
    expected: Expected


@dataclass(frozen=True)
class Launch:
    """A call of a kernel. arguments: all of it, arrays as `Guarded`, sparse tensors, numbers. sizes: for a record."""

    grid: tuple[int, ...]
    arguments: Mapping[str, Any]
    outputs: Mapping[str, Output]
    sizes: Mapping[str, int]
    hints: Mapping[str, int] = field(default_factory=dict[str, int])

    def run(
        self, start: Callable[..., object], place: Callable[[Array], Any], read: Callable[[Any], Array]
    ) -> list[str]:
        """Launch, and say what is wrong. place: puts an array where the kernel finds it, read: brings it back."""
        placed: dict[str, Any] = {}
        given: dict[str, Any] = {}
        for name, value in self.arguments.items():
            given[name] = value
            block = getattr(value, "block", None)
            if isinstance(value, Guarded):
                placed[name] = place(value.buffer.copy())
                given[name] = value.view(placed[name])
            elif isinstance(value, HandedSparse):
                given[name] = value.tensor
            if block is not None:
                given[name] = TensorDescriptor.from_tensor(given[name], list(block))
        start(**given, **self.hints)
        wrong: list[str] = []
        for name, output in self.outputs.items():
            guarded: Guarded = self.arguments[name]
            after = read(placed[name]).view(guarded.buffer.dtype)
            wrong += _compare(name, guarded, after, output)
        return wrong


@dataclass(frozen=True)
class HandedSparse:
    """A sparse tensor that a descriptor hands over."""

    tensor: Any
    block: tuple[int, ...]


def _compare(name: str, guarded: Guarded, after: Array, output: Output) -> list[str]:
    got, right = guarded.view(after).astype(np.float64), output.expected.value
    ratio = output.expected.ratio(got, output.element)
    # Elements without a result stay as they were.
    ratio = np.where(np.isnan(right), np.where(np.isnan(got), 0.0, np.inf), ratio)
    found: list[str] = []
    if ratio.size and not ratio.max() <= 1:
        at = tuple(int(i) for i in np.unravel_index(int(np.argmax(ratio)), ratio.shape))
        found.append(
            f"{name}{list(at)} is {got[at]:.6g}, not {right[at]:.6g}: {int((ratio > 1).sum())} of {ratio.size} are wrong"
        )
    before, mask = guarded.buffer.copy(), np.ones(guarded.buffer.shape, bool)
    guarded.view(mask)[...] = False
    if (before.view(f"u{before.itemsize}")[mask] != after.view(f"u{after.itemsize}")[mask]).any():
        found.append(f"{name} is written outside of its rows")
    return found


def draw_launch(c: Choices, index: int, *, most: float = 2.5) -> Launch:
    """A launch of the kernel. most: tiles along P and Q."""
    return _Drawing(c, np.random.default_rng((c.seed, index)), most).launch()


@dataclass
class _Drawing:
    c: Choices
    rng: np.random.Generator
    most: float
    found: dict[str, Any] = field(default_factory=dict[str, Any])

    def pick(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def size(self, tile: int, step: int) -> int:
        """Of P or Q: tails of tiles, whole tiles and single rows, in multiples of a step."""
        most = max(1, int(self.most * tile))
        drawn = self.pick(int(self.rng.integers(1, most + 1)), int(self.rng.integers(1, most + 1)), tile, step)
        return -(-drawn // step) * step

    def depth(self) -> int:
        c, rng = self.c, self.rng
        steps = 1 if c.loop == "once" else int(rng.integers(1, 5))
        if c.whole:
            return c.BK * steps
        drawn = int(rng.integers(1, c.BK * steps + 1))
        by = self.pick(4, 8, 16, 16, 32)
        return max(by if c.loop != "once" else 4, drawn // by * by)

    def dense(self, *shape: int, element: str = "f32") -> Array:
        if element == "s8" or (element == "f32" and self.c.integer):
            return self.rng.integers(-20, 20, shape).astype(element_type(element).numpy)
        return self.rng.standard_normal(shape, np.float32).astype(element_type(element).numpy)

    def pitched(self, array: Array, *, aligned: bool, block: tuple[int, ...] | None = None) -> Guarded:
        """Rows with a gap of poison behind them."""
        chunk = 16 // array.itemsize
        pitch = -(-array.shape[-1] // chunk) * chunk + self.pick(0, chunk)
        return Guarded.of(array, pitch if aligned else pitch + self.pick(0, 0, 1), block)

    def launch(self) -> Launch:
        c = self.c
        # Rows that bulk copies write have whole chunks.
        wide = 16 if "made" in (c.w_feed, c.x_feed, c.store) or "handed" in (c.w_feed, c.x_feed) else 1
        p, q = self.size(c.BP, self.pick(1, wide)), self.size(c.BQ, self.pick(1, wide))
        if c.w_stored != "rows":
            p = -(-p // 16) * 16
        k = self.depth()
        lead = () if not c.batch else (int(self.rng.integers(1, 4)),)
        given: dict[str, Any] = {"P": p, "Q": q, "K": k, "BP": c.BP, "BQ": c.BQ, "BK": c.BK}
        names = {"second sparse": ("w", "v"), "second dense": ("w", "u")}.get(c.inside, ("w",))
        weights: dict[str, Array] = {}
        for name in names:
            if name == "u":
                weights[name] = self.dense(p, k, element=c.dot)
                given[name] = self.pitched(weights[name], aligned=False)
                given["su_p"] = given[name].strides()[0]
            else:
                weights[name], given[name] = self.sparse(lead if not c.shared else (), p, k)
        given.setdefault("su_p", 0)
        given |= {"sw_p": k, "sw_k": 1} if c.w_stored == "rows" else {"sw_p": 1, "sw_k": p}
        x, given["x"] = self.activations(lead, q, k)
        steps = given["x"].strides()
        inner = steps[-2:] if c.x_rows else steps[-2:][::-1]
        given |= {"sx_q": inner[0], "sx_k": inner[1], "b_w": p * k, "b_x": steps[0] if lead else 0}
        total = self.total({name: self.cast(value, name) for name, value in weights.items()}, x, given)
        outputs = self.outputs(total, given, p, q)
        grid = self.grid(p, q, lead)
        if c.inside == "atomic":
            given["count"] = Guarded.of(np.zeros(1, np.int32))
            tiles = -(-p // c.BP) * -(-q // c.BQ) * (lead[0] if lead else 1)
            number = np.array([float(tiles * (1 if c.loop == "once" else -(-k // c.BK)))])
            outputs["count"] = Output("s32", Expected(np, number, np.zeros(1)))
        sizes = {"P": p, "Q": q, "K": k, "entries": lead[0] if lead else 1}
        return Launch(grid, given, outputs, sizes, {"num_warps": c.warps} if c.warps else {})

    def grid(self, p: int, q: int, lead: tuple[int, ...]) -> tuple[int, ...]:
        c = self.c
        tiles = -(-p // c.BP), -(-q // c.BQ)
        flat = tiles[0] * tiles[1]
        if c.numbering == "grid":
            first = tiles if c.side == "left" else tiles[::-1]
        else:
            first = (int(self.rng.integers(1, flat + 1)) if c.numbering == "persistent" else flat, 1)
        if c.splits:
            return (*first, int(self.rng.integers(1, 4)))
        if c.batch == "y":
            return (first[0], lead[0])
        return (*first, lead[0]) if lead else first

    def sparse(self, lead: tuple[int, ...], p: int, k: int) -> tuple[Array, Any]:
        """A weight [P, K] pruned, and as the kernel gets it."""
        c = self.c
        dense = louver.prune(self.dense(*lead, p, k, element=c.w), "2:4")
        if c.w_stored == "rows" or (c.w_stored == "turned" and not lead):
            found = louver.compress(dense, "2:4")
            found = found.T if c.w_stored == "turned" else found
        else:
            found = louver.compress(np.ascontiguousarray(dense.swapaxes(-1, -2)), "2:4", axis=len(lead))
        if c.w_feed == "handed":
            return dense, HandedSparse(found, (c.BP, c.BK) if c.w_stored == "rows" else (c.BK, c.BP))
        return dense, found

    def activations(self, lead: tuple[int, ...], q: int, k: int) -> tuple[Array, Guarded]:
        """x [Q, K] as float64 that the dot takes, and as the kernel gets it."""
        c = self.c
        rows = np.arange(q)
        held = q
        if c.x_feed == "gathered":
            held = q + 3
            rows = self.rng.integers(0, held, q)
            self.found["rows"] = Guarded.of(rows.astype(np.int32))
        array = self.dense(*lead, held, k, element=c.x)
        stored = array if c.x_rows else np.ascontiguousarray(array.swapaxes(-1, -2))
        block = None
        if c.x_feed == "handed":
            block = (c.BQ, c.BK) if c.x_rows else (c.BK, c.BQ)
        placed = self.pitched(stored, aligned=c.x_feed in ("made", "handed") or self.pick(True, False), block=block)
        x = array[..., rows, :]
        match c.made:
            case "doubled x":
                x = x * x.dtype.type(2)
            case "relu x":
                x = np.maximum(x, x.dtype.type(0))
            case "masked x":
                keep = self.rng.integers(0, 2, k).astype(np.int32)
                self.found["keep"] = Guarded.of(keep)
                x = np.where(keep > 0, x, x.dtype.type(0))
        if c.cast == "x":
            x = x.astype(element_type(c.w).numpy)
        return x.astype(np.float64), placed

    def cast(self, weights: Array, name: str) -> NDArray[np.float64]:
        c = self.c
        found = weights.astype(element_type(c.x).numpy) if c.cast == "w" and name != "u" else weights
        return found.astype(np.float64) * (2 if c.made == "doubled w" and name == "w" else 1)

    def scales(self, p: int, q: int, k: int) -> tuple[Any, Any]:
        """Factors of w and of x, [*, K]."""
        c, steps = self.c, -(-k // self.c.BK)
        if not c.inside.startswith("scale"):
            return 1.0, 1.0
        many = {"scale": 1, "scale of p": p, "scale of q": q}[c.inside]
        # Powers of two and others, far apart.
        scales = (self.dense(many, steps).astype(np.float32) * self.pick(1e-3, 1.0, 1.0)).astype(np.float32)
        self.found["scales"] = Guarded.of(scales.reshape(-1))
        wide = np.repeat(scales.astype(np.float64), c.BK, axis=1)[:, :k]
        return (wide, 1.0) if c.inside == "scale of p" else (1.0, wide)

    def total(self, weights: Mapping[str, Array], x: Array, given: dict[str, Any]) -> Expected:
        """The sums [P, Q] before the epilogue."""
        c, k = self.c, x.shape[-1]
        of_w, of_x = self.scales(given["P"], given["Q"], k)
        scaled = c.inside.startswith("scale")
        how = numerics.accumulation(c.dot)
        _, absolute, summed = numerics.coefficients(k, "s32", how)
        found: dict[str, Expected] = {}
        for name, w in weights.items():
            value, magnitude = ((one * of_w) @ (two * of_x).swapaxes(-1, -2) for one, two in ((w, x), (abs(w), abs(x))))
            if scaled:
                magnitude = (abs(w) * abs(of_w)) @ (abs(x) * abs(of_x)).swapaxes(-1, -2)
            more = F32_UNIT * (2 + k // c.BK) if scaled or c.splits or not c.into else 0.0
            found[name] = Expected(np, value, (summed + more) * magnitude + absolute)
            if c.integer:
                found[name].to_f32()
        result = found["w"]
        if c.inside == "second sparse":
            result.activate("silu")
            other = found["v"]
            error = result.error * (abs(other.value) + other.error) + other.error * abs(result.value)
            value = result.value * other.value
            result = Expected(np, value, error + 2 * F32_UNIT * abs(value))
        elif c.inside == "second dense":
            result.add(found["u"].value)
            result.error = result.error + found["u"].error
        elif c.inside == "sums of x":
            result.add(x.sum(axis=-1)[..., None, :])
            result.error = result.error + F32_UNIT * k * abs(x).sum(axis=-1)[..., None, :]
        return result

    def vector(self, name: str, size: int) -> NDArray[np.float64]:
        """A vector of the epilogue; the same one each time that it is named."""
        if name not in self.found:
            self.found[name] = Guarded.of(self.dense(size).astype(np.float32) * np.float32(0.5))
        return self.found[name].view(self.found[name].buffer).astype(np.float64)

    def epilogue(self, total: Expected, p: int, q: int) -> None:
        for name in self.c.epilogue:
            kind, _, own = name.partition(" ")
            if own:
                vector = self.vector(f"{kind}_{own}", p if own == "p" else q)
                vector = vector[:, None] if own == "p" else vector
                (total.multiply if kind == "scale" else total.add)(vector)
                continue
            match name:
                case "alpha":
                    alpha = self.found.setdefault("alpha", float(np.float32(self.rng.standard_normal())))
                    total.multiply(alpha)
                case "residual":
                    if name not in self.found:
                        turned = self.dense(p, q).astype(np.float16)
                        self.found[name] = Guarded.of(turned, q)
                    total.add(self.found[name].view(self.found[name].buffer).astype(np.float64))
                case "relu":
                    total.activate("relu")
                case "silu":
                    total.activate("silu")
                case _:
                    total.value = np.clip(total.value, -4.0, 4.0)

    def outputs(self, total: Expected, given: dict[str, Any], p: int, q: int) -> dict[str, Output]:
        """Fills the arguments in. Epilogues first: what follows takes their result."""
        c = self.c
        self.epilogue(total, p, q)
        found: dict[str, Output] = {}
        if c.after:
            found |= self.after(total, p, q)
        places, held = np.arange(q), q
        if c.store == "scattered":
            held = q + 2
            places = self.rng.permutation(held)[:q]
            self.found["places"] = Guarded.of(places.astype(np.int32))
        value, error = total.value, total.error
        shape = (*value.shape[:-1], held)
        dtype = element_type(c.out).numpy
        initial = np.full(shape, 0.0 if c.store == "atomic" else np.nan).astype(dtype)
        # An element that no place names stays as it is.
        whole, wide = np.full(shape, np.nan), np.zeros(shape)
        whole[..., places], wide[..., places] = value, error
        if c.y_turned:
            initial, whole, wide = (np.ascontiguousarray(each.swapaxes(-1, -2)) for each in (initial, whole, wide))
        given["y"] = self.pitched(initial, aligned=c.store == "made" or self.pick(True, False))
        steps = given["y"].strides()
        inner = steps[-2:][::-1] if c.y_turned else steps[-2:]
        given |= {"sy_p": inner[0], "sy_q": inner[1], "b_y": steps[0] if c.batch else 0}
        given |= self.found
        return {"y": Output(c.out, Expected(np, whole, wide)), **found}

    def after(self, total: Expected, p: int, q: int) -> dict[str, Output]:
        c = self.c
        if c.after == "sums":
            self.found["sums"] = Guarded.of(np.zeros((*total.value.shape[:-1],), np.float32).reshape(-1))
            error = total.error.sum(axis=-1) + F32_UNIT * (q + 4) * abs(total.value).sum(axis=-1)
            return {"sums": Output("f32", Expected(np, total.value.sum(axis=-1).reshape(-1), error.reshape(-1)))}
        if c.after == "largest":
            tiles = -(-q // c.BQ)
            self.found["largest"] = Guarded.of(np.full(tiles * p, np.nan, np.float32))
            edges = range(0, q, c.BQ)
            most = [total.value[:, first : first + c.BQ].max(axis=1) for first in edges]
            errors = [total.error[:, first : first + c.BQ].max(axis=1) for first in edges]
            return {"largest": Output("f32", Expected(np, np.concatenate(most), np.concatenate(errors)))}
        chain = self.dense(q, CHAIN).astype(element_type("bf16").numpy)
        self.found |= {
            "chain": Guarded.of(chain, CHAIN),
            "chained": Guarded.of(np.zeros((p, CHAIN), np.float32), CHAIN),
        }
        wide = chain.astype(np.float64)
        _, absolute, summed = numerics.coefficients(q, "s32", "f32")
        each = total.error + rounding("bf16", abs(total.value) + total.error)
        error = each @ abs(wide) + (summed + F32_UNIT * (4 + q)) * (abs(total.value) @ abs(wide)) + absolute
        return {"chained": Output("f32", Expected(np, total.value @ wide, error))}
