"""What a checkpoint says about the weights that it stores in a sparse form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from louver.formats.bitmask import PATTERN
from louver.formats.checkpoint import open_checkpoint
from louver.formats.index import find
from louver.formats.pattern import Pattern
from louver.formats.regular import FormatError
from louver.formats.schema import WEIGHT, BitmaskForm, Form, SparseForm

E4M3 = "float8_e4m3fn"
"""PyTorch's name of it, which configurations have."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored weight [rows, columns]. pattern: that it keeps, None for any places.

    columns: None if the checkpoint does not say. scaled: whether it has 8 bits and a scale for each row.
    bitmask: whether its places are bits, as compressed-tensors stores them.
    """

    pattern: Pattern | None
    columns: int | None = None
    scaled: bool = False
    bitmask: bool = False

    def check_division(self, name: str, columns: int, part: int, rows: list[int]) -> None:
        """Raises ValueError if a part of the columns, or of the rows, among GPUs cuts groups of the pattern."""
        if self.pattern is None:
            return
        m, height = self.pattern.m, self.pattern.length
        if part != columns and part % m:
            fits = [size for size in range(1, columns // part) if columns % size == 0 and columns // size % m == 0]
            use = (
                f"use {' or '.join(map(str, fits))}"
                if fits
                else "serve the dense weights that `louver decompress` writes"
            )
            raise ValueError(
                f"tensor_parallel_size {columns // part} divides the {columns} input features of {name} into parts of {part}, which "
                f"cut groups of {self.pattern}: {use}"
            )
        cut = next((size for size in rows if size % height), None)
        if cut is not None:
            raise ValueError(
                f"{name} has a part of {cut} rows, which cuts windows of {height} rows of {self.pattern}: use a smaller "
                "tensor_parallel_size, or serve the dense weights that `louver decompress` writes"
            )


def of_layers(layers: Mapping[str, Mapping[str, str]]) -> dict[str, Stored]:
    """The weights of a model that Transformers has saved, by name. layers: of its configuration.

    Raises ValueError for weights of 8 bits that are not e4m3.
    """
    for name, layer in layers.items():
        if layer.get("scale") == "row" and layer["dtype"] != E4M3:
            raise ValueError(
                f"vLLM serves quantized weights of e4m3, got {name} of {layer['dtype']}: save the model before quantize_, or after "
                'quantize_(model, "e4m3")'
            )
    return {
        name + WEIGHT: Stored(Pattern.parse(layer["pattern"]), None, layer.get("scale") == "row")
        for name, layer in layers.items()
    }


def of_files(folder: str) -> dict[str, Stored]:
    """The weights of the checkpoint in a folder, by name; none for the name of a model elsewhere, and for a folder without
    one checkpoint of safetensors files. Raises FormatError for damage.
    """
    try:
        path = find(Path(folder))
    except FormatError:
        return {}
    if not path.is_file():
        return {}
    forms: dict[str, Form] = {name: each.form for name, each in open_checkpoint(path).tensors.items()}
    stored: dict[str, Stored] = {}
    for name, form in forms.items():
        if isinstance(form, SparseForm):
            stored[name] = Stored(form.pattern, form.shape[-1])
        elif isinstance(form, BitmaskForm):
            stored[name] = Stored(PATTERN if form.kept is None else None, form.shape[-1], bitmask=True)
    return stored
