"""Chooses the family of a user's kernel: a warpgroup product if possible, register tiles otherwise."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from xdsl.dialects.builtin import ModuleOp

from louver.compile.canonical.propagate_sparsity import marked_sparse
from louver.compile.plan.schedule import Schedule
from louver.compile.products import CompiledProduct, compile_tile_ir
from louver.compile.signature import FLAG, ArgumentParameter, parameter_name
from louver.compile.tiles import CompiledTiles, compile_tiles
from louver.ir.product import ProductNest
from louver.ir.refusal import UnsupportedKernelError
from louver.ir.tile import FuncOp
from louver.ir.tile.multiples import MULTIPLE, mark_apart, mark_multiples
from louver.ptx.flagged import RunsIf, flagged
from louver.ptx.module import Module
from louver.ptx.printer import print_module

Reading: TypeAlias = "Callable[[], ModuleOp]"
"""Reads a kernel to tile IR."""

Readings: TypeAlias = "Callable[[int], Iterable[Reading]]"
"""The readings of a kernel in which a number of the integers that are 1 become arguments, for every choice of these.

For 0 there is one reading, and for `EVERY_ONE` one of all of them, if there are any.
"""

EVERY_ONE = -1
"""Asks for the reading in which all integers that are 1 become arguments."""


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel of one of the two families. refusal: for register tiles, the reason that it is not a product; else None."""

    made: CompiledProduct | CompiledTiles
    refusal: str | None = None

    def flagged(self, runs_if: RunsIf) -> CompiledKernel:
        """The kernel that runs only if the word of the argument `FLAG` is as `runs_if` says. The other one leaves before
        its barriers, so the check of the protocol holds for both.
        """
        made = self.made
        if made.signature.dependent:
            raise ValueError("a dependent launch may read its flag too early, got one: leave dependent out")
        parameter = ArgumentParameter(parameter_name(FLAG), FLAG, "address", None, "u64", "i32")
        if isinstance(made, CompiledProduct):
            # A product has its own names of arguments.
            parameter = replace(parameter, argument=parameter.name)
        module = Module(made.module.target, [flagged(made.kernel, parameter.name, runs_if)])
        signature = replace(made.signature, parameters=(*made.signature.parameters, parameter))
        return replace(self, made=replace(made, module=module, ptx=print_module(module), signature=signature))


@dataclass(frozen=True, slots=True)
class Choice:
    """The options for the choice of a family.

    schedule: chooses the schedule of a product.
    fixed: fields of the schedule that the user has fixed. With any, register tiles are excluded.
    warps: warps of a program of register tiles; None to let Louver choose.
    multiples: arguments that register tiles take to be multiples of 16, so that neighbours are moved together.
    apart: arrays that do not overlap any other array, so that stores to others do not change them.
    ctas: the largest number of CTAs on an SM; None for as many as fit by their registers.
    refused: the reason that the call cannot be a product, for any kernel; None if it may be one.
    boxes: whether bulk copies may bring tiles, for register tiles.
    computed: whether register tiles address all sparse tiles at run time.
    only_products: whether register tiles have not the pattern of a sparse argument.
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
    computed: bool = False
    only_products: bool = False
    line: Callable[[str], str | None] = lambda place: None

    def product(self, reading: Reading) -> CompiledKernel | ValueError:
        """The kernel as a product, or the error."""
        try:
            return CompiledKernel(compile_tile_ir(reading(), self.schedule, self.target))
        except ValueError as error:
            return self._quoted(error)

    def tiles(self, reading: Reading, refusal: ValueError) -> CompiledKernel | ValueError:
        """The kernel of register tiles, or the error.

        refusal: the reason that it is not a product. An error has it as a note.
        """
        try:
            module = reading()
        except ValueError as error:
            return self._quoted(error)
        self._mark(module)
        try:
            computed = self._sparse(module) if self.computed else None
            made = compile_tiles(
                module, self.target, warps=self.warps, boxes=self.boxes, ctas=self.ctas, computed=computed
            )
            return CompiledKernel(made, str(refusal))
        except UnsupportedKernelError as found:
            error = found.quoted(self.line)
            if str(refusal) != str(error):
                error.add_note(f"As a warpgroup product it is refused too: {refusal}")
            return error
        except ValueError as error:
            return error

    def _quoted(self, error: ValueError) -> ValueError:
        return error.quoted(self.line) if isinstance(error, UnsupportedKernelError) else error

    @staticmethod
    def _sparse(module: ModuleOp) -> frozenset[str]:
        functions = [each for each in module.body.ops if isinstance(each, FuncOp)]
        return frozenset(name for function in functions for name in marked_sparse(function))

    def _mark(self, module: ModuleOp) -> None:
        for function in module.body.ops:
            if isinstance(function, FuncOp):
                mark_multiples(function, dict.fromkeys(self.multiples, MULTIPLE))
                mark_apart(function, self.apart)


def only(tile_ir: Reading) -> Readings:
    """The readings of a kernel that has only one."""
    return lambda ones: () if ones else (tile_ir,)


def compile_kernel(readings: Readings, choice: Choice) -> CompiledKernel:
    """The kernel as a product, or of register tiles if it is not a product.

    A size that happens to be 1 may hide the form of a product. Such a size is then also tried as an argument. Several
    at once are tried only if everything else is rejected.

    Raises UnsupportedKernelError, with the operation and its source line, or ValueError, if both families reject the
    kernel.
    """
    # Both families use this reading. Assumptions of register tiles are marked in it last.
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
    """A pattern that register tiles have not may be that of a product with several sizes of 1. Else register tiles read all
    integers that are 1 as arguments, once: they follow any address.
    """
    if choice.only_products:
        return _first(choice.product, (each for ones in (2, 3) for each in readings(ones)))
    return _first(lambda each: choice.tiles(each, refusal), readings(EVERY_ONE))


def _first(
    attempt: Callable[[Reading], CompiledKernel | ValueError], readings: Iterable[Reading]
) -> CompiledKernel | None:
    """The result of the first attempt that succeeds; None if all fail."""
    for each in readings:
        found = attempt(each)
        if isinstance(found, CompiledKernel):
            return found
    return None
