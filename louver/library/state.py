"""Objects made for a sparse tensor: operands on devices, launchers, warm calls. The tensor keeps them (`derived`)."""

from __future__ import annotations

import threading
from math import prod

from louver.compile.plan.schedule import Schedule
from louver.formats.tensor import SparseTensor
from louver.frontend.problem import Problem, accumulator_of
from louver.library.compiled import BuiltKernel, find, loaded
from louver.library.configure import Demand
from louver.library.forms import DeviceForm, Form, Operand, ProductForms, forms_of, on_device, operand_of
from louver.library.launch import Launcher
from louver.library.ranges import Cutting
from louver.library.warm import WarmCalls
from louver.runtime.arrays import ArrayView
from louver.runtime.driver import is_capturing
from louver.runtime.memory import wait_for_stream
from louver.runtime.module import LoadedKernel

PRODUCT_FORMS = ProductForms()
"""The forms that products of 2:4 operands read, by the usual loads of metadata."""


class TensorState:
    """Objects made for one sparse tensor, `s.derived.of(TensorState)`. They do not keep the tensor alive."""

    def __init__(self) -> None:
        self.warm = WarmCalls()
        self._forms: dict[tuple[Form, int], DeviceForm] = {}
        self._offered: tuple[Form, ArrayView] | None = None
        self._launchers: dict[tuple[Problem, Schedule, int], Launcher] = {}
        self._lock = threading.Lock()

    def refresh(self, s: SparseTensor) -> None:
        """Write the tensor's values to where they are on devices, after all that reads them and before anything that will."""
        with self._lock:
            for form in self._forms.values():
                form.refresh(s)

    def launcher(
        self,
        s: SparseTensor,
        problem: Problem,
        schedule: Schedule,
        ordinal: int,
        stream: int,
        *,
        batch_invariant: bool = False,
    ) -> Launcher:
        """A product of `s`, the state's own tensor, on a device; compiled, loaded and uploaded the first time.

        Raises RuntimeError when something is missing and `stream`, where the launch will go, is being captured; batch_invariant: what
        to call then.
        """
        key = (problem, schedule, ordinal)
        found = self._launchers.get(key)
        if found is None:
            forms = forms_of(schedule, s)
            kernel = find(*key)
            if not (kernel and self.has(ordinal, *forms.made)) and is_capturing(stream):
                usual = accumulator_of(problem.a)
                kind = "" if problem.kind == "linear" else f", kind={problem.kind!r}"
                sums = "" if problem.accumulate == usual else f", accumulate={problem.accumulate!r}"
                epilogue = f", epilogue=louver.{problem.epilogue!r}" if problem.epilogue.floating else ""
                batch = {None: "", "dense": ", batch=…", "both": "", "sparse": ", batch=1"}[problem.batch]
                invariant = ", batch_invariant=True" if batch_invariant else ""
                raise RuntimeError(
                    "a product must be compiled and its operand uploaded before its stream is captured: call "
                    f"louver.prepare(s, n=…{kind}, bias={problem.bias is not None}, "
                    f"out_dtype={problem.out!r}, layout={problem.b_layout!r}{batch}{sums}{epilogue}{invariant}) before the capture"
                )
            operand = self.operand(s, ordinal, forms, prod(s.shape[:-2]))
            launcher = _launcher(problem, schedule, kernel or loaded(*key), operand, s.shape)
            found = self._launchers.setdefault(key, launcher)
        return found

    def has(self, ordinal: int, *forms: Form) -> bool:
        """Whether all these forms have been made on a device."""
        return all((form, ordinal) in self._forms for form in forms)

    def form(self, s: SparseTensor, form: Form, ordinal: int) -> DeviceForm:
        """A form of `s`, the state's own tensor, on a device, made the first time."""
        with self._lock:
            found = self._forms.get((form, ordinal))
            if found is None:
                found = (None if form.of_values else self._taken(form, ordinal)) or on_device(form, s, ordinal)
                self._forms[form, ordinal] = found
            return found

    def offer(self, form: Form, memory: ArrayView) -> None:
        """Take a form of the indices that a kernel has written on the way, on the stream of `memory`. It goes if the first product reads
        another.
        """
        with self._lock:
            self._offered = form, memory

    def _taken(self, form: Form, ordinal: int) -> DeviceForm | None:
        """The form that was offered, complete, if it is this one; there is none from then on."""
        offered, self._offered = self._offered, None
        if offered is None or (offered[0], offered[1].device) != (form, ordinal):
            return None
        memory = offered[1]
        wait_for_stream(ordinal, memory.stream or 0, "waiting for the metadata of a sparse tensor")
        return DeviceForm(form, memory.address, memory.size, ordinal, memory.owner)

    def operand(self, s: SparseTensor, ordinal: int, forms: ProductForms = PRODUCT_FORMS, entries: int = 1) -> Operand:
        """The operand of products in these forms, as so many matrices."""
        held = {form: self.form(s, form, ordinal) for form in forms.made}
        places: dict[Form | None, int] = {form: each.address for form, each in held.items()}
        return operand_of(s, forms, places, entries, tuple(held.values()))


def _launcher(
    problem: Problem,
    schedule: Schedule,
    kernel: BuiltKernel[LoadedKernel],
    operand: Operand,
    shape: tuple[int, ...],
) -> Launcher:
    cutting = Cutting.of(Demand.of_problem(problem), schedule) if schedule.cuts else None
    return Launcher(kernel, operand, shape, cutting)


def state_of(s: object, axis: int) -> TensorState | None:
    """The tensor's state, None before there is one, and for what is no tensor sparse along `axis` (-1 or -2).

    A transposed view shares it, so that a warm call would take the one for the other.
    """
    if isinstance(s, SparseTensor) and s.axis == len(s.shape) + axis:
        return s.derived.find(TensorState)
    return None
