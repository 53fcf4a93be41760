"""Calls of the kernels that are written as people write them; no Triton needed to read this.

A case makes a call's arguments, with dense arrays in the place of sparse tensors, and what the call must leave in its outputs, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import louver
from louver.formats.dtypes import element_type
from louver.user.descriptor import TensorDescriptor

Array = NDArray[Any]

KEPT = Path(__file__).resolve().parents[2] / "golden" / "written"

PRODUCT, TILES = "product", "register tiles"


@dataclass(frozen=True)
class Sizes:
    """A tile, and the sizes of the matrices that it goes through."""

    BM: int
    BN: int
    BK: int
    m: int
    n: int
    k: int

    @property
    def tile(self) -> dict[str, int]:
        return {"BM": self.BM, "BN": self.BN, "BK": self.BK}

    @property
    def grid(self) -> tuple[int, int]:
        return -(-self.m // self.BM), -(-self.n // self.BN)

    @property
    def flat(self) -> int:
        return self.grid[0] * self.grid[1]


LARGE = Sizes(128, 64, 64, 150, 96, 264)
"""Tiles that products take; tails along all three."""
SMALL = Sizes(32, 32, 64, 75, 48, 200)
"""Tiles below those that products take."""


@dataclass(frozen=True)
class Draw:
    """Random operands. element: their type, as `louver.formats.dtypes` names it."""

    rng: np.random.Generator
    element: str = "f16"

    @property
    def pattern(self) -> str:
        return "1:2" if self.element == "f32" else "2:4"

    def dense(self, *shape: int, element: str | None = None) -> Array:
        name = element or self.element
        if name in ("s8", "u8"):
            return self.rng.integers(0 if name == "u8" else -20, 20, shape).astype(element_type(name).numpy)
        return self.rng.standard_normal(shape, np.float32).astype(element_type(name).numpy)

    def pruned(self, *shape: int) -> Array:
        return louver.prune(self.dense(*shape), self.pattern)


@dataclass(frozen=True)
class Call:
    """arguments: by name, tiles apart. sparse: those that are sparse tensors. expected: outputs, in float64.

    blocks: tiles of those that are descriptors. sums: outputs are added to, and are 0 before.
    """

    grid: tuple[int, ...]
    arguments: dict[str, Any]
    sparse: tuple[str, ...]
    expected: dict[str, Array]
    blocks: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    sums: bool = False

    def bound(
        self, pattern: str | None, place: Callable[[Array], Any] = np.copy
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arguments for a launch, and the outputs among them. pattern: of sparse tensors; None leaves them dense."""
        found: dict[str, Any] = {}
        for name, value in self.arguments.items():
            if name in self.expected:
                value = np.zeros_like(value) if self.sums else np.full_like(value, np.nan)
            if name in self.sparse and pattern is not None:
                found[name] = louver.compress(value, pattern)
            else:
                found[name] = place(value) if isinstance(value, np.ndarray) else value
        outs = {name: found[name] for name in self.expected}
        for name, block in self.blocks.items():
            found[name] = TensorDescriptor.from_tensor(found[name], list(block))
        return found, outs

    def check(self, outs: dict[str, Array]) -> None:
        """Every element of the outputs, within what rounding of operands, sums and outputs explains."""
        for name, expected in self.expected.items():
            given = outs[name].astype(np.float64)
            assert np.isfinite(expected).all() and np.abs(expected).max() > 0.01
            np.testing.assert_allclose(given, expected, rtol=2.0**-7, atol=2.0**-8 * np.abs(expected).max())


@dataclass(frozen=True)
class Written:
    """A kernel by its name in a module beside this one, and a call of it.

    families: how it runs, with large and with small tiles. constants: constexprs beside the tile's; "tl.…" is Triton's own.
    blocks: it has block pointers, which Triton has up to 3.6.
    """

    kernel: str
    build: Callable[[Draw, Sizes], Call]
    families: tuple[str, str] = (PRODUCT, TILES)
    constants: dict[str, Any] = field(default_factory=dict[str, Any])
    module: str = "written"
    element: str = "f16"
    blocks: bool = False
    tile: dict[str, int] | None = None

    def function(self) -> Any:
        """The kernel itself, for which Triton must be installed."""
        return getattr(import_module(f"support.triton.{self.module}"), self.kernel)

    def call(self, rng: np.random.Generator, sizes: Sizes) -> Call:
        made = self.build(Draw(rng, self.element), sizes)
        return replace(made, arguments=made.arguments | (sizes.tile if self.tile is None else {}) | self.constants)

    @property
    def pattern(self) -> str:
        return "1:2" if self.element == "f32" else "2:4"


def exact(x: Array) -> Array:
    return x.astype(np.float64)


