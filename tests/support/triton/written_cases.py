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

from louver.measure.forms import Array, Call, Draw, Sizes, wide

KEPT = Path(__file__).resolve().parents[2] / "golden" / "written"

PRODUCT, TILES = "product", "register tiles"


LARGE = Sizes(150, 96, 264, 128, 64, 64)
"""Tiles that products take; tails along all three."""
SMALL = Sizes(75, 48, 200, 32, 32, 64)
"""Tiles below those that products take."""


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
        tile = sizes.tile if self.tile is None else {}
        return replace(made, arguments={**made.arguments, **tile, **self.constants}, grid=made.grid or sizes.grid)


def times(*strides: str, k: int | None = None, turned: bool = False, **more: Any) -> Callable[[Draw, Sizes], Call]:
    """c = a·b with a sparse [M, K]. strides: the arguments named so. turned: b is [N, K]. more: of the call."""

    def build(draw: Draw, s: Sizes) -> Call:
        depth = k or s.k
        a, b = draw.pruned(s.m, depth), draw.dense(depth, s.n)
        known = {"am": depth, "ak": 1, "bk": s.n, "bn": depth if turned else 1, "cm": s.n, "cn": 1}
        arguments = {"a": a, "b": np.ascontiguousarray(b.T) if turned else b, "c": draw.dense(s.m, s.n, element="f16")}
        arguments |= {"M": s.m, "N": s.n, "K": depth} | {f"stride_{each}": known[each] for each in strides}
        return replace(Call(arguments, lambda: {"c": wide(a) @ wide(b)}, ("c",), ("a",)), **more)

    return build


def layer(*strides: str, k: int | None = None, **more: Any) -> Callable[[Draw, Sizes], Call]:
    """y = x·wᵀ with w sparse [N, K]."""

    def build(draw: Draw, s: Sizes) -> Call:
        depth = k or s.k
        x, w = draw.dense(s.m, depth), draw.pruned(s.n, depth)
        known = {"x": depth, "w": depth, "y": s.n, "yn": 1}
        arguments = {"x": x, "w": w, "y": draw.dense(s.m, s.n, element="f16"), "M": s.m, "N": s.n, "K": depth}
        arguments |= {f"stride_{each}": known[each] for each in strides}
        return replace(Call(arguments, lambda: {"y": wide(x) @ wide(w).T}), **more)

    return build


def changed(
    build: Callable[[Draw, Sizes], Call], change: Callable[[Draw, Sizes, Call], Call]
) -> Callable[[Draw, Sizes], Call]:
    """A call with more arguments, or other results."""
    return lambda draw, s: change(draw, s, build(draw, s))


def without(call: Call, *names: str) -> dict[str, Any]:
    """The call's arguments but these."""
    return {name: value for name, value in call.arguments.items() if name not in names}


def flat(draw: Draw, s: Sizes, call: Call) -> Call:
    return replace(call, grid=(s.flat,))


def _gelu(draw: Draw, s: Sizes, call: Call) -> Call:
    bias = draw.dense(s.n)
    y = call.expected()["y"] + wide(bias)
    result = 0.5 * y * (1 + np.tanh(0.7978845608 * (y + 0.044715 * y**3)))
    return replace(call, arguments=call.arguments | {"bias": bias}, expected=lambda: {"y": result})


def _scaled(draw: Draw, s: Sizes, call: Call) -> Call:
    by = {"scale_a": draw.dense(s.m, element="f32"), "scale_b": draw.dense(s.n, element="f32")}
    result = call.expected()["c"] * by["scale_a"][:, None] * by["scale_b"]
    if draw.element == "s8":
        by["scale_a"], result = by["scale_a"] / 64, result / 64
    return replace(call, grid=(s.flat,), arguments=call.arguments | by, expected=lambda: {"c": result})


