"""The command `isa`, which lists targets and their matrix products."""

from __future__ import annotations

import click

from louver.cli.output import result_command
from louver.measure.report.result import Result


@click.command()
@click.option("--target", metavar="GPU", help="The GPU target. Default: list the targets.")
@click.option("--sparse", is_flag=True, help="Only products with a sparse A.")
@click.option("--dtype", metavar="TYPE", help="Only products of this element type of A.")
@result_command
def isa(target: str | None, sparse: bool, dtype: str | None) -> Result:
    """List the matrix products of a GPU target, native or emulated by the assembler. Needs no GPU."""
    from louver.cli.commands.isa import list_products, list_targets

    if target is not None:
        return list_products(target, sparse=sparse, dtype=dtype)
    if sparse or dtype is not None:
        raise ValueError("--sparse and --dtype choose among a target's products, got no --target: name one, sm_90a say")
    return list_targets()
