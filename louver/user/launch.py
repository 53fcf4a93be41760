"""A call on a device: a kernel for its arrays' alignment, with bound arguments, ready for repeated launches."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from louver.compile.needs import Fits
from louver.compile.plan.schedule import Schedule
from louver.compile.signature import BoxParameter, Part
from louver.formats.tensor import SparseTensor
from louver.ir.polynomial import Numbers
from louver.isa.targets import Target
from louver.isa.targets import target as machine
from louver.library.compiled import BuiltKernel
from louver.library.forms import TILE_PARTS, Form, Operand, ProductForms, computed_forms, tile_form
from louver.library.launch import packed
from louver.library.rows import Held, encoded_map
from louver.library.state import TensorState
from louver.runtime.callers import callers_level
from louver.runtime.device import device
from louver.runtime.driver import device_context
from louver.runtime.module import BoundLaunch, LoadedKernel
from louver.runtime.violations import Page, page_of
from louver.user.arguments import Call, Kind
from louver.user.binding import bind_call
from louver.user.compiled import AddressIntegers, Variant, Wanted, find, loaded, needs_of, target_of
from louver.user.device_and_stream import refuse_capture
from louver.user.gated_pairs import is_made, operand
from louver.user.hints import Hints
from louver.user.source import ReadOnce, TileSource


@dataclass(frozen=True, slots=True)
class Ready:
    """A launch on the call's stream. It needs the call's sparse tensors alive. product: False for register tiles. decided: see
    `louver.user.retile.is_decided`. page: where the kernel reports violations; None for a kernel that checks nothing.
    """

    launch: BoundLaunch
    product: bool
    decided: bool = False
    page: Page | None = None


def ready(source: TileSource, hints: Hints, call: Call, grid: Sequence[int], ordinal: int, stream: int) -> Ready:
    """The call on device `ordinal`, compiled, loaded and uploaded the first time. Warns if the arrays prevent a faster
    kernel. Raises ValueError for sizes, arrays or grid that do not match. Raises UnsupportedKernelError if the kernel
    cannot be compiled, RuntimeError if a capture of `stream` forbids work.
    """
    with device_context(ordinal):
        place = machine(target_of(ordinal)), device(ordinal).sm_count
        return DeviceMemory(ReadOnce(source), hints, call, grid, ordinal, stream, *place).ready()


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """A device's memory for a call. Missing parts are compiled, loaded and uploaded, but not during a capture."""

    source: ReadOnce
    hints: Hints
    call: Call
    grid: Sequence[int]
    ordinal: int
    stream: int
    target: Target
    sm_count: int

    def ready(self) -> Ready:
        """See `ready`. The device's context is current."""
        found = bind_call(self.source.name, self.hints, self.call, self.grid, self)
        if found.slower is not None:
            warnings.warn(f"{self.source.name}: {found.slower}", stacklevel=callers_level())
        pack = packed(found.kernel.signature.types, found.values)
        launch = found.kernel.kernel.bound(found.grid, pack, self.stream)
        page = page_of(self.source.name, self.ordinal) if found.kernel.signature.reports else None
        return Ready(launch, found.kernel.launch.schedule is not None, found.decided, page)

    def kernel(
        self, variant: Variant, fits: Fits, schedule: Schedule | None = None, kind: Kind | None = None
    ) -> BuiltKernel[LoadedKernel]:
        call = self.call if kind is None else replace(self.call, kind=kind)
        asked = self.source, self.hints, call, variant, self.target.name, self.grid, self.sm_count
        wanted = Wanted.of(*asked, schedule=schedule, fits=fits)
        found = find(wanted, self.ordinal)
        if found is None:
            needs = needs_of(wanted)
            if needs is not None:
                fits(needs)
            self._refuse_capture("compiled")
            found = loaded(wanted, self.ordinal)
        return found

    def address_integers(self, kind: Kind) -> AddressIntegers:
        return AddressIntegers.of(self.source, kind, self.target.name)

    def held(self, argument: str) -> Held:
        array = self.call.arrays[argument]
        return Held(array.address, array.byte_range[1] - array.address)

    def product_operand(self, parts: Sequence[SparseTensor], forms: ProductForms, entries: int) -> Operand:
        if not is_made(parts):
            self._refuse_capture("uploaded")
        s = operand(parts)
        state = s.derived.of(TensorState)
        if not state.has(self.ordinal, *forms.made):
            self._refuse_capture("uploaded")
        return state.operand(s, self.ordinal, forms, entries)

    def tile_operand(self, argument: str, s: SparseTensor, element: str) -> Mapping[Part, Held]:
        state = s.derived.of(TensorState)
        forms: dict[Part, Form] = {part: tile_form(s, part, element) for part in TILE_PARTS}
        if not state.has(self.ordinal, *forms.values()):
            self._refuse_capture("uploaded")
        return {part: state.form(s, form, self.ordinal).held for part, form in forms.items()}

    def computed_operand(self, argument: str, s: SparseTensor) -> tuple[Held, Held]:
        state, (values, codes) = s.derived.of(TensorState), computed_forms(s)
        if not state.has(self.ordinal, values, codes):
            self._refuse_capture("uploaded")
        return state.form(s, values, self.ordinal).held, state.form(s, codes, self.ordinal).held

    def violations(self) -> Held:
        page = page_of(self.source.name, self.ordinal)
        return Held(page.address, page.data.size)

    def tensor_map(self, box: BoxParameter, place: Held, numbers: Numbers) -> bytes:
        return encoded_map(box, place, numbers)

    def _refuse_capture(self, what: str) -> None:
        refuse_capture(self.source.name, what, self.stream)