def times(*strides: str, k: int | None = None, turned: bool = False, **more: Any) -> Callable[[Draw, Sizes], Call]:
    """c = a·b with a sparse [M, K]. strides: the arguments named so. turned: b is [N, K]. more: of the call."""

    def build(draw: Draw, s: Sizes) -> Call:
        depth = k or s.k
        a, b = draw.pruned(s.m, depth), draw.dense(depth, s.n)
        known = {"am": depth, "ak": 1, "bk": s.n, "bn": depth if turned else 1, "cm": s.n, "cn": 1}
        arguments = {"a": a, "b": np.ascontiguousarray(b.T) if turned else b, "c": draw.dense(s.m, s.n, element="f16")}
        arguments |= {"M": s.m, "N": s.n, "K": depth} | {f"stride_{each}": known[each] for each in strides}
        return replace(Call(s.grid, arguments, ("a",), {"c": exact(a) @ exact(b)}), **more)

    return build


def layer(*strides: str, k: int | None = None, **more: Any) -> Callable[[Draw, Sizes], Call]:
    """y = x·wᵀ with w sparse [N, K]."""

    def build(draw: Draw, s: Sizes) -> Call:
        depth = k or s.k
        x, w = draw.dense(s.m, depth), draw.pruned(s.n, depth)
        known = {"x": depth, "w": depth, "y": s.n, "yn": 1}
        arguments = {"x": x, "w": w, "y": draw.dense(s.m, s.n, element="f16"), "M": s.m, "N": s.n, "K": depth}
        arguments |= {f"stride_{each}": known[each] for each in strides}
        return replace(Call(s.grid, arguments, ("w",), {"y": exact(x) @ exact(w).T}), **more)

    return build


def changed(
    build: Callable[[Draw, Sizes], Call], change: Callable[[Draw, Sizes, Call], Call]
) -> Callable[[Draw, Sizes], Call]:
    """A call with more arguments, or other results."""
    return lambda draw, s: change(draw, s, build(draw, s))


def without(call: Call, *names: str) -> Call:
    return replace(call, arguments={name: value for name, value in call.arguments.items() if name not in names})


def flat(draw: Draw, s: Sizes, call: Call) -> Call:
    return replace(call, grid=(s.flat,))


def _gelu(draw: Draw, s: Sizes, call: Call) -> Call:
    bias = draw.dense(s.n)
    y = call.expected["y"] + exact(bias)
    result = 0.5 * y * (1 + np.tanh(0.7978845608 * (y + 0.044715 * y**3)))
    return replace(call, arguments=call.arguments | {"bias": bias}, expected={"y": result})


def _scaled(draw: Draw, s: Sizes, call: Call) -> Call:
    by = {"scale_a": draw.dense(s.m, element="f32"), "scale_b": draw.dense(s.n, element="f32")}
    result = call.expected["c"] * by["scale_a"][:, None] * by["scale_b"]
    if draw.element == "s8":
        by["scale_a"], result = by["scale_a"] / 64, result / 64
    return replace(call, grid=(s.flat,), arguments=call.arguments | by, expected={"c": result})