def _descriptors(draw: Draw, s: Sizes, call: Call) -> Call:
    arguments = {name + "_tiles" if name in "abc" else name: value for name, value in call.arguments.items()}
    blocks = {"a_tiles": (s.BM, s.BK), "b_tiles": (s.BN, s.BK), "c_tiles": (s.BM, s.BN // 2)}
    return replace(
        call,
        grid=(3,),
        arguments=arguments,
        sparse=("a_tiles",),
        outputs=("c_tiles",),
        expected=lambda: {"c_tiles": call.expected()["c"]},
        blocks=blocks,
    )


def _silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def _gate_up(draw: Draw, s: Sizes, call: Call) -> Call:
    up, x = draw.pruned(s.n, s.k), wide(call.arguments["x"])
    result = _silu(call.expected()["y"]) * (x @ wide(up).T)
    arguments = without(call, "w") | {"gate": call.arguments["w"], "up": up}
    return replace(call, arguments=arguments, sparse=("gate", "up"), expected=lambda: {"y": result})


def _gate_up_packed(draw: Draw, s: Sizes, call: Call) -> Call:
    w = draw.pruned(2 * s.n, s.k)
    one, two = np.split(wide(call.arguments["x"]) @ wide(w).T, 2, axis=1)
    return replace(call, arguments=call.arguments | {"w": w}, expected=lambda: {"y": _silu(one) * two})


def _scaled_and_added(draw: Draw, s: Sizes, call: Call) -> Call:
    c = draw.dense(s.m, s.n)
    arguments = call.arguments | {"c": c, "d": np.empty_like(c), "alpha": 0.5, "beta": 0.25, "stride_dm": s.n}
    result = 0.5 * call.expected()["c"] + 0.25 * wide(c)
    return replace(call, arguments=arguments, outputs=("d",), expected=lambda: {"d": result})


def _row_maxima(draw: Draw, s: Sizes, call: Call) -> Call:
    found = call.expected()
    expected = found | {"highest": found["c"].max(1)}
    arguments = call.arguments | {"highest": np.empty(s.m, np.float32)}
    return replace(call, grid=(s.grid[0],), arguments=arguments, outputs=tuple(expected), expected=lambda: expected)


def _dequantized(draw: Draw, s: Sizes, call: Call) -> Call:
    b, scale = draw.dense(s.k, s.n, element="s8"), draw.dense(s.n, element="f32")
    operand = wide((b * scale).astype(np.float16))
    arguments = call.arguments | {"b": b, "scale": scale}
    return replace(call, arguments=arguments, expected=lambda: {"c": wide(call.arguments["a"]) @ operand})


def _squared_relu(draw: Draw, s: Sizes, call: Call) -> Call:
    bias, residual = draw.dense(s.n), draw.dense(s.m, s.n)
    result = np.maximum(call.expected()["y"] + wide(bias), 0) ** 2 + wide(residual)
    arguments = call.arguments | {"bias": bias, "residual": residual}
    return replace(call, grid=(s.flat,), arguments=arguments, expected=lambda: {"y": result})


def _normalized(draw: Draw, s: Sizes, call: Call) -> Call:
    x, gain = call.arguments["x"], draw.dense(s.k)
    operand = wide((x.astype(np.float32) * gain.astype(np.float32)).astype(np.float16))
    result = operand @ wide(call.arguments["w"]).T / np.sqrt((wide(x) ** 2).mean(1, keepdims=True) + 1e-5)
    return replace(call, arguments=call.arguments | {"gain": gain, "eps": 1e-5}, expected=lambda: {"y": result})


def _qkv(draw: Draw, s: Sizes, call: Call) -> Call:
    x, weights = call.arguments["x"], {each: draw.pruned(s.n, s.k) for each in ("wq", "wk", "wv")}
    outs = {name: np.empty((s.m, s.n), np.float16) for name in ("query", "key", "value")}
    expected = {out: wide(x) @ wide(w).T for out, w in zip(outs, weights.values(), strict=True)}
    more = without(call, "w", "y") | weights | outs
    return replace(call, arguments=more, sparse=tuple(weights), outputs=tuple(outs), expected=lambda: expected)


def _gathered(draw: Draw, s: Sizes, call: Call) -> Call:
    tokens = draw.rng.permutation(s.m).astype(np.int32)
    return replace(
        call, arguments=call.arguments | {"tokens": tokens}, expected=lambda: {"y": call.expected()["y"][tokens]}
    )


def _two_layers(draw: Draw, s: Sizes) -> Call:
    x, w1, w2 = draw.dense(64, 40), draw.pruned(64, 64), draw.pruned(32, 64)
    hidden = wide(np.maximum(wide(w1) @ wide(x), 0).astype(np.float16))
    arguments = {"x": x, "w1": w1, "w2": w2, "y": np.empty((32, 40), np.float16), "TOKENS": 40}
    return Call(arguments, lambda: {"y": wide(w2) @ hidden}, sparse=("w1", "w2"), grid=(3,))


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
