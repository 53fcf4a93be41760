"""A Triton kernel without decorators, launched with sparse arguments."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

from louver.formats.dynamo import opaque
from louver.formats.pattern import NoKernelWarning, has_kernels
from louver.ir.product import ProductNest
from louver.isa.targets import TARGETS
from louver.runtime.adapters import make_wait
from louver.runtime.callers import callers_level
from louver.runtime.device import Device, current_device
from louver.runtime.violations import check_violations
from louver.user.arguments import Call, Kind, bind, classify, plain
from louver.user.compiled import Variant, Wanted, assembled, compile_wanted
from louver.user.dense import launch_dense
from louver.user.device_and_stream import place
from louver.user.explanation import Explanation
from louver.user.hints import Hints
from louver.user.interpreted import TARGET, interpret
from louver.user.launched_calls import LaunchedCall, LaunchedCalls
from louver.user.retile import SM_COUNT, is_decided
from louver.user.source import KernelSource, ReadOnce

if TYPE_CHECKING:
    from louver.compile.compiled import CompiledKernel
    from louver.compile.needs import Fits, Needs
    from louver.compile.plan.schedule import Schedule
    from louver.emulator import Report

T = TypeVar("T")

Grid: TypeAlias = "Sequence[int] | Callable[[dict[str, Any]], Sequence[int]]"
"""Programs along each axis, or a function of the call's arguments by name that computes them."""


