"""Commands for files of weights: inspect, prune, compress, decompress, demo."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import click
from click.core import ParameterSource

from louver.cli.output import (
    FLOATS,
    PATH,
    axis_option,
    exclude_option,
    include_option,
    only_option,
    pattern_option,
    result_command,
    workers_option,
)
from louver.measure.report.table import Result

if TYPE_CHECKING:
    from louver.torch.accuracy.files import Calibration


C = TypeVar("C", bound=Callable[..., Any])

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


def _minutes(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """A time such as 90s, 2m or 1.5h, as minutes."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", value)
    if found is None or float(found[1]) == 0:
        raise click.BadParameter(f"a time is a number with s, m or h, such as 90s or 2m, got {value!r}")
    return float(found[1]) * _SECONDS[found[2]] / 60


_OPTIONS: Final = (
    click.option(
        "--method",
        metavar="NAME",
        help="wanda, sparsegpt, admm or magnitude: run the model on texts, and prune by its activations.",
    ),
    click.option(
        "--calibration",
        metavar="FILE",
        multiple=True,
        help="Text, or token ids as .npy or .safetensors. May be repeated. Default: self, text that the model writes.",
    ),
    click.option(
        "--held-out", metavar="FILE", multiple=True, help="Texts that choose the damping. Default: an eighth."
    ),
    click.option("--rows", type=click.IntRange(1), metavar="N", help="Most rows of each text. Default: 128."),
    click.option(
        "--length", type=click.IntRange(2), metavar="N", help="Tokens of a row. Default: 2048, or what the model takes."
    ),
    click.option("--correct", is_flag=True, help="Aim at the dense model's outputs from the pruned model's inputs."),
    click.option(
        "--reconstruct",
        type=click.IntRange(0),
        metavar="N",
        default=0,
        help="Steps of conjugate gradients: 30 are plenty.",
    ),
    click.option(
        "--swaps", type=click.IntRange(0), metavar="N", default=0, help="Sweeps that choose each group again."
    ),
    click.option(
        "--tune", type=click.IntRange(0), metavar="N", default=0, help="Steps of Adam on each part of a block."
    ),
    click.option("--permute", is_flag=True, help="First reorder channels where the block computes the same."),
    click.option(
        "--damping",
        type=click.FloatRange(0),
        metavar="X",
        help="Of the Gram matrix. Default: chosen by held-out texts.",
    ),
    click.option(
        "--distill",
        metavar="TIME",
        callback=_minutes,
        help="Then train kept values this long to predict as the dense model does.",
    ),
    click.option(
        "--eval", "judged", metavar="FILE", multiple=True, help="Print perplexity before and after. May be repeated."
    ),
    click.option("--blocks", metavar="NAME", help="List of the blocks in the model. Default: found."),
    click.option(
        "--resume", type=PATH, metavar="DIR", help="Keep finished blocks in DIR. Default: beside OUT, until the end."
    ),
    click.option("--device", help="Such as cuda:1 or cpu. Default: cuda if there is a GPU."),
    click.option("--plot", type=PATH, metavar="FILE", help="Draw the error of each layer."),
)


def calibration_of(given: Mapping[str, Any]) -> Calibration | None:
    """What the options ask for; None without --method. Raises UsageError for an option that needs it."""
    if given["method"] is None:
        context = click.get_current_context()
        for option in context.command.params:
            if option.name in given and context.get_parameter_source(option.name) == ParameterSource.COMMANDLINE:
                raise click.UsageError(f"{option.opts[0]} goes with --method, such as --method sparsegpt.")
        return None
    from louver.torch.accuracy.files import OWN, Calibration
    from louver.torch.accuracy.matrix import Method

    fields = ("correct", "reconstruct", "swaps", "damping")
    method = Method(given["method"], **{name: given[name] for name in fields})
    texts = given["calibration"] or (OWN,)
    others = {
        name: given[name] for name in ("held_out", "judged", "rows", "length", "tune", "permute", "distill", "blocks")
    }
    return Calibration(method, texts, **others)


def calibration_options(command: C) -> C:
    """The options of calibrated pruning, which a command takes by keyword."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


DTYPE_HELP = f"Type of pruned weights: {', '.join(FLOATS.choices)}. Default: unchanged, but f16 for compressed f32."


@click.command()
@click.argument("file", type=PATH)
@pattern_option
@result_command
def inspect(file: Path, pattern: str) -> Result:
    """List a file's tensors, and whether a pattern holds. FILE is a safetensors file, an index, or a folder with one."""
    from louver.cli.commands.inspect import inspect_file

    return inspect_file(file, pattern)


