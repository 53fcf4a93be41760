"""Evidence 3: tensors beside a tensor. Scales and packed forms of quantized weights, and biases beside weights.

Parts of one weight share the start of their names: `q.weight` and `q.weight_scale`, `q.qweight` and `q.qzeros`,
`experts.up_blocks` and `experts.up_scales`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from louver.formats.schema import DenseForm, Form
from louver.models.evidence.config import Config
from louver.models.evidence.found import Found, is_float, is_fp8, module_of, words
from louver.models.roles import Evidence, Role, Scale

_SCALES = frozenset(("scale", "scales", "scb", "absmax", "zero", "zeros", "qzeros", "amax", "quant"))
"""Words in the last part of the names of what quantization stores beside a weight."""

_OTHERS = frozenset(("g", "idx"))
"""Words in names of what else quantization stores: the order of columns."""

_FACTORS = frozenset(("inv", "scale", ""))
"""Words that the name of a weight's scales adds to the weight's own name."""


def find(forms: Mapping[str, Form]) -> dict[str, Found]:
    """Roles of quantized weights, of their parts, and of biases."""
    found: dict[str, Found] = {}
    for names in _modules(forms).values():
        found |= _quantized(names, forms)
        found |= _biases(names, forms)
    return found


def scales(forms: Mapping[str, Form], config: Config) -> dict[str, Scale | str]:
    """The scales of each fp8 weight that has some; a text that says why they cannot be used."""
    found: dict[str, Scale | str] = {}
    for names in _modules(forms).values():
        for name in names:
            scale = _scale(name, names, forms, config) if is_fp8_weight(name, forms) else None
            if scale is not None:
                found[name] = scale
    return found


def _scale(name: str, beside: Sequence[str], forms: Mapping[str, Form], config: Config) -> Scale | str | None:
    shape, last = forms[name].shape, name.rpartition(".")[2]
    starts = (f"{name}_", f"{name}.", f"{module_of(name)}.scale_{last}")
    parts = [other for other in beside if other.startswith(starts)]
    parts = [other for other in parts if words(other.rpartition(".")[2]) & (_SCALES | _OTHERS)]
    if not parts:
        return None
    if len(parts) > 1 or not words(parts[0].rpartition(".")[2].replace(last, "")) <= _FACTORS:
        return f"a quantized weight whose numbers are more than its elements times one scale: {', '.join(parts)}"
    block = _block(shape, forms[parts[0]].shape, config.block)
    if block is None or not is_scale(forms[parts[0]]):
        return f"a quantized weight of shape {list(shape)} whose scales {parts[0]} of shape {list(forms[parts[0]].shape)} do not fit it"
    return Scale(parts[0], block)


def is_scale(form: Form) -> bool:
    """Whether the form can be that of scales: numbers, or exponents of two."""
    return is_float(form) or (isinstance(form, DenseForm) and form.dtype in ("F8_E8M0", "U8"))


def _modules(forms: Iterable[str]) -> dict[str, list[str]]:
    modules: defaultdict[str, list[str]] = defaultdict(list)
    for name in forms:
        modules[module_of(name)].append(name)
    # bitsandbytes and GGUF-like names hang parts below the weight: `q.weight.absmax` belongs to the module `q`.
    for module in [module for module in modules if module in forms]:
        modules[module_of(module)] += modules.pop(module)
    return modules


def _quantized(names: Sequence[str], forms: Mapping[str, Form]) -> dict[str, Found]:
    """Parts of quantized weights among the tensors of a module."""
    factors = [name for name in names if words(name.rpartition(".")[2]) & _SCALES and not is_fp8_weight(name, forms)]
    codes = [name for name in names if not is_float(forms[name]) and isinstance(forms[name], DenseForm)]
    codes = [name for name in codes if name not in factors and math.prod(forms[name].shape) > 1]
    if not factors or not codes:
        return {}
    found: dict[str, Found] = {}
    for name in factors:
        found[name] = Found(Role.SCALE, Evidence.SIBLINGS, f"scales or zero points of {codes[0]}")
    for name in codes:
        if not is_fp8_weight(name, forms):
            found[name] = Found(
                Role.PACKED, Evidence.SIBLINGS, f"a packed weight, or a part of one, beside {factors[0]}"
            )
    return found


def is_fp8_weight(name: str, forms: Mapping[str, Form]) -> bool:
    """Whether the tensor is an fp8 weight by its type and axes. Scales in fp8 have `scale` in their names."""
    return is_fp8(forms[name]) and len(forms[name].shape) >= 2 and not words(name.rpartition(".")[2]) & _SCALES


def _biases(names: Sequence[str], forms: Mapping[str, Form]) -> dict[str, Found]:
    """Tensors named as a bias, beside a tensor of one axis more whose output size they have."""
    found: dict[str, Found] = {}
    for name in names:
        last = name.rpartition(".")[2]
        if not is_float(forms[name]) or "bias" not in words(last):
            continue
        shape = forms[name].shape
        stem = last.replace("_bias", "").replace("bias", "weight")
        for other in names:
            own = forms[other].shape
            if other.rpartition(".")[2].startswith(stem) and len(own) > len(shape) and set(shape) <= set(own):
                found[name] = Found(Role.BIAS, Evidence.SIBLINGS, f"a bias beside {other}")
    return found


def _block(shape: Sequence[int], scales: Sequence[int], announced: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Elements of a weight that share a scale along each axis. None if the shapes do not determine them.

    announced: the configuration's block along the last axes. Without it an axis has one scale, or one for each element.
    Fewer axes of scales stand for the first ones.
    """
    if math.prod(scales) == 1:
        return tuple(max(size, 1) for size in shape)
    if len(scales) > len(shape):
        return None
    counts = (*scales, *(1 for _ in range(len(shape) - len(scales))))
    told = (*(1 for _ in range(len(shape) - len(announced or ()))), *(announced or ()))[-len(shape) :]
    if announced and all(-(-size // part) == count for size, part, count in zip(shape, told, counts, strict=True)):
        return told
    if any(count not in (1, size) for size, count in zip(shape, counts, strict=True)):
        return None
    return tuple(1 if count == size else size for size, count in zip(shape, counts, strict=True))
