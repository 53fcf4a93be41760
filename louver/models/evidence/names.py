"""Evidence 4: a tensor's name and shape, and those of the whole checkpoint. In doubt a tensor is unknown.

Only the words of names are read, and the structure of names: a part that is a number is a block's, `experts` holds
experts, the last part is the parameter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from louver.formats.schema import BitmaskForm, Form, SparseForm
from louver.models.evidence.config import Config
from louver.models.evidence.found import Found, in_block, is_float, is_fp8, module_of, words
from louver.models.roles import Evidence, Role

_TABLES = ("embed", "position", "relative", "codebook", "lookup", "wte", "wpe")
"""Starts of words in names of tables whose rows are looked up or added."""

_WHOLE_TABLES = frozenset(("emb", "pos", "rel", "token", "tokens"))
"""Whole words in such names."""

_PROJECTIONS = ("proj", "dense", "linear", "fc", "mlp", "attn", "attention", "project", "projection", "projector")
"""Starts of words in names of products."""

_NORMS = ("norm", "ln", "layernorm", "rmsnorm", "batchnorm", "bn")
_HEADS = ("head", "classifier", "score", "logits")
_ROUTERS = ("gate", "router", "switch")


@dataclass(frozen=True, slots=True)
class Names:
    """A checkpoint's forms by name, with what follows from all of them. transposed: weights are stored [in, out]."""

    forms: Mapping[str, Form]
    config: Config
    experts: Mapping[str, int]
    transposed: bool | None

    @classmethod
    def of(cls, forms: Mapping[str, Form], config: Config) -> Names:
        return cls(forms, config, _expert_counts(forms), _stored_transposed(forms))


def find(forms: Mapping[str, Form], config: Config) -> dict[str, Found]:
    """A role for every tensor."""
    names = Names.of(forms, config)
    return {name: _role(name, form, names) for name, form in forms.items()}


def _role(name: str, form: Form, names: Names) -> Found:
    last = name.rpartition(".")[2]
    vectors = len(form.shape) < 2
    if _starts(name, _NORMS) and vectors:
        return _found(Role.NORM, "a vector of a norm, by its name")
    if "bias" in words(last):
        return _found(Role.BIAS, "a bias, by its name")
    if isinstance(form, SparseForm):
        return _found(Role.WEIGHT, "it is stored sparse", form.axis)
    if isinstance(form, BitmaskForm):
        return _found(Role.WEIGHT, "it is stored sparse", 1)
    if not is_float(form) and not is_fp8(form):
        return _found(Role.STATE, "its elements are not floating-point numbers")
    if vectors:
        return _found(Role.STATE, "a vector or a number, which no product contracts")
    if 0 in form.shape:
        return _found(Role.STATE, "it has no elements")
    stacked = _stacked_experts(name, form, names)
    if stacked is not None:
        return stacked
    if last != "weight" and not (last.endswith("_weight") and _bias_name(name) in names.forms):
        return _found(Role.UNKNOWN, f"a parameter named {last!r}: what reads it is not known")
    if len(form.shape) == 2:
        return _matrix(name, form, names)
    if last != "weight":
        return _found(
            Role.UNKNOWN, f"a parameter named {last!r} with {len(form.shape)} axes: what reads it is not known"
        )
    return _convolution(form)


def _matrix(name: str, form: Form, names: Names) -> Found:
    """The role of a parameter `weight` with two axes."""
    module = module_of(name)
    rows = form.shape[0]
    last = next((part for part in reversed(module.split(".")) if not part.isdecimal()), "")
    if (_starts(last, _TABLES) or words(last) & _WHOLE_TABLES or last == "shared") and not _starts(
        last.rpartition("_")[2], _PROJECTIONS
    ):
        return _found(Role.EMBEDDING, "a table, by its name")
    if rows in names.config.vocabularies and not in_block(name):
        role = Role.HEAD if _starts(module, _HEADS) else Role.EMBEDDING
        text = f"it has a row for each of {rows} tokens"
        return Found(role, Evidence.CONFIG, text, 1 if role is Role.HEAD else None)
    count, below = _experts_beside(module, names.experts)
    # A router may choose among shared experts too: it has more rows then.
    if count and _starts(below, _ROUTERS) and (rows in (count, 1) or not _starts(below, _PROJECTIONS)):
        return _found(Role.ROUTER, f"it gives {rows} numbers beside {count} experts", 1)
    if _router_layer(name) is not None:
        return _found(Role.ROUTER, "a router, by its name", 1)
    # Heads may begin with products that give another width of the model, or queries, keys and values at once.
    inner = rows in (form.shape[1], 3 * form.shape[1]) or rows in names.config.inner
    before = module[: module.rfind(last)]
    if not in_block(before) and (_starts(last, _HEADS) or (_starts(module, _HEADS) and not inner)):
        return _found(Role.HEAD, "a head, by its name and outside the blocks", 1)
    biased = _bias_name(name) in names.forms
    if not (biased or in_block(name) or _starts(last, _PROJECTIONS)):
        return _found(Role.UNKNOWN, "a matrix outside the blocks: a table or a weight")
    return _linear(name, form, names)


