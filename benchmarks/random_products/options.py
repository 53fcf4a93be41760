"""Options of a product, one entry each: when it applies, how it is drawn, its effect on call and expectation.

An option takes part as soon as the library's calls have its keywords. Another one is an entry in `OPTIONS`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np

import louver
from louver.formats.pattern import Pattern
from louver.isa.wgmma import FP8, INTEGER
from louver.library import request
from random_products.expected import ACTIVATIONS, Expected

Rng = np.random.Generator

ADDENDS = ("f16", "bf16", "f32")
"""Element types of what is added in f32."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The common properties of a group of cases: product, element types of sparse and dense operand and of the output, pattern."""

    kind: str
    a: str
    b: str
    out: str
    pattern: str


@dataclass(slots=True)
class Draft:
    """A case in the making.

    rng: its own. m, n: of the output as [M, N]. exact: data are small integers, factors powers of two, so that every step
    is exact. result: what the call writes. batch, weights: how many entries N, or M with its weights, is divided into; 0: none.
    place: brings a NumPy array [M, 1], [1, N], [M, N] or a vector to the device: (array for the call, float64
    for the expectation). arguments: keywords of the call. expected: the sum so far.
    """

    rng: Rng
    setting: Setting
    m: int
    n: int
    exact: bool
    place: Callable[[Any, str], tuple[Any, Any]]
    expected: Expected
    result: Any
    batch: int = 0
    weights: int = 0
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])

    def divided(self, array: Any) -> Any:
        """An array like the output, [M, N] or [N, M], as a view with the entries of a batch."""
        axis = 0 if (self.setting.kind == "linear") == (self.weights == 0) else 1
        if self.batch and axis == 0:
            # Tokens of the entries by turns.
            return array.unflatten(0, (-1, self.batch)).movedim(1, 0)
        return array.unflatten(axis, (self.batch or self.weights, -1)).movedim(axis, 0)

    def like_result(self, array: Any) -> Any:
        """An array [M, N] or [N, M] in the shape of the call's output."""
        return self.divided(array) if self.batch or self.weights else array.reshape(self.result.shape)

    def number(self) -> float:
        """A factor, an f32."""
        if self.exact:
            return float(self.rng.choice([0.5, 1.0, 2.0, -1.0]))
        return float(np.float32(self.rng.choice([-1, 1]) * 2 ** self.rng.uniform(-2, 2)))

    def factors(self, count: int) -> Any:
        """f32 factors [count]."""
        return np.array([self.number() for _ in range(count)], np.float32)

    def addends(self, *shape: int) -> Any:
        """f32 numbers to add."""
        if self.exact:
            return self.rng.integers(-4, 5, shape).astype(np.float32)
        return self.rng.standard_normal(shape, np.float32)


Apply = Callable[[Draft, str], None]


@dataclass(frozen=True, slots=True)
class Option:
    """One option. keywords: of `louver.linear` and `louver.matmul` that it needs. share: of the groups that have it.

    forms: those that it takes in a setting, each a kernel of its own; none where it does not go. apply: draws it for one case.
    floating: turns sums of integers into f32. rounds: forms whose result is not exact even for integers. without: options
    that do not go with it. views: the call takes views with the entries of a batch, of the same numbers.
    """

    name: str
    keywords: tuple[str, ...]
    share: float
    forms: Callable[[Setting], tuple[str, ...]]
    apply: Apply
    floating: bool = True
    rounds: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    views: bool = False


def available(option: Option, kind: str) -> bool:
    """Whether the library and its call `kind` have what the option needs."""
    known = inspect.signature(getattr(louver, kind)).parameters
    return all(word in known for word in option.keywords) and all(name in louver.__all__ for name in option.names)


def _batch(draft: Draft, form: str) -> None:
    draft.batch = entries(draft.rng, draft.n)
    draft.result = draft.divided(draft.result)


def _weights(draft: Draft, form: str) -> None:
    draft.result = draft.divided(draft.result)


