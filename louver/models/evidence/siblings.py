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

_FACTORS = frozenset(("inv", "scale"))
"""Words that the name of a weight's scales adds to the weight's own name."""


def find(forms: Mapping[str, Form]) -> dict[str, Found]:
    """Roles of quantized weights, of their parts, and of biases."""
    found: dict[str, Found] = {}
    for names in _modules(forms).values():
        found |= _quantized(names, forms)
        found |= _biases(names, forms)
    return found


def scale_of(name: str, forms: Mapping[str, Form], config: Config) -> Scale | str | None:
    """The scales of an fp8 weight; None if it has none; a text that says why they cannot be used."""
    shape = forms[name].shape
    found = [
        other
        for other, form in forms.items()
        if other.startswith((f"{name}_", f"{name}.")) and is_scale(form) and words(other[len(name) + 1 :]) <= _FACTORS
    ]
    swapped = f"{module_of(name)}.scale_{name.rpartition('.')[2]}"
    found += [swapped] if swapped in forms and is_scale(forms[swapped]) else []
    if not found:
        return None
    if len(found) > 1:
        return f"several tensors may be its scales: {', '.join(found)}"
    block = _block(shape, forms[found[0]].shape, config.block)
    if block is None:
        return f"its scales {found[0]} of shape {list(forms[found[0]].shape)} do not fit its shape {list(shape)}"
    return Scale(found[0], block)


def is_scale(form: Form) -> bool:
    """Whether the form can be that of scales: numbers, or powers of two."""
    return is_float(form) or (isinstance(form, DenseForm) and form.dtype == "F8_E8M0")


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

    announced: the configuration's block along the last axes. Fewer axes of scales stand for the first ones.
    """
    if math.prod(scales) == 1:
        return tuple(max(size, 1) for size in shape)
    if len(scales) > len(shape):
        return None
    counts = (*scales, *(1 for _ in range(len(shape) - len(scales))))
    told = (*(0 for _ in range(len(shape) - len(announced or ()))), *(announced or ()))
    block = [_part(size, count, part) for size, count, part in zip(shape, counts, told, strict=True)]
    return None if 0 in block else tuple(block)


def _part(size: int, count: int, announced: int) -> int:
    """Elements along an axis that share one of `count` scales; 0 if there is no such number."""
    powers = [1 << bit for bit in range(size.bit_length())]
    exact = [size // count] if count and size % count == 0 else []
    fitting = [part for part in (announced, *powers, *exact) if part and -(-size // part) == count]
    if count == 1:
        return max(size, 1)
    return 1 if count == size else fitting[0] if fitting else 0
