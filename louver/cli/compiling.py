"""The command `compile`, which prints kernels."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from louver.cli.commands.notes import encoding_of
from louver.cli.output import ACCUMULATE_HELP, PATH, PRODUCTS, PRODUCTS_HELP, check_output, deliver, output_option
from louver.measure.report.table import shown

if TYPE_CHECKING:
    from louver.cli.commands.kernel_levels import Source

TYPES = ("f16", "bf16", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "s8", "u8", "s4x2", "u4x2")
"""Element types of both operands of compiled products."""

IR_SUFFIXES = (".ttir", ".mlir")
"""Suffixes of IR files: TTIR as printed by Triton, and tile IR as printed by Louver."""

LEVELS = ("ttir", "tile", "canonical", "decomposed", "encoded", "sched", "ptx", "sass", "all", "reasons")
"""The levels to print, and the reasons for the kernel. docs/compiler.md lists the levels of each family."""


@click.command("compile")
@click.argument("kernel", required=False)
@click.option("--problem", metavar="M,N,K", help="Rows of the sparse weight, tokens, inner size.")
@click.option(
    "--dtype",
    type=click.Choice(TYPES),
    metavar="TYPE",
    default="f16",
    help=f"Element type of both operands: {', '.join(TYPES)}.",
)
@click.option("--product", type=PRODUCTS, metavar="PRODUCT", default="linear", help=PRODUCTS_HELP)
@click.option(
    "--emit",
    type=click.Choice(LEVELS),
    metavar="LEVEL",
    default="ptx",
    help=f"The level to print: {', '.join(LEVELS)}.",
)
@click.option("--target", metavar="GPU", default="sm_90a", help="The GPU target.")
@click.option("--accumulate", metavar="HOW", default="auto", help=ACCUMULATE_HELP)
@click.option(
    "--arg",
    metavar="NAME=TYPE",
    multiple=True,
    help="A kernel argument, such as a=*fp16; a multiple of 16, such as K=i32:16; an element of a tuple, such as shape.0=i32. "
    "May be repeated.",
)
@click.option(
    "--const",
    metavar="NAME=VALUE",
    multiple=True,
    help="A constexpr of the kernel, such as BLOCK_M=128. May be repeated.",
)
@click.option(
    "--sparse",
    metavar="NAME=PATTERN",
    multiple=True,
    help="A sparse argument of the kernel, such as a=2:4. May be repeated.",
)
@click.option(
    "--config",
    type=int,
    metavar="N",
    help="Config of triton.autotune for constants without --const. Default: 0, the first.",
)
@click.option(
    "--html", "page", type=PATH, metavar="FILE", help="With --emit all: write one page that links all levels to FILE."
)
@click.option(
    "--source",
    "files",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    multiple=True,
    help="With --html, of a file of IR: a Python file whose lines the page may show. May be repeated.",
)
@output_option
def compile_(
    kernel: str | None,
    problem: str | None,
    dtype: str,
    product: str,
    emit: str,
    target: str,
    accumulate: str,
    arg: tuple[str, ...],
    const: tuple[str, ...],
    sparse: tuple[str, ...],
    config: int | None,
    page: Path | None,
    files: tuple[Path, ...],
    output: Path | None,
) -> None:
    """Compile a kernel and print one level. Needs no GPU.

    KERNEL is a Triton kernel (FILE.py:NAME) or a file of IR (FILE.ttir or FILE.mlir). Default: compile --problem.
    """
    if (kernel is None) == (problem is None):
        raise ValueError("compile takes a kernel, FILE.py:name or a file of IR, or --problem M,N,K, one of the two")
    _check_page(page, emit, output)
    if files and (page is None or kernel is None or not kernel.endswith(IR_SUFFIXES)):
        raise ValueError(f"--source is for the page of a file of IR, got --source {files[0]}: give --html and the file")
    read = dict(enumerate(files)) | ({} if kernel is None else {-1: Path(kernel.rpartition(":")[0] or kernel)})
    for written in (output, page):
        check_output(written, read)
    if kernel is None:
        if config is not None:
            raise ValueError(f"--config is for kernels under triton.autotune, got --config {config} with --problem")
        source = _product(str(problem), dtype, product, target, accumulate, arg or const or sparse)
    else:
        source = _kernel(kernel, target, arg, const, sparse, config, files)
    if page is not None:
        from louver.cli.page import levels_of, page_text

        deliver(page_text(levels_of(source)), page)
        return
    text = source.text(emit).rstrip("\n")
    encoding = "utf-8" if output is not None else encoding_of(sys.stdout)
    deliver(shown(text, encoding, keep="\n\t"), output)


def _check_page(page: Path | None, emit: str, output: Path | None) -> None:
    if page is None:
        return
    if emit != "all":
        raise ValueError(f"a page has all levels: give --emit all with --html, got --emit {emit}")
    if output is not None:
        raise ValueError(
            f"--html writes the levels to {page}, and nothing is left for --output {output}: give one of the two"
        )


def _product(problem: str, dtype: str, product: str, target: str, accumulate: str, of_kernels: Sequence[str]) -> Source:
    from louver.cli.commands.compile import parse_sizes, product_source

    if of_kernels:
        raise ValueError(f"--arg, --const and --sparse are for kernels, got {of_kernels[0]} with --problem")
    return product_source(parse_sizes(problem), dtype, product, target, accumulate)


def _kernel(
    place: str,
    target: str,
    arg: Sequence[str],
    const: Sequence[str],
    sparse: Sequence[str],
    config: int | None,
    files: Sequence[Path],
) -> Source:
    from louver.cli.commands.compile_kernel import KernelArguments, ir_source, kernel_source, load_kernel

    given = KernelArguments.parse(arg, const, sparse)
    if not place.endswith(IR_SUFFIXES):
        return kernel_source(load_kernel(place), given, target, config, place)
    if config is not None:
        raise ValueError(f"--config is for kernels under triton.autotune, got --config {config} with {place}")
    if arg or const:
        raise ValueError(f"a file of IR says its types and constants itself, got {[*arg, *const][0]} with {place}")
    return ir_source(place, given.sparse, target, [str(file) for file in files])
