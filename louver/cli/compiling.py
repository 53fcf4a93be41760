"""The command that prints kernels: compile."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from louver.cli.options import Product
from louver.cli.output import one_line_errors

if TYPE_CHECKING:
    from louver.commands.stages import Source


class ProductType(StrEnum):
    """Element types of both operands that products are compiled for."""

    f16 = "f16"
    bf16 = "bf16"
    e4m3 = "e4m3"
    e5m2 = "e5m2"
    s8 = "s8"
    u8 = "u8"


class Stage(StrEnum):
    """What `compile` prints. A kernel's family has some of them: docs/compiler.md."""

    ttir = "ttir"
    tile = "tile"
    canonical = "canonical"
    decomposed = "decomposed"
    encoded = "encoded"
    sched = "sched"
    ptx = "ptx"
    sass = "sass"
    all = "all"


def compile_(
    kernel: Annotated[
        str | None,
        typer.Argument(
            metavar="KERNEL",
            help="A Triton kernel, FILE.py:NAME, or a file of IR, FILE.ttir or FILE.mlir; without one, a product's problem.",
        ),
    ] = None,
    problem: Annotated[
        str | None, typer.Option(metavar="M,N,K", help="Rows of the sparse weight, tokens, inner size.")
    ] = None,
    dtype: Annotated[ProductType, typer.Option(help="Element type of both operands.")] = ProductType.f16,
    product: Annotated[Product, typer.Option(help="Which product.")] = Product.linear,
    emit: Annotated[Stage, typer.Option(help="What to print.")] = Stage.ptx,
    target: Annotated[str, typer.Option(help="The GPU target.")] = "sm_90a",
    accumulate: Annotated[str, typer.Option(help="auto, f32, f16, fast, promoted or s32.")] = "auto",
    arg: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=TYPE", help="A kernel argument, such as a=*fp16; an element of a tuple, such as shape.0=i32."
        ),
    ] = None,
    const: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A constexpr of the kernel, such as BLOCK_M=128.")
    ] = None,
    sparse: Annotated[
        list[str] | None, typer.Option(metavar="NAME=PATTERN", help="A sparse argument of the kernel, such as a=2:4.")
    ] = None,
    config: Annotated[
        int | None,
        typer.Option(metavar="N", help="Which config of triton.autotune sets what --const does not; 0 is the first."),
    ] = None,
) -> None:
    """Compile a product, a Triton kernel or a file of IR, and print a stage of it. Needs no GPU."""
    with one_line_errors():
        if (kernel is None) == (problem is None):
            raise ValueError("compile takes a kernel, FILE.py:name or a file of IR, or --problem M,N,K, one of the two")
        if kernel is None:
            if config is not None:
                raise ValueError(f"--config is for kernels under triton.autotune, got --config {config} with --problem")
            source = _product(str(problem), dtype, product, target, accumulate, arg or const or sparse)
        else:
            source = _kernel(kernel, target, arg or [], const or [], sparse or [], config)
        typer.echo(source.text(emit.value).rstrip("\n"))


def _product(
    problem: str, dtype: ProductType, product: Product, target: str, accumulate: str, of_kernels: list[str] | None
) -> Source:
    from louver.commands.compile import parse_sizes, product_source

    if of_kernels:
        raise ValueError(f"--arg, --const and --sparse are for kernels, got {of_kernels[0]} with --problem")
    return product_source(parse_sizes(problem), dtype.value, product.value, target, accumulate)


def _kernel(place: str, target: str, arg: list[str], const: list[str], sparse: list[str], config: int | None) -> Source:
    from louver.commands.compile_ir import ir_source, is_ir
    from louver.commands.compile_kernel import KernelArguments, kernel_source, load_kernel

    given = KernelArguments.parse(arg, const, sparse)
    if not is_ir(place):
        return kernel_source(load_kernel(place), given, target, config)
    if config is not None:
        raise ValueError(f"--config is for kernels under triton.autotune, got --config {config} with {place}")
    if arg or const:
        raise ValueError(f"a file of IR says its types and constants itself, got {[*arg, *const][0]} with {place}")
    return ir_source(place, given.sparse, target)
