"""Passes: the named steps of a pipeline, and the loop that runs and verifies them.

A pipeline is a tuple of steps. A step is a pass, a tuple of steps, or the first of several ways that serves the kernel. A
pass that cannot serve it refuses. A refusal is a value, which the state keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeAlias, TypeVar

from xdsl.dialects.builtin import ModuleOp

from louver.compile.defect import DefectError, defect, is_foreign
from louver.compile.dump import NOWHERE, Watch
from louver.ir.refusal import Refusal
from louver.ir.tile import FuncOp
from louver.isa.rule import RuleError


@dataclass(slots=True)
class State:
    """A kernel between two passes.

    Passes rewrite `module` in place or replace it. The state of a pipeline adds fields for the results of its passes.

    tile: the caller's module, from the pass `tile-ir` on.
    refusals: of the ways that do not serve the kernel, in the order in which they were tried.
    rewritten: whether a pass has rewritten the module since it was verified.
    watch: receives the result of each pass.
    """

    module: ModuleOp
    tile: ModuleOp = field(init=False)
    refusals: tuple[Refusal, ...] = field(default=(), kw_only=True)
    rewritten: bool = field(default=False, kw_only=True)
    watch: Watch = field(default=NOWHERE, kw_only=True)

    @property
    def kernel(self) -> FuncOp:
        """The kernel of tile IR. Raises ValueError unless the module holds one."""
        kernels = [op for op in self.module.body.ops if isinstance(op, FuncOp) and op.is_public]
        if len(kernels) != 1:
            raise RuleError(f"a module holds one kernel, got {len(kernels)}: compile one kernel at a time")
        return kernels[0]


class UnfitError(Exception):
    """A call does not fit the kernel that is compiled for it. error: as the call raises it.

    It is neither a refusal of the kernel nor a defect: passes let it through.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


S = TypeVar("S", bound=State)
Seen = TypeVar("Seen", bound=State, contravariant=True)


@dataclass(frozen=True, slots=True)
class Pass(Generic[Seen]):
    """A step of a pipeline.

    run: changes the state in place. It returns the object that a dump prints, or None for the module. It refuses a kernel
    by a `Refusal`, returned or as the RuleError of its rule. Any other error is a defect of Louver.
    """

    name: str
    run: Callable[[Seen], object]


@dataclass(frozen=True, slots=True)
class Way(Generic[Seen]):
    """A way through a part of a pipeline.

    begin: changes its own copy of the state before the steps. It may refuse, as a pass does.
    told: the words before its refusal where another way's leads; None not to tell it; "" for a refusal that leads.
    """

    steps: Step[Seen]
    begin: Callable[[Seen], object] = lambda state: None
    told: str | None = ""


@dataclass(frozen=True, slots=True)
class First(Generic[Seen]):
    """The first way that serves the kernel. If none does, the first of the refusals that may lead is the pipeline's."""

    ways: Sequence[Way[Seen]]


Step: TypeAlias = "Pass[Seen] | First[Seen] | Sequence[Step[Seen]]"


def on_module(rewrite: Callable[[ModuleOp], None]) -> Pass[State]:
    """A pass that rewrites the module in place. Its name is the name of the function."""
    return Pass(rewrite.__name__.replace("_", "-"), lambda state: rewrite(state.module))


def passes_of(step: Step[S]) -> tuple[Pass[S], ...]:
    """The passes of a step, in order. What several ways have is given once."""
    match step:
        case Pass():
            return (step,)
        case First():
            inner = [way.steps for way in step.ways]
        case _:
            inner = step
    return tuple(dict.fromkeys(found for each in inner for found in passes_of(each)))


def names(step: Step[Any]) -> tuple[str, ...]:
    """The passes' names, in order."""
    return tuple(each.name for each in passes_of(step))


def attempt(steps: Step[S], state: S) -> S | Refusal:
    """The state after the steps, or the refusal of the one that does not serve the kernel.

    Passes change the given state. Of several ways each has its own copy. The module is verified at the end, if any pass
    rewrote it. With an active watch it is verified after each pass. To verify takes about as long as to run a pass.

    Raises DefectError if a pass fails otherwise or leaves an invalid module, and errors of Triton and of the machine as they
    are, and UnfitError where the call at hand does not fit the kernel.
    """
    found = _attempt(steps, state)
    if not isinstance(found, Refusal) and found.rewritten:
        _verify(found, names(steps)[-1])
    return found


def _verify(state: State, name: str) -> None:
    with _defects(state, name):
        state.module.verify()
    state.rewritten = False


def _attempt(steps: Step[S], state: S) -> S | Refusal:
    """The same, without the last verification."""
    if isinstance(steps, First):
        return _first(steps, state)
    if isinstance(steps, Pass):
        steps = (steps,)
    for each in steps:
        if not isinstance(each, Pass):
            found = _attempt(each, state)
            if isinstance(found, Refusal):
                return found
            state = found
            continue
        made = _refusal_or(each.run, state, each.name)
        if isinstance(made, Refusal):
            return made
        state.rewritten |= made is None
        if state.watch.active:
            _verify(state, each.name)
        state.watch.write(each.name, state.module if made is None else made)
    return state


def _first(step: First[S], state: S) -> S | Refusal:
    refused: list[tuple[str | None, Refusal]] = []
    for way in step.ways:
        own = copy(state)
        begun = _refusal_or(way.begin, own, f"before-{names(way.steps)[0]}")
        found = begun if isinstance(begun, Refusal) else _attempt(way.steps, own)
        if not isinstance(found, Refusal):
            return found
        state.refusals = (*state.refusals, found)
        refused.append((way.told, found))
    leads = next(found for told, found in refused if told == "")
    return replace(leads, beside=(*leads.beside, *((told, found) for told, found in refused if told)))


def _refusal_or(run: Callable[[S], object], state: S, name: str) -> object:
    """What a pass returns, or its refusal. Only here does an error become a value."""
    try:
        with _defects(state, name):
            return run(state)
    except RuleError as error:
        return Refusal.of(error)


@contextmanager
def _defects(state: State, name: str) -> Generator[None]:
    """Raises DefectError in place of an error that is no rule's."""
    try:
        yield
    except (RuleError, DefectError, UnfitError):
        raise
    except Exception as error:
        if is_foreign(error):
            raise
        raise defect(name, getattr(state, "tile", None), state.module, state.watch, error) from error


def run_passes(steps: Step[S], state: S) -> S:
    """The state after the steps, see `attempt`. Raises the error of a refusal."""
    found = attempt(steps, state)
    if isinstance(found, Refusal):
        raise found.told()
    return found


def _copy(state: State) -> None:
    state.tile, state.module = state.module, state.module.clone()


COPY: Pass[State] = Pass("tile-ir", _copy)
"""Copies the module, so that the caller's module does not change."""
