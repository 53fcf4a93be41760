"""Objects that are derived from a sparse tensor: operands on devices, launchers, warm calls. The tensor owns them
(`derived`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from math import prod

from louver.choose.demand import Demand
from louver.choose.ranges import Cutting
from louver.choose.reasons import Why
from louver.compile.plan.register_tiles import AnySchedule
from louver.compile.plan.schedule import Schedule
from louver.formats.tensor import SparseTensor
from louver.frontend.problem import Problem, accumulator_of
from louver.library.compiled import BuiltKernel, find, loaded
from louver.library.forms import DeviceForm, Form, Operand, ProductForms, Values, forms_of, on_device, operand_of
from louver.library.launch import Launcher
from louver.library.warm import WarmCalls
from louver.runtime.arrays import ArrayView
from louver.runtime.driver import is_capturing
from louver.runtime.memory import wait_for_stream
from louver.runtime.module import LoadedKernel

PRODUCT_FORMS = ProductForms()
"""The forms that products of 2:4 operands read, with the usual layout of metadata."""


class TensorState:
    """The derived objects of one sparse tensor, `s.derived.of(TensorState)`. They do not keep the tensor alive.

    copies_values: whether a form on a device is a copy of the tensor's values.
    rewritten: whether kernels write the tensor in the order of a stream (`louver.sparsify`).
    sealed: whether a captured graph does so. It would not write forms that are made later.
    """

    def __init__(self) -> None:
        self.warm = WarmCalls()
        self.copies_values = False
        self.rewritten = False
        self.sealed = False
        self._forms: dict[tuple[Form, int], DeviceForm] = {}
        self._offered: tuple[Form, ArrayView] | None = None
        self._launchers: dict[tuple[Problem, AnySchedule, int], Launcher] = {}
        self._lock = threading.Lock()

    def refresh(self, s: SparseTensor) -> None:
        """Write the tensor's values to all its forms on devices, after the kernels that read the old values and before
        later ones.
        """
        with self._lock:
            for form in self._forms.values():
                form.refresh(s)

    def rewrite(self, s: SparseTensor) -> None:
        """The same where the indices of the tensor have changed too: captured graphs read these forms."""
        with self._lock:
            for form in self._forms.values():
                form.rewrite(s)

    def find(self, form: Form, ordinal: int) -> DeviceForm | None:
        """A form on a device, if it was made."""
        return self._forms.get((form, ordinal))

    def written(self, made: DeviceForm | None, *, captured: bool) -> None:
        """Note that kernels write the tensor and all forms. made: a new form that they write too."""
        with self._lock:
            self.rewritten, self.sealed = True, self.sealed or captured
            if made is not None:
                self._offered = None
                self._forms[made.form, made.ordinal] = made

    def check_rewritable(self) -> None:
        """Raises ValueError if a product of the tensor reads it before earlier kernels of the stream have ended."""
        if any(_is_dependent(schedule) for _, schedule, _ in list(self._launchers)):
            raise ValueError(
                "a plan with dependent=True reads its sparse tensor while earlier kernels still run, got one for the tensor that "
                "louver.sparsify is to write: plan without it"
            )

    def forms(self) -> list[DeviceForm]:
        """All forms on devices."""
        return list(self._forms.values())

    def take(self, forms: Iterable[DeviceForm]) -> None:
        """Read these forms of the tensor, and make no others in their place."""
        with self._lock:
            for form in forms:
                self._forms[form.form, form.ordinal] = form
                self.copies_values |= form.form.of_values and form.form != Values()

    def lend(self, other: TensorState) -> None:
        """Let the state of another tensor on the same GPU, with equal indices, pattern, shape and element type, read
        the forms of the indices too.
        """
        with self._lock:
            lent = {key: form for key, form in self._forms.items() if not form.form.of_values}
        with other._lock:
            other._forms.update(lent)

    def launcher(
        self,
        s: SparseTensor,
        problem: Problem,
        schedule: AnySchedule,
        ordinal: int,
        stream: int,
        *,
        batch_invariant: bool = False,
        why: Why | None = None,
    ) -> Launcher:
        """The launcher of a product of `s` on a device. The first call compiles, loads and uploads.

        s: the tensor that owns this state.
        stream: the stream of the launch.
        batch_invariant: whether the advice of the error names this option.
        why: makes the reasons of a kernel that is compiled; None for a schedule that the caller names.

        Raises RuntimeError if something is missing while `stream` is being captured.
        """
        key = (problem, schedule, ordinal)
        found = self._launchers.get(key)
        if found is None:
            if self.rewritten and _is_dependent(schedule):
                raise ValueError(
                    "a plan with dependent=True reads its sparse tensor while earlier kernels still run, got a tensor that louver.sparsify "
                    "writes: plan without it"
                )
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
            launcher = _launcher(problem, schedule, kernel or loaded(*key, why), operand, s.shape)
            found = self._launchers.setdefault(key, launcher)
        return found

    def has_launcher(self, problem: Problem, schedule: AnySchedule, ordinal: int) -> bool:
        """Whether `launcher` has made this launcher."""
        return (problem, schedule, ordinal) in self._launchers

    def has(self, ordinal: int, *forms: Form) -> bool:
        """Whether all these forms exist on a device."""
        return all((form, ordinal) in self._forms for form in forms)

    def form(self, s: SparseTensor, form: Form, ordinal: int) -> DeviceForm:
        """A form of `s` on a device, made at the first call. s: the tensor that owns this state."""
        with self._lock:
            found = self._forms.get((form, ordinal))
            if found is None:
                if self.sealed and form != Values():
                    raise RuntimeError(
                        "a captured graph writes this tensor by louver.sparsify, and would not write what another product reads "
                        f"({type(form).__name__}): make its plans, or call louver.prepare, before the capture"
                    )
                found = (None if form.of_values else self._taken(form, ordinal)) or on_device(form, s, ordinal)
                self._forms[form, ordinal] = found
                self.copies_values |= form.of_values and form != Values()
            return found

    def offer(self, form: Form, memory: ArrayView) -> None:
        """Offer a form of the indices that another kernel has written, on the stream of `memory`. It is dropped if the
        first product reads another form.
        """
        with self._lock:
            self._offered = form, memory

    def _taken(self, form: Form, ordinal: int) -> DeviceForm | None:
        """The offered form, complete, if it equals `form`, else None. The offer ends in both cases."""
        offered, self._offered = self._offered, None
        if offered is None or (offered[0], offered[1].device) != (form, ordinal):
            return None
        memory = offered[1]
        wait_for_stream(ordinal, memory.stream or 0, "waiting for the metadata of a sparse tensor")
        return DeviceForm(form, memory.address, memory.size, ordinal, memory.owner)

    def operand(self, s: SparseTensor, ordinal: int, forms: ProductForms = PRODUCT_FORMS, entries: int = 1) -> Operand:
        """The operand of products that read these forms. entries: the number of matrices."""
        held = {form: self.form(s, form, ordinal) for form in forms.made}
        places: dict[Form | None, int] = {form: each.address for form, each in held.items()}
        return operand_of(s, forms, places, entries, tuple(held.values()))


def _is_dependent(schedule: AnySchedule) -> bool:
    return isinstance(schedule, Schedule) and schedule.occupancy.dependent


def _launcher(
    problem: Problem,
    schedule: AnySchedule,
    kernel: BuiltKernel[LoadedKernel],
    operand: Operand,
    shape: tuple[int, ...],
) -> Launcher:
    cutting = None
    if isinstance(schedule, Schedule) and schedule.cuts:
        cutting = Cutting.of(Demand.of_problem(problem), schedule)
    return Launcher(kernel, operand, shape, cutting)


def state_of(s: object, axis: int) -> TensorState | None:
    """The state of the tensor. None if it has no state yet, or if `s` is not a tensor that is sparse along `axis` (-1
    or -2).

    The axis is checked because a transposed view shares the state: a warm call could confuse the two.
    """
    if isinstance(s, SparseTensor) and s.axis == len(s.shape) + axis:
        return s.derived.find(TensorState)
    return None