def entries(rng: Rng, size: int) -> int:
    """A number of entries that divides the size, 1 if it must be."""
    divisors = [count for count in range(2, 9) if size % count == 0]
    return int(rng.choice(divisors)) if divisors else 1


def _scale(draft: Draft, form: str) -> None:
    _factor(draft, form, "scale", draft.m, rows=True)


def _dense_scale(draft: Draft, form: str) -> None:
    _factor(draft, form, "dense_scale", draft.n, rows=False)


def _out_scale(draft: Draft, form: str) -> None:
    _factor(draft, form, "out_scale", 1, rows=True)


def _factor(draft: Draft, form: str, name: str, count: int, *, rows: bool) -> None:
    if form == "number":
        value = draft.number()
        draft.arguments[name] = value
        draft.expected.multiply(value)
        return
    given, wide = draft.place(draft.factors(1 if form == "tensor" else count), "f32")
    draft.arguments[name] = given
    draft.expected.multiply(wide[:, None] if rows else wide[None, :])


def _alpha(draft: Draft, form: str) -> None:
    _factor(draft, form, "alpha", 1, rows=True)


def _bias(draft: Draft, form: str) -> None:
    given, wide = draft.place(draft.addends(draft.m), form)
    draft.arguments["bias"] = given
    draft.expected.add(wide[:, None])


def _integer_bias(draft: Draft, form: str) -> None:
    given, wide = draft.place(draft.rng.integers(-1000, 1000, draft.m), form)
    draft.arguments["bias"] = given
    draft.expected.value = draft.expected.value + wide[:, None]


def _dense_bias(draft: Draft, form: str) -> None:
    given, wide = draft.place(draft.addends(draft.n), form)
    draft.arguments["dense_bias"] = given
    draft.expected.add(wide[None, :])


def _c(draft: Draft, form: str) -> None:
    shape = (draft.n, draft.m) if draft.setting.kind == "linear" else (draft.m, draft.n)
    given, wide = draft.place(draft.addends(*shape), form.removesuffix(" in place"))
    beta = draft.number()
    if form.endswith("in place"):
        draft.result.copy_(draft.like_result(given))
    draft.arguments |= {"c": draft.result if form.endswith("in place") else draft.like_result(given), "beta": beta}
    draft.expected.add(beta * (wide.T if draft.setting.kind == "linear" else wide))


def _activation(draft: Draft, form: str) -> None:
    draft.arguments["activation"] = form
    draft.expected.activate(form)


def _gated(draft: Draft, form: str) -> None:
    draft.arguments["activation"] = form
    draft.expected.gate(form)


def _accumulate(draft: Draft, form: str) -> None:
    draft.arguments["accumulate"] = form


def _floats(setting: Setting) -> bool:
    return setting.out != "s32"


def _where_float(*forms: str) -> Callable[[Setting], tuple[str, ...]]:
    return lambda setting: forms if _floats(setting) else ()


def _c_forms(setting: Setting) -> tuple[str, ...]:
    in_place = (f"{setting.out} in place",) if setting.out in ADDENDS else ()
    return (*ADDENDS, *in_place) if _floats(setting) else ()


def _gated_forms(setting: Setting) -> tuple[str, ...]:
    """Rows of a pair are of two weights by turns, so vectors do not go with it."""
    return tuple(ACTIVATIONS) if _floats(setting) and Pattern.parse(setting.pattern).length == 1 else ()


MODES: Mapping[str, tuple[str, ...]] = {"f16": ("f32", "f16"), "bf16": ("f32",), "fp8": ("fast", "f16", "promoted")}
"""Ways to accumulate, by operand, of which those take part that the library has."""


def _accumulate_forms(setting: Setting) -> tuple[str, ...]:
    known = get_args(request.Accumulate)
    return tuple(mode for mode in MODES.get("fp8" if setting.a in FP8 else setting.a, ()) if mode in known)