@click.command()
@click.argument("source", metavar="IN", type=PATH)
@click.argument("out", metavar="OUT", type=PATH, required=False)
@pattern_option
@click.option("--norm", type=click.Choice(["l1", "l2"]), help="Norm of vectors: l1 or l2. Default: l2.")
@click.option("--dtype", type=FLOATS, metavar="TYPE", help=DTYPE_HELP)
@include_option
@exclude_option
@only_option
@axis_option
@click.option("--compressed/--dense", default=False, help="Write values and indices, or dense tensors with zeros.")
@click.option("--dry-run", is_flag=True, help="Only say what is pruned and why. Writes nothing, needs no OUT.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@workers_option
@calibration_options
@result_command
def prune(
    source: Path,
    out: Path | None,
    pattern: str,
    norm: Literal["l1", "l2"] | None,
    dtype: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    only: tuple[str, ...],
    axis: int | None,
    compressed: bool,
    dry_run: bool,
    force: bool,
    workers: str,
    **calibrated: Any,
) -> Result:
    """Prune the weights of a checkpoint. Reads IN and writes OUT. All other tensors are copied.

    By magnitude, or with --method by what the model, a causal one of Transformers in the folder IN, does with texts.

    IN is a safetensors file, the index of a sharded checkpoint, or a folder with one of these. OUT is a folder if it
    exists or IN is a folder or an index, else a file; a name that ends in .safetensors or .json is a file. A folder
    gets the other files of a folder IN too. The same command continues an interrupted run.
    """
    from louver.cli.commands.prune import facts_file, prune_file
    from louver.formats.pattern import Pattern
    from louver.models.pruning import PruneOptions
    from louver.models.selection import Choice

    choice = Choice(include, exclude, only, axis)
    options = PruneOptions(Pattern.parse(pattern), dtype, choice, compressed, norm or "l2")
    given = [name for name, value in (("--norm", norm), ("--axis", axis)) if value is not None]
    if calibrated["method"] is not None and given:
        raise click.UsageError(f"{given[0]} is for pruning by magnitude alone: leave out {given[0]} or --method.")
    if dry_run:
        return facts_file(source, options)
    if out is None:
        raise click.UsageError("Missing argument 'OUT'.")
    asked = calibration_of(calibrated)
    if asked is None:
        return prune_file(source, out, options, force, workers)
    from louver.cli.commands.prune_calibrated import prune_calibrated

    places = {name: calibrated[name] for name in ("resume", "device", "plot")}
    return prune_calibrated(source, out, options, asked, **places, force=force, workers=workers)


@click.command()
@click.argument("source", metavar="IN", type=PATH)
@click.argument("out", metavar="OUT", type=PATH)
@pattern_option
@include_option
@exclude_option
@only_option
@axis_option
@click.option(
    "--to",
    type=click.Choice(["louver", "sparse24_bitmask"]),
    default="louver",
    help="louver (values and indices) or sparse24_bitmask (compressed-tensors). Default: louver.",
)
@click.option("--force", is_flag=True, help="Replace files that exist.")
@workers_option
@result_command
def compress(
    source: Path,
    out: Path,
    pattern: str,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    only: tuple[str, ...],
    axis: int | None,
    to: Literal["louver", "sparse24_bitmask"],
    force: bool,
    workers: str,
) -> Result:
    """Compress the weights of a checkpoint that hold a pattern already. Reads IN and writes OUT, as prune does.

    Kept values stay bit for bit. Weights that do not hold the pattern are copied and named.
    """
    from louver.cli.commands.prune import compress_file
    from louver.formats.pattern import Pattern
    from louver.models.compressing import CompressOptions
    from louver.models.selection import Choice

    options = CompressOptions(Pattern.parse(pattern), Choice(include, exclude, only, axis), to)
    return compress_file(source, out, options, force, workers)


@click.command()
@click.argument("source", metavar="IN", type=PATH)
@click.argument("out", metavar="OUT", type=PATH)
@click.option("--force", is_flag=True, help="Replace files that exist.")
@workers_option
@result_command
def decompress(source: Path, out: Path, force: bool, workers: str) -> Result:
    """Write the compressed weights of a checkpoint dense, with zeros. Reads IN and writes OUT, as prune does."""
    from louver.cli.commands.prune import decompress_file

    return decompress_file(source, out, force, workers)


@click.command()
@click.option("--weights", type=PATH, metavar="FILE", help="A safetensors file. Default: the demo package's.")
@click.option("--out", type=PATH, metavar="DIR", default=Path("louver-demo"), help="Folder for the results.")
@include_option
@exclude_option
@only_option
@result_command
def demo(
    weights: Path | None, out: Path, include: tuple[str, ...], exclude: tuple[str, ...], only: tuple[str, ...]
) -> Result:
    """Prune, compile, run and check real weights, and compare sentences. Writes the sparse file, a plot and a report."""
    from louver.cli.commands.demo import run_demo
    from louver.models.selection import Choice

    return run_demo(weights, out, Choice(include, exclude, only))
