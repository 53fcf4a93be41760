"""Chooses the family of a user's kernel: a warpgroup product if possible, register tiles otherwise."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects.builtin import ModuleOp

from louver.compile.plan.schedule import Schedule
from louver.compile.products import CompiledProduct, compile_tile_ir
from louver.compile.tiles import CompiledTiles, compile_tiles
from louver.ir.product import ProductNest
from louver.ir.refusal import UnsupportedKernelError
from louver.ir.tile import FuncOp
from louver.ir.tile.multiples import mark_apart, mark_multiples

Reading: TypeAlias = "Callable[[], ModuleOp]"
"""Makes a kernel's tile IR."""

Readings: TypeAlias = "Callable[[int], Iterable[Reading]]"
"""A kernel's tile IR with so many of the integers that are 1 left to the launch, in every way; with none of them, it is one."""


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel as one of the two. refusal: why it is no product, for register tiles; None for a product."""

    made: CompiledProduct | CompiledTiles
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The families that a kernel may be compiled to.

    schedule: chooses a product's. fixed: fields of it that the user has fixed, which rule register tiles out. warps: of a program of
    register tiles, None for Louver's choice. multiples: arguments that these take to be multiples of 16, so that neighbours are moved
    together. apart: arrays that share no memory with others, so that stores leave them unchanged. ctas: that share an SM at most, None
    for as many as registers let fit. refused: why the call is no product,
    whatever the kernel is; None where it may be one. boxes: whether bulk copies may bring tiles of register tiles.
    """

    schedule: Callable[[ProductNest], Schedule]
    target: str = "sm_90a"
    fixed: tuple[str, ...] = ()
    warps: int | None = None
    multiples: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    ctas: int | None = None
    refused: str | None = None
    boxes: bool = True

    def product(self, reading: Reading) -> CompiledKernel | ValueError:
        """The kernel as a product, or why it is none."""
        try:
            return CompiledKernel(compile_tile_ir(reading(), self.schedule, self.target))
        except ValueError as error:
            return error

    def tiles(self, reading: Reading, refusal: ValueError) -> CompiledKernel | ValueError:
        """The kernel by register tiles, or why not. refusal: why it is no product; an error has it as a note."""
        try:
            module = reading()
        except ValueError as error:
            return error
        self._mark(module)
        try:
            made = compile_tiles(module, self.target, warps=self.warps, boxes=self.boxes, ctas=self.ctas)
            return CompiledKernel(made, str(refusal))
        except UnsupportedKernelError as error:
            if str(refusal) != str(error):
                error.add_note(f"As a warpgroup product it is refused too: {refusal}")
            return error
        except ValueError as error:
            return error

    def _mark(self, module: ModuleOp) -> None:
        for function in module.body.ops:
            if isinstance(function, FuncOp):
                mark_multiples(function, self.multiples)
                mark_apart(function, self.apart)


def only(tile_ir: Reading) -> Readings:
    """The readings of a kernel of which there is no other."""
    return lambda ones: () if ones else (tile_ir,)


def compile_kernel(readings: Readings, choice: Choice) -> CompiledKernel:
    """The kernel as a product, or by register tiles if it is none.

    A size that is 1 by chance may hide what a kernel is: it is then left to the launch, as other sizes are. Several at once, such as
    N and the strides of matrices of one column, are tried only where nothing else is left.

    Raises UnsupportedKernelError, with the operation and its source line, or ValueError for what neither can do.
    """
    # Both families read it; assumptions of register tiles are marked in it last.
    (plain,) = (functools.cache(each) for each in readings(0))
    refusal = ValueError(choice.refused)
    if choice.refused is None:
        found = choice.product(plain)
        if isinstance(found, CompiledKernel):
            return found
        refusal = found
        if other := _first(choice.product, readings(1)):
            return other
    if choice.fixed:
        names = ", ".join(choice.fixed)
        refusal.add_note(f"The hints {names} are for products: without them, the kernel may run by register tiles.")
        raise refusal
    found = choice.tiles(plain, refusal)
    if isinstance(found, CompiledKernel):
        return found
    other = _last_resort(readings, choice, refusal)
    if other is None:
        raise found
    return other


def _last_resort(readings: Readings, choice: Choice, refusal: ValueError) -> CompiledKernel | None:
    found = None
    if choice.refused is None:
        found = _first(choice.product, (each for ones in (2, 3) for each in readings(ones)))
    return found or _first(
        lambda each: choice.tiles(each, refusal), (each for ones in (1, 2, 3) for each in readings(ones))
    )


def _first(
    attempt: Callable[[Reading], CompiledKernel | ValueError], readings: Iterable[Reading]
) -> CompiledKernel | None:
    """The result of the first attempt that is not refused; None if all are."""
    for each in readings:
        found = attempt(each)
        if isinstance(found, CompiledKernel):
            return found
    return None
