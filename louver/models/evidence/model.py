"""Evidence 1: the model itself. Transformers builds it from `config.json` at full size without memory for weights, loads
the checkpoint's names and shapes into it by its own rules of conversion, and runs it once with fake tensors.

Nothing is downloaded, no code of the checkpoint runs, no file is written, and torch's random state stays as it is. Any
failure is a note: evidence 2 to 4 decides then.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from louver.formats.schema import DenseForm, Form
from louver.models.evidence.config import NAME, Config
from louver.models.evidence.found import Found, is_float, is_fp8, words
from louver.models.roles import Evidence, Role

_FEW: Final = 256
"""Layers or experts that are never too many."""

_LONGEST: Final = 200
"""Most characters of another library's message in a note."""


@dataclass(frozen=True, slots=True)
class ModelEvidence:
    """Roles by name, names of the same parameter, and notes. partial: tensors whose module ran, but not the model."""

    found: Mapping[str, Found]
    ties: tuple[tuple[str, ...], ...] = ()
    partial: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def find(forms: Mapping[str, Form], config: Config) -> ModelEvidence:
    """What the model does with each tensor that it reads."""
    if config.path is None:
        return ModelEvidence({})
    if not all(importlib.util.find_spec(name) for name in ("torch", "transformers")):
        return ModelEvidence({}, notes=("the model was not run: it needs the packages torch and transformers",))
    if not isinstance(config.fields.get("model_type"), str):
        # Without the imports, which take seconds.
        return ModelEvidence({}, notes=(f"the model was not run: {NAME} names no architecture in model_type",))
    larger = _larger(forms, config)
    if larger is not None:
        return ModelEvidence({}, notes=(f"the model was not run: {larger}",))
    shapes = {name: tuple(form.shape) for name, form in forms.items() if _is_parameter(form)}
    path, fields = config.path, config.fields
    return _evidence(lambda running: running.run(path, fields, shapes))


def find_live(model: Any) -> ModelEvidence:
    """What a model of Transformers in memory does with each of its parameters, under the first name of each."""
    return _evidence(lambda running: running.run_live(model))


def _evidence(run: Callable[[Any], Any]) -> ModelEvidence:
    """What a run says. run: gets the module `running`, which imports torch and Transformers."""
    try:
        ran = run(importlib.import_module("louver.models.evidence.running"))
    except Exception as error:  # Other libraries raise anything for a model that they cannot build.
        return ModelEvidence({}, notes=(f"the model was not run: {_text(error)}",))
    found = {name: _found(name, len(ran.shapes[name]), ran) for name in ran.read}
    return ModelEvidence(found, ran.ties, ran.partial, ran.notes)


def _larger(forms: Mapping[str, Form], config: Config) -> str | None:
    """Why the configuration describes a model of more parts than the checkpoint can hold; None if it does not."""
    most = max(len(forms), *(max(form.shape, default=1) for form in forms.values()), _FEW)
    for name, count in config.repeats.items():
        limit = most if "expert" in name else max(len(forms), _FEW)
        if count > limit:
            return f"{NAME} says {name} = {count}, but the checkpoint has {len(forms)} tensors"
    return None


def _is_parameter(form: Form) -> bool:
    return is_float(form) or is_fp8(form) or not isinstance(form, DenseForm)


def _found(name: str, axes: int, run: Any) -> Found:
    """The role that follows from the uses of a tensor."""
    uses = run.watch.uses[name]
    if "lookup" in uses.kinds:
        if "bias" in words(name.rpartition(".")[2]):
            return _model(Role.BIAS, "experts' biases, chosen by expert")
        return _model(Role.EMBEDDING, "the model looks up its rows")
    if uses.convolved:
        return _model(Role.CONVOLUTION, "the model convolves with it", min(min(axes) for axes in uses.convolved))
    if uses.contracted:
        return _product(uses, name in run.convolutions)
    if "norm" in uses.kinds or (uses.kinds & {"factor", "bias"} and axes == 1):
        role = Role.BIAS if uses.kinds == {"bias"} else Role.NORM
        return _model(role, f"a {role} of the model: no product contracts it")
    return _model(Role.STATE, "the model reads it, but no product contracts it")


def _product(uses: Any, convolution: bool) -> Found:
    axes = {max(each) for each in uses.contracted}
    if convolution:
        return _model(Role.CONVOLUTION, "a convolution that the model runs as a product", 1)
    if len(axes) > 1:
        return _model(Role.UNKNOWN, f"products of the model contract its axes {sorted(axes)}, not one")
    axis = axes.pop()
    if uses.router:
        return _model(Role.ROUTER, "a product of the model whose result chooses or gates", axis)
    if uses.head:
        return _model(Role.HEAD, "the product of the model that gives its scores", axis)
    return _model(Role.WEIGHT, f"a product of the model contracts its axis {axis}", axis)


def _model(role: Role, reason: str, axis: int | None = None) -> Found:
    return Found(role, Evidence.MODEL, reason, axis)


def _text(error: BaseException) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