def _descriptors(draw: Draw, s: Sizes, call: Call) -> Call:
    arguments = {name + "_tiles" if name in "abc" else name: value for name, value in call.arguments.items()}
    blocks = {"a_tiles": (s.BM, s.BK), "b_tiles": (s.BN, s.BK), "c_tiles": (s.BM, s.BN // 2)}
    return replace(
        call,
        grid=(3,),
        arguments=arguments,
        sparse=("a_tiles",),
        expected={"c_tiles": call.expected["c"]},
        blocks=blocks,
    )


def _silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def _gate_up(draw: Draw, s: Sizes, call: Call) -> Call:
    up, x = draw.pruned(s.n, s.k), exact(call.arguments["x"])
    result = _silu(call.expected["y"]) * (x @ exact(up).T)
    arguments = call.arguments | {"gate": call.arguments["w"], "up": up}
    return without(replace(call, arguments=arguments, sparse=("gate", "up"), expected={"y": result}), "w")


def _gate_up_packed(draw: Draw, s: Sizes, call: Call) -> Call:
    w = draw.pruned(2 * s.n, s.k)
    one, two = np.split(exact(call.arguments["x"]) @ exact(w).T, 2, axis=1)
    return replace(call, arguments=call.arguments | {"w": w}, expected={"y": _silu(one) * two})


def _scaled_and_added(draw: Draw, s: Sizes, call: Call) -> Call:
    c = draw.dense(s.m, s.n)
    arguments = call.arguments | {"c": c, "d": np.empty_like(c), "alpha": 0.5, "beta": 0.25, "stride_dm": s.n}
    return replace(call, arguments=arguments, expected={"d": 0.5 * call.expected["c"] + 0.25 * exact(c)})


def _row_maxima(draw: Draw, s: Sizes, call: Call) -> Call:
    expected = call.expected | {"highest": call.expected["c"].max(1)}
    arguments = call.arguments | {"highest": np.empty(s.m, np.float32)}
    return replace(call, grid=(s.grid[0],), arguments=arguments, expected=expected)


def _dequantized(draw: Draw, s: Sizes, call: Call) -> Call:
    b, scale = draw.dense(s.k, s.n, element="s8"), draw.dense(s.n, element="f32")
    operand = exact((b * scale).astype(np.float16))
    arguments = call.arguments | {"b": b, "scale": scale}
    return replace(call, arguments=arguments, expected={"c": exact(call.arguments["a"]) @ operand})


def _squared_relu(draw: Draw, s: Sizes, call: Call) -> Call:
    bias, residual = draw.dense(s.n), draw.dense(s.m, s.n)
    result = np.maximum(call.expected["y"] + exact(bias), 0) ** 2 + exact(residual)
    arguments = call.arguments | {"bias": bias, "residual": residual}
    return replace(call, grid=(s.flat,), arguments=arguments, expected={"y": result})


def _normalized(draw: Draw, s: Sizes, call: Call) -> Call:
    x, gain = call.arguments["x"], draw.dense(s.k)
    operand = exact((x.astype(np.float32) * gain.astype(np.float32)).astype(np.float16))
    result = operand @ exact(call.arguments["w"]).T / np.sqrt((exact(x) ** 2).mean(1, keepdims=True) + 1e-5)
    return replace(call, arguments=call.arguments | {"gain": gain, "eps": 1e-5}, expected={"y": result})


def _qkv(draw: Draw, s: Sizes, call: Call) -> Call:
    x, weights = call.arguments["x"], {each: draw.pruned(s.n, s.k) for each in ("wq", "wk", "wv")}
    outs = {name: np.empty((s.m, s.n), np.float16) for name in ("query", "key", "value")}
    expected = {out: exact(x) @ exact(w).T for out, w in zip(outs, weights.values(), strict=True)}
    return without(
        replace(call, arguments=call.arguments | weights | outs, sparse=tuple(weights), expected=expected), "w", "y"
    )


def _gathered(draw: Draw, s: Sizes, call: Call) -> Call:
    tokens = draw.rng.permutation(s.m).astype(np.int32)
    return replace(call, arguments=call.arguments | {"tokens": tokens}, expected={"y": call.expected["y"][tokens]})


def _two_layers(draw: Draw, s: Sizes) -> Call:
    x, w1, w2 = draw.dense(64, 40), draw.pruned(64, 64), draw.pruned(32, 64)
    hidden = exact(np.maximum(exact(w1) @ exact(x), 0).astype(np.float16))
    arguments = {"x": x, "w1": w1, "w2": w2, "y": np.empty((32, 40), np.float16), "TOKENS": 40}
    return Call((3,), arguments, ("w1", "w2"), {"y": exact(w2) @ hidden})


BOTH = (TILES, TILES)

WRITTEN = {
    "static_range": Written("static_range", times("am", "bk", "cm", k=256)),
    "gelu_layer": Written(
        "gelu_layer", changed(layer("x", "w", "y"), _gelu), constants={"EVEN_K": False, "HAS_BIAS": True}
    ),
    "gelu_layer_whole": Written(
        "gelu_layer", changed(layer("x", "w", "y", k=256), _gelu), constants={"EVEN_K": True, "HAS_BIAS": True}
    ),
    **{
        f"scaled_{element}": Written(
            "scaled_product",
            changed(times("am", "bn", "cm", k=272, turned=True), _scaled),
            constants={"SUM": "tl.int32" if element == "s8" else "tl.float32"},
            element=element,
        )
        for element in ("e4m3", "e5m2", "s8", "bf16")
    },
    "persistent_pointers": Written(
        "persistent_pointers",
        changed(times("am", "ak", "bk", "bn", "cm", "cn"), lambda draw, s, call: replace(call, grid=(3,))),
        constants={"GROUP": 2, "PROGRAMS": 3},
    ),
    "persistent_descriptors": Written(
        "persistent_descriptors",
        changed(times(turned=True), _descriptors),
        BOTH,
        {"GROUP": 2, "PROGRAMS": 3},
    ),
    "gate_up": Written("gate_up", changed(layer("x", "w", "y"), _gate_up), (PRODUCT, PRODUCT)),
    "gate_up_packed": Written("gate_up_packed", changed(layer("x", "w", "y"), _gate_up_packed), BOTH),
    "scaled_and_added": Written("scaled_and_added", changed(times("am", "bk", "cm"), _scaled_and_added)),
    "peeled_tail": Written("peeled_tail", times("am", "bk", "cm")),
    "swizzled": Written("swizzled", times("am", "bn", "cm", turned=True), constants={"GROUP": 2}),
    "row_maxima": Written("row_maxima", changed(times("am", "bk", "cm"), _row_maxima), BOTH, {"BN": 128}),
    "dequantized": Written("dequantized", changed(times("am", "bk", "cm"), _dequantized), BOTH),
    "wide_offsets": Written("wide_offsets", times("am", "bk", "cm")),
    "turned_layer": Written("turned_layer", layer("x", "w", "y", "yn")),
    "squared_relu": Written("squared_relu", changed(layer(), _squared_relu)),
    "normalized": Written("normalized", changed(layer(), _normalized), BOTH),
    "constant_k": Written("constant_k", times("am", k=256)),
    "qkv": Written("qkv", changed(layer(), _qkv), BOTH),
    "gathered_rows": Written("gathered_rows", changed(layer(), _gathered), BOTH),
    "two_layers": Written(
        "two_layers", _two_layers, BOTH, constants={"INPUTS": 64, "HIDDEN": 64, "OUTPUTS": 32, "BT": 16}, tile={}
    ),
}