def _always(*forms: str) -> Callable[[Setting], tuple[str, ...]]:
    return lambda setting: forms


def _of_integers(setting: Setting) -> bool:
    return setting.a in INTEGER


CURVES = tuple(name for name in ACTIVATIONS if name != "relu")

OPTIONS: tuple[Option, ...] = (
    # Vectors along the axis that is divided would have to be, too: a batch shares its vectors.
    Option("batch", (), 0.2, _always("entries"), _batch, False, without=("dense_scale", "dense_bias"), views=True),
    Option(
        "weights",
        (),
        0.1,
        _always("entries"),
        _weights,
        False,
        without=("batch", "scale", "bias", "integer bias", "gated"),
        views=True,
    ),
    Option(
        "accumulate",
        ("accumulate",),
        0.2,
        _accumulate_forms,
        _accumulate,
        floating=False,
        rounds=("f16", "fast", "promoted"),
    ),
    Option("scale", ("scale",), 0.25, _where_float("number", "tensor", "row"), _scale, without=("gated",)),
    Option("dense_scale", ("dense_scale",), 0.25, _where_float("tensor", "column"), _dense_scale),
    Option("alpha", ("alpha",), 0.2, _where_float("number"), _alpha),
    Option(
        "integer bias", ("bias",), 0.3, lambda s: ("s32",) if _of_integers(s) else (), _integer_bias, floating=False
    ),
    Option("bias", ("bias",), 0.3, _where_float(*ADDENDS), _bias, floating=False, without=("gated", "integer bias")),
    Option("dense_bias", ("dense_bias",), 0.2, _where_float(*ADDENDS), _dense_bias),
    Option("c", ("c", "beta"), 0.25, _c_forms, _c, without=("gated",)),
    Option("gated", ("activation",), 0.15, _gated_forms, _gated, rounds=CURVES, names=("gated",)),
    Option(
        "activation", ("activation",), 0.3, _where_float(*ACTIVATIONS), _activation, rounds=CURVES, without=("gated",)
    ),
    Option("out_scale", ("out_scale",), 0.2, _where_float("number", "tensor"), _out_scale),
)
"""In the order in which a product applies them."""


def draw_options(rng: Rng, setting: Setting) -> dict[str, str]:
    """Options of a group and their forms, at most 4, in the order of `OPTIONS`; half of the groups have none or one."""
    wanted = [option for option in OPTIONS if available(option, setting.kind) and rng.random() < option.share]
    if rng.random() < 0.5:
        wanted = [wanted[int(rng.integers(len(wanted)))]] if wanted else []
    found: dict[str, str] = {}
    # The biases that integers take depend on the other options.
    for option in sorted(wanted, key=lambda option: not option.floating):
        forms = option.forms(setting)
        clash = any(name in option.without or option.name in BY_NAME[name].without for name in found)
        if forms and not clash and len(found) < 4 and _goes(option, setting, found):
            found[option.name] = str(rng.choice(forms))
    return {option.name: found[option.name] for option in OPTIONS if option.name in found}


def _goes(option: Option, setting: Setting, found: Mapping[str, str]) -> bool:
    """Sums of integers take biases of their own type, or of floating types where some step has made them f32."""
    if not _of_integers(setting):
        return True
    floating = any(BY_NAME[name].floating for name in found)
    return {"bias": floating, "integer bias": not floating}.get(option.name, True)


BY_NAME: Mapping[str, Option] = {option.name: option for option in OPTIONS}


def is_rounding(forms: Mapping[str, str]) -> bool:
    """Whether some option's result is not exact even for small integers."""
    return any(form in BY_NAME[name].rounds for name, form in forms.items())


def has_views(forms: Mapping[str, str]) -> bool:
    """Whether some option divides the arrays into the entries of a batch."""
    return any(BY_NAME[name].views for name in forms)


def is_floating(forms: Mapping[str, str]) -> bool:
    """Whether some option makes sums of integers f32."""
    return any(BY_NAME[name].floating for name in forms)
