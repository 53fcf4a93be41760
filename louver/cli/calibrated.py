"""Options of calibrated pruning."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from louver.cli.output import PATH

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
