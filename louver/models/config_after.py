"""What `config.json` says about the stored form of weights, after a command has written them in another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from louver.formats.schema import BITMASK_PARTS, Form

_ENTRIES: Final = ("quantization_config", "compression_config")
"""Where compressed-tensors describes a checkpoint; its first releases used the second name."""

_DENSE: Final = "dense"

_FORMATS: Final = {True: ("sparse-24-bitmask", "2:4"), False: ("sparse-bitmask", "unstructured")}
"""The format of `sparsity_config` and its structure, by whether two of four elements are kept."""

_ABOUT: Final = ("quant_method", "version", "sparsity_config", "transform_config", "format")
"""Fields that stand in an entry without a quantization, too."""


def config_after(config: Mapping[str, Any], forms: Mapping[str, Form]) -> dict[str, Any]:
    """The contents of `config.json` for a checkpoint whose tensors are written in these forms.

    Every command that writes a checkpoint calls this before it writes, with the `config.json` that it copies: loaders of
    compressed-tensors decompress what `sparsity_config` announces, and fail on a model that holds something else.

    - Tensors with bitmasks are announced: `targets` are their modules.
    - Without them, a `sparsity_config` that announces bitmasks is removed. One of the format "dense" stays: it says that
      dense weights with zeros keep a pattern. An entry that then describes nothing is removed too.
    - A quantization and all else stay as they are.
    Raises ValueError for bitmasks in a checkpoint that another library describes, and for those of two formats.
    """
    where = next((name for name in _ENTRIES if config.get(name)), _ENTRIES[0])
    entry = dict(cast("Mapping[str, Any]", config.get(where) or {}))
    method = entry.get("quant_method", "compressed-tensors")
    bitmasks = _bitmasks(forms)
    if bitmasks and method != "compressed-tensors":
        raise ValueError(
            f"bitmasks are a form of compressed-tensors, got a checkpoint of {method!r}, as its config.json says: write "
            "dense tensors"
        )
    sparsity = cast("Mapping[str, Any]", entry.get("sparsity_config") or {})
    if bitmasks:
        entry = {"quant_method": method, **entry, "sparsity_config": dict(sparsity) | _announced(bitmasks)}
        return {**config, where: entry}
    if not sparsity or sparsity.get("format") == _DENSE:
        return dict(config)
    del entry["sparsity_config"]
    others = any(value for field, value in entry.items() if field not in _ABOUT)
    keeps = others or entry.get("format", _DENSE) != _DENSE or entry.get("transform_config")
    rest = {name: value for name, value in config.items() if name != where}
    return {**rest, where: entry} if keeps else rest


def _bitmasks(forms: Mapping[str, Form]) -> dict[str, bool]:
    """The modules whose weights are stored with a bitmask, also in parts of different files. Of each, whether two of four
    elements are kept: then the values are a matrix.
    """
    arrays = {stored: array for name, form in forms.items() for stored, array in form.arrays(name).items()}
    stems = [stored.removesuffix(BITMASK_PARTS.bits) for stored in arrays if stored.endswith(BITMASK_PARTS.bits)]
    values = {stem: arrays.get(stem + BITMASK_PARTS.values) for stem in stems}
    return {stem: len(array.shape) == 2 for stem, array in values.items() if array is not None}


def _announced(bitmasks: Mapping[str, bool]) -> dict[str, Any]:
    if len({*bitmasks.values()}) > 1:
        names = [next(name for name, each in bitmasks.items() if each is kind) for kind in (True, False)]
        raise ValueError(
            f"a checkpoint's bitmasks have one format, got {_FORMATS[True][0]} and {_FORMATS[False][0]} for {names[0]!r} and "
            f"{names[1]!r}: write dense tensors"
        )
    kind, structure = _FORMATS[next(iter(bitmasks.values()))]
    return {"format": kind, "sparsity_structure": structure, "targets": sorted(bitmasks), "ignore": []}