def _linear(name: str, form: Form, names: Names) -> Found:
    bias = names.forms.get(_bias_name(name))
    if bias is None:
        return _found(Role.WEIGHT, "a weight stored [out, in], by its name and shape", 1)
    rows, columns = form.shape
    if bias.shape not in ((rows,), (columns,)):
        return _found(Role.UNKNOWN, f"a bias of shape {list(bias.shape)} beside it fits neither axis")
    transposed = names.transposed if rows == columns else bias.shape == (columns,)
    if transposed is None:
        return _found(Role.UNKNOWN, "a square matrix, where others are stored [out, in] and [in, out]")
    if transposed:
        return _found(Role.WEIGHT, "a weight stored [in, out], as biases show", 0)
    return _found(Role.WEIGHT, "a weight stored [out, in], as biases show", 1)


def _bias_name(name: str) -> str:
    """The name of the bias beside a weight."""
    return f"{name.removesuffix('weight')}bias"


def _convolution(form: Form) -> Found:
    if form.shape[1] == 1:
        return _found(Role.CONVOLUTION, "a convolution with one channel in each group", 1)
    return _found(Role.CONVOLUTION, "a convolution, by its axes", 1)


def _stacked_experts(name: str, form: Form, names: Names) -> Found | None:
    """The role of a parameter that holds all experts of a layer; None for other parameters."""
    module = module_of(name)
    layer, is_named, after = module.partition(".experts")
    if len(form.shape) != 3 or any(part.isdecimal() for part in after.split(".")):
        return None
    if not is_named and names.experts.get(module_of(layer)) != form.shape[0]:
        return None
    axes = {axis for other, axis in _known_axes(module, names) if other == name}
    if len(axes) == 1:
        axis = axes.pop()
        layout = "[experts, out, in]" if axis == 2 else "[experts, in, out]"
        return _found(Role.WEIGHT, f"weights of experts stored {layout}, by their shapes", axis)
    layouts = {axis for _, axis in _known_axes(module, names)}
    if len(layouts) == 1:
        return _found(Role.WEIGHT, "weights of experts, stored as those beside it", layouts.pop())
    return _found(Role.UNKNOWN, "weights of experts whose contracted axis the shapes do not tell")


def _known_axes(module: str, names: Names) -> Iterator[tuple[str, int]]:
    """Contracted axes that shapes tell: by a bias, else by the width of the hidden states."""
    for name, form in _members(module, names.forms):
        bias = names.forms.get(f"{name}_bias")
        _, first, second = form.shape
        if first == second:
            continue
        if bias is not None and bias.shape[:1] == form.shape[:1] and bias.shape[1:] in ((first,), (second,)):
            yield name, 2 if bias.shape[1] == first else 1
            continue
        hidden = [axis for axis in (1, 2) if form.shape[axis] in names.config.widths]
        if len(hidden) != 1:
            continue
        reads = "down" not in words(name) and not words(name) & {"w2", "output"}
        yield name, hidden[0] if reads else 3 - hidden[0]


def _members(module: str, forms: Mapping[str, Form]) -> list[tuple[str, Form]]:
    """The tensors of three axes in the layer of experts that a module belongs to."""
    layer, is_named, _ = module.partition(".experts")
    whole = f"{layer}.experts" if is_named else f"{module_of(layer)}."
    return [(name, form) for name, form in forms.items() if name.startswith(whole) and len(form.shape) == 3]


def _experts_beside(module: str, experts: Mapping[str, int]) -> tuple[int, str]:
    """Experts of the innermost layer of experts around a module, and the module's name in it; 0 if there are none."""
    parts = module.split(".")
    for end in range(len(parts) - 1, 0, -1):
        count = experts.get(".".join(parts[:end]), 0)
        if count:
            below = parts[end:]
            return (0, "") if "experts" in below else (count, ".".join(below))
    return 0, ""


def _expert_counts(forms: Mapping[str, Form]) -> dict[str, int]:
    """The number of experts by the name of the module that holds `experts`."""
    counts: dict[str, int] = {}
    for name, form in forms.items():
        layer = _router_layer(name)
        if layer is not None and len(form.shape) == 2:
            counts[layer] = max(counts.get(layer, 0), form.shape[0])
        before, found, after = name.partition(".experts.")
        if not found:
            continue
        first = after.partition(".")[0]
        count = int(first) + 1 if first.isdecimal() else form.shape[0] if len(form.shape) == 3 else 0
        counts[before] = max(counts.get(before, 0), count)
    return counts


def _router_layer(name: str) -> str | None:
    """The layer whose router the tensor belongs to by its name; None for other tensors."""
    parts = name.split(".")
    places = [place for place, part in enumerate(parts[:-1]) if "router" in words(part)]
    return ".".join(parts[: places[0]]) if places else None


def _stored_transposed(forms: Mapping[str, Form]) -> bool | None:
    """Whether matrices with a bias are stored [in, out], by those that are not square; None if they disagree."""
    votes: Counter[bool] = Counter()
    for name, form in forms.items():
        bias = forms.get(f"{module_of(name)}.bias")
        if name.endswith(".weight") and len(form.shape) == 2 and bias is not None and len(bias.shape) == 1:
            rows, columns = form.shape
            if rows != columns and bias.shape[0] in (rows, columns):
                votes[bias.shape[0] == columns] += 1
    return None if len(votes) == 2 else votes[True] > 0


def _starts(name: str, starts: Sequence[str]) -> bool:
    """Whether a word of the name begins so."""
    return any(word.startswith(tuple(starts)) for word in words(name))


def _found(role: Role, reason: str, axis: int | None = None) -> Found:
    return Found(role, Evidence.NAMES, reason, axis)