@opaque
class JitKernel:
    """A kernel that is launched by `self[grid](…)`. Threads may share it. Outputs are written in place. Arrays on a GPU
    are used in the order of the caller's stream. Libraries on different streams are rejected. Host arrays (NumPy) take
    the reference path, which interprets the kernel one program at a time, with one `louver.NoKernelWarning` for a kernel
    that GPUs refuse for its sparse arguments; `emulate` runs the compiled kernel instead.
    """

    def __init__(self, source: KernelSource, hints: Hints) -> None:
        self._source = source
        self._hints = hints
        self._parameters = source.parameters
        self._recent = LaunchedCalls()
        self._compiled: dict[str, CompiledKernel] = {}
        # What the kernels need that a call did not fit, before they were lowered. They are not read again to find it.
        self._unfit: dict[str, Needs] = {}
        self._judged: set[tuple[Kind, Hints]] = set()

    def __getitem__(self, grid: Grid) -> Callable[..., None]:
        """A launcher over a grid: up to three sizes, or a function of the call's arguments. A size of 0 launches nothing."""
        return partial(self._launch, grid)

    @property
    def prepare(self) -> Runner[None]:
        """`prepare[grid](…)` does all the work of a first call except the launch. A stream can be captured afterwards."""
        return Runner(self._prepare)

    @property
    def emulate(self) -> Runner[Report]:
        """`emulate[grid](…)` runs the compiled kernel on the emulator, on NumPy arrays in place. Returns its report."""
        return Runner(self._emulate)

    def __repr__(self) -> str:
        return f"louver.jit({self._source.name})"

    def _launch(self, grid: Grid, *args: Any, **kwargs: Any) -> None:
        recent = self._recent
        found = recent.find(args, kwargs)
        if found is not None and (grid == found.grid or computes(grid, found)):
            found.launch(recent.stream(found.ordinal))
            return
        check_violations()
        self._first(grid, args, kwargs)

    def _first(self, grid: Grid, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A call that is not known from an earlier launch."""
        call, hints = self._call(args, kwargs)
        ordinal, stream = place(self._source.name, call.arrays, call.sparse)
        sizes = grid_sizes(grid, call.given)
        if ordinal is None:
            self._interpreted(call, hints, sizes)
            return
        if 0 in sizes:
            return
        if not call.sparse and self._is_tritons(call):
            launch_dense(self._source, hints, call, sizes)
            return
        from louver.user.launch import ready

        reads = self._source.reads
        bound = ready(self._source, hints, call, sizes, ordinal, stream)
        for array in call.arrays.values():
            make_wait(array, stream)
        bound.launch()
        self._recent.keep(args, kwargs, LaunchedCall.of(bound.launch, sizes, call, reads, ordinal, bound.page))

    def _prepare(self, grid: Grid, *args: Any, **kwargs: Any) -> None:
        call, hints = self._call(args, kwargs)
        ordinal, stream = place(self._source.name, call.arrays, call.sparse)
        if ordinal is None:
            raise ValueError("prepare needs arrays on a GPU: move them there")
        sizes = grid_sizes(grid, call.given)
        if 0 in sizes:
            return
        from louver.user.launch import ready

        ready(self._source, hints, call, sizes, ordinal, stream)

    def _emulate(self, grid: Grid, *args: Any, **kwargs: Any) -> Report:
        call, hints = self._call(args, kwargs)
        ordinal, _ = place(self._source.name, call.arrays, call.sparse)
        if ordinal is not None:
            raise ValueError("the emulator takes arrays in host memory, got arrays on a GPU")
        return self._emulated(call, hints, grid_sizes(grid, call.given))

    def _emulated(self, call: Call, hints: Hints, sizes: tuple[int, ...]) -> Report:
        from louver.user.emulated import emulate

        source = ReadOnce(self._source)

        def compiled(kind: Kind, variant: Variant, fits: Fits, schedule: Schedule | None) -> CompiledKernel:
            asked = source, hints, replace(call, kind=kind), variant, TARGET, sizes
            return self._compile(Wanted.of(*asked, schedule=schedule, fits=fits))

        return emulate(source, hints, compiled, call, sizes)

    def _interpreted(self, call: Call, hints: Hints, sizes: tuple[int, ...]) -> None:
        """Interpret a call, with one warning for a kernel that GPUs refuse. Only products have kernels for other
        patterns than those of register tiles, and not every kernel is a product.
        """
        tiles = all(has_kernels("register tiles", str(s.pattern), s.dtype.name) for s in call.sparse.values())
        if not tiles and (call.kind, hints) not in self._judged:
            self._judged.add((call.kind, hints))
            try:
                compile_wanted(Wanted.of(self._source, hints, call, "bulk", TARGET, sizes))
            except ValueError as error:
                why = "\n".join((str(error), *getattr(error, "__notes__", ())))
                text = f"louver interprets {self._source.name} on the CPU, and GPUs have no kernel for it: {why}"
                warnings.warn(text, NoKernelWarning, stacklevel=callers_level())
        interpret(self._source, call, sizes)

    @property
    def explain(self) -> Explainer:
        """`explain[grid](…)` says how a call runs on the current GPU (without one, on an H200): its kernel family, its schedule,
        and the reasons. `explain(…)` says so for any grid, without the checks of a launch that depend on its grid.
        """
        return Explainer(self._explain)

    def _explain(self, grid: Grid | None, *args: Any, **kwargs: Any) -> Explanation:
        call, hints = self._call(args, kwargs)
        return self._explained(call, hints, grid_sizes(grid, call.given))

    def _explained(self, call: Call, hints: Hints, grid: tuple[int, ...]) -> Explanation:
        from louver.compile.compiled import CompiledProduct
        from louver.formats.lists import describe_lists
        from louver.library.compiled import BuiltKernel, Launch
        from louver.library.forms import as_stored, forms_of
        from louver.user.explained import Unlaunched, reasons_of
        from louver.user.units import describe_dots, reasons_for_dense

        def built(wanted: Wanted) -> BuiltKernel[tuple[Wanted, CompiledKernel]]:
            kernel = self._compile(wanted)
            return BuiltKernel((wanted, kernel), Launch.of(kernel.made))

        device = current_device()
        target = device.target if isinstance(device, Device) and device.target in TARGETS else TARGET
        unlaunched = Unlaunched(built, ReadOnce(self._source), hints, call, grid, TARGETS[target])
        wanted, kernel = unlaunched.chosen()
        found = assembled(wanted, kernel)
        made, refusal, reasons = found.kernel.made, found.kernel.refusal, reasons_of(found, wanted)
        if isinstance(made, CompiledProduct):
            longer = None
            if made.nest.a.selection.indexed:
                s = as_stored(call.sparse[made.nest.a.arguments[0]]).to("cpu")
                lists = forms_of(made.schedule, s).lists
                longer = None if lists is None else describe_lists(s, lists.rows)
            sizes = None if hints.schedule else reasons.sizes
            decided = sizes is not None and is_decided(made.nest, made.schedule, sizes, SM_COUNT)
            return Explanation("product", refusal, made.schedule, made.ptx, longer, reasons=reasons, decided=decided)
        dots = tuple(dict.fromkeys(describe_dots(made)))
        warning = "\n".join(reasons_for_dense(found)) or None
        return Explanation("register tiles", refusal, None, made.ptx, warning, dots, reasons=reasons)

    def _compile(self, wanted: Wanted) -> CompiledKernel:
        product, tiles = wanted.product_key, wanted.key
        found = self._compiled.get(product) or self._compiled.get(tiles)
        if found is not None:
            return found
        known = self._unfit.get(product) or self._unfit.get(tiles)
        if known is not None:
            wanted.fits(known)

        def fits(needs: Needs) -> None:
            try:
                wanted.fits(needs)
            except Exception:
                self._unfit[product if isinstance(needs.checked, ProductNest) else tiles] = needs
                raise

        found = compile_wanted(replace(wanted, fits=fits))
        self._compiled[product if found.refusal is None else tiles] = found
        return found

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Call, Hints]:
        given, more = bind(self._source.name, self._parameters, args, kwargs)
        return classify(self._parameters, given), self._hints.updated(more)

    def _typical(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """The call with the constants that a launch would have, of the first config if there are several."""
        return self._call(args, kwargs)[0]

    def _is_tritons(self, call: Call) -> bool:
        """Whether Triton can launch the call: all arrays are PyTorch's."""
        return self._source.native is not None and all(array.kind == "torch" for array in call.arrays.values())


@opaque
@dataclass(frozen=True, slots=True)
class Runner(Generic[T]):
    """`self[grid](…)` calls `run(grid, …)`."""

    run: Callable[..., T]

    def __getitem__(self, grid: Grid) -> Callable[..., T]:
        return partial(self.run, grid)


class Explainer(Runner[Explanation]):
    """`self(…)` calls `run(None, …)` too, for any grid."""

    def __call__(self, *args: Any, **kwargs: Any) -> Explanation:
        return self.run(None, *args, **kwargs)


def grid_sizes(grid: Grid | None, given: dict[str, Any]) -> tuple[int, ...]:
    """The grid's sizes, 0 in any of which launches nothing; none for an unknown grid. Raises ValueError for an invalid grid."""
    if grid is None:
        return ()
    sizes: Any = grid(given) if callable(grid) else grid
    try:
        found = tuple(operator.index(plain(each)) for each in cast("Sequence[Any]", sizes))
    except TypeError:
        found = ()
    if not 1 <= len(found) <= 3 or min(found) < 0:
        raise ValueError(f"a grid has 1 to 3 axes of 0 or more programs, each an integer, got {sizes!r}")
    return found


def computes(grid: Grid, recent: LaunchedCall) -> bool:
    """Whether a grid function gives the checked grid. False if it needs the arrays, which are not kept."""
    try:
        return callable(grid) and grid_sizes(grid, recent.meta) == recent.grid
    except Exception:
        # The user's function may fail in any way without the arrays. Called with all arguments, it raises its own
        # error.
        return False
