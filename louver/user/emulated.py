"""Runs a call of a compiled kernel on the emulator, with arguments bound as for a launch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from louver.compile.compiled import CompiledKernel
from louver.compile.needs import Fits
from louver.compile.plan.schedule import Schedule
from louver.compile.signature import BoxParameter, Part
from louver.emulator import GlobalMemory, Latest, Order, Report, run
from louver.formats.tensor import SparseTensor
from louver.ir.polynomial import Numbers
from louver.isa.bulk import TensorMap
from louver.isa.targets import Target
from louver.isa.targets import target as machine
from louver.library.compiled import BuiltKernel, Launch
from louver.library.emulate import sparse_operand
from louver.library.forms import TILE_PARTS, Operand, ProductForms, computed_forms, tile_form
from louver.library.rows import Held, tensor_map
from louver.ptx.module import Kernel
from louver.runtime.violations import AddressError, is_violated, new_page
from louver.user.arguments import Call, Kind
from louver.user.binding import bind_call
from louver.user.compiled import AddressIntegers, Variant
from louver.user.gated_pairs import operand
from louver.user.hints import Hints
from louver.user.interpreted import TARGET, flat
from louver.user.retile import SM_COUNT
from louver.user.source import TileSource


def emulate(
    source: TileSource,
    hints: Hints,
    compiled: Callable[[Kind, Variant, Fits, Schedule | None], CompiledKernel],
    call: Call,
    grid: Sequence[int],
    *,
    sm_count: int = SM_COUNT,
    order: Order = Latest(),  # noqa: B008 - frozen
) -> Report:
    """Run a kernel on the call's NumPy arrays, in place.

    compiled: the kernel for a kind of call, an alignment of arrays, a call that must fit it, and a schedule (None: Louver's choice).
    An empty grid runs nothing. Raises ValueError for sizes, arrays and grid that do not match, and EmulationError for a detected misuse.
    """
    if 0 in grid:
        return Report(Counter(), frozenset(), 0, 0, 0)
    memory = GlobalMemory()
    held: dict[str, Held] = {}
    for argument, array in call.arrays.items():
        added = memory.add(argument, flat(array), offset=array.address % 16, writable=array.writable)
        held[argument] = Held(added.address, added.size)
    page = new_page()
    machine_memory = EmulatedMemory(source, compiled, call, sm_count, memory, held, machine(TARGET), page)
    found = bind_call(source.name, hints, call, grid, machine_memory)
    dependent = found.kernel.signature.dependent
    report = run(found.kernel.kernel, found.grid, found.values, memory=memory, order=order, dependent=dependent)
    if is_violated(page):
        raise AddressError(source.name)
    return report


@dataclass(frozen=True, slots=True)
class EmulatedMemory:
    """The emulator's memory for a call. arrays: the call's arrays in it. page: of violations."""

    source: TileSource
    compiled: Callable[[Kind, Variant, Fits, Schedule | None], CompiledKernel]
    call: Call
    sm_count: int
    memory: GlobalMemory
    arrays: Mapping[str, Held]
    target: Target
    page: NDArray[np.uint8] = field(default_factory=new_page)

    def kernel(
        self, variant: Variant, fits: Fits, schedule: Schedule | None = None, kind: Kind | None = None
    ) -> BuiltKernel[Kernel]:
        made = self.compiled(kind or self.call.kind, variant, fits, schedule).made
        return BuiltKernel(made.kernel, Launch.of(made))

    def address_integers(self, kind: Kind) -> AddressIntegers:
        return AddressIntegers.of(self.source, kind, self.target.name)

    def held(self, argument: str) -> Held:
        """A dense array, with the same offset from a multiple of 16 bytes as in NumPy's memory."""
        return self.arrays[argument]

    def product_operand(self, parts: Sequence[SparseTensor], forms: ProductForms, entries: int) -> Operand:
        return sparse_operand(self.memory, operand(parts), forms, entries)

    def tile_operand(self, argument: str, s: SparseTensor, element: str) -> Mapping[Part, Held]:
        found: dict[Part, Held] = {}
        for part in TILE_PARTS:
            added = self.memory.add(f"{argument} {part}", tile_form(s, part, element).host(s), writable=False)
            found[part] = Held(added.address, added.size)
        return found

    def computed_operand(self, argument: str, s: SparseTensor) -> tuple[Held, Held]:
        values, codes = (
            self.memory.add(f"{argument} {what}", form.host(s), writable=False)
            for what, form in zip(("values", "codes"), computed_forms(s), strict=True)
        )
        return Held(values.address, values.size), Held(codes.address, codes.size)

    def violations(self) -> Held:
        added = self.memory.add("violations", self.page, scratch=True)
        return Held(added.address, added.size)

    def tensor_map(self, box: BoxParameter, place: Held, numbers: Numbers) -> TensorMap:
        return tensor_map(box, place, numbers)
