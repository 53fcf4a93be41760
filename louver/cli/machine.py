"""Commands about machines and what is known of them: doctor, advise, isa, claims, roofline, tune."""

from __future__ import annotations

from pathlib import Path

import click

from louver.cli.output import ACCUMULATE_HELP, PATH, PRODUCTS, PRODUCTS_HELP, result_command
from louver.measure.report.table import Result


@click.command()
@result_command
def doctor() -> Result:
    """Report what works on this machine, and why the rest does not."""
    from louver.cli.commands.doctor import examine, report

    return report(examine())


@click.command()
@click.argument("sizes", metavar="[M N K]", type=int, nargs=-1)
@click.option("--model", type=PATH, metavar="DIR", help="All weights of the model in this folder, instead of M N K.")
@click.option(
    "--tokens", metavar="LIST", help="Tokens of a call of the model, separated by commas. Default: 1,64,4096."
)
@click.option(
    "--format",
    "formats",
    metavar="FORMAT",
    multiple=True,
    help='Compare this format, such as e4m3, "f16 2:4" or "bf16 4:8@128". May be repeated. Default: twelve of them.',
)
@click.option(
    "--on", "device", metavar="GPU", help="A GPU whose times are recorded: H100 or H200. Default: the one here."
)
@click.option("--measure", is_flag=True, help="Time the formats on the GPU here. Needs PyTorch.")
@result_command
def advise(
    sizes: tuple[int, ...],
    model: Path | None,
    tokens: str | None,
    formats: tuple[str, ...],
    device: str | None,
    measure: bool,
) -> Result:
    """Say which format a weight [M, K], or each of a model, should have for products with N tokens. Needs no GPU.

    Compares element types and patterns: measured, recorded or predicted times, bytes, the limit, the cost of conversion and loss.
    """
    from louver.cli.commands.advise import advise_model, advise_product

    if model is not None:
        if sizes:
            raise click.UsageError("--model has the sizes of its weights: leave out M N K, or --model.")
        return advise_model(model, "1,64,4096" if tokens is None else tokens, formats, device, measure=measure)
    if len(sizes) != 3:
        raise click.UsageError(f"Give M N K, or --model DIR; got {len(sizes)} sizes.")
    if tokens is not None:
        raise click.UsageError("--tokens belongs to --model: N is the tokens of one product.")
    return advise_product(sizes, formats, device, measure=measure)


@click.command()
@click.argument("patterns", metavar="PATTERN...", nargs=-1, required=True)
@click.option(
    "--blocking",
    metavar="SIZES",
    multiple=True,
    default=("small", "medium", "large"),
    help="A row of the paper's Table I, or ms,ns,mr,nr,mt,nt. May be repeated.",
)
@click.option("--k", type=click.IntRange(min=1), metavar="K", default=4096, help="Elements along K.")
@result_command
def roofline(patterns: tuple[str, ...], blocking: tuple[str, ...], k: int) -> Result:
    """Report the limit of f32 products of vectors N:M@L, by NM-SpMM's analysis. Needs no GPU."""
    from louver.cli.commands.roofline import roofline

    return roofline(patterns, blocking, k)


@click.command()
@click.option("--shapes", metavar="LIST", default="4096x8192x8192", help="MxNxK, separated by commas.")
@click.option(
    "--dtype", metavar="LIST", default="f16", help="Element types, separated by commas: f16, bf16, e4m3, int8, ..."
)
@click.option("--kind", type=PRODUCTS, metavar="PRODUCT", default="linear", help=PRODUCTS_HELP)
@click.option("--n", metavar="A..B", help="Range of N instead of the shapes' N.")
@click.option("--out-dtype", metavar="TYPE", help="Output type. Default: what the library returns.")
@click.option("--table", type=PATH, metavar="FILE", help="Also write the results as a package's table.")
@click.option("--accumulate", metavar="HOW", default="auto", help=ACCUMULATE_HELP)
@click.option("--show", is_flag=True, help="Only list kept schedules. Needs no GPU.")
@result_command
def tune(
    shapes: str,
    dtype: str,
    kind: str,
    n: str | None,
    out_dtype: str | None,
    table: Path | None,
    accumulate: str,
    show: bool,
) -> Result:
    """Time schedules on this GPU and keep the best for later calls."""
    from louver.cli.commands import tune as command

    if show:
        return command.show()
    return command.run_tune(command.tasks(shapes, dtype, kind, out_dtype, n, accumulate), table)


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


@click.command()
@click.argument("document", required=False)
@click.option("--verdict", metavar="TEXT", help='Only statements with this verdict, "contradicts itself" say.')
@result_command
def claims(document: str | None, verdict: str | None) -> Result:
    """List what became of the statements of DOCUMENT (000 to 004), by default a count for each document."""
    from louver.cli.commands.claims import list_claims, list_documents

    if document is not None:
        return list_claims(document, verdict)
    if verdict is not None:
        raise ValueError("--verdict chooses among a document's statements, got no document: name one, 000 say")
    return list_documents()
