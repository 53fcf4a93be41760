"""Passes: the named steps of a pipeline, and the loop that runs, verifies and dumps them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from xdsl.dialects.builtin import ModuleOp

from louver.compile.dump import NOWHERE, Watch
from louver.ir.tile import FuncOp


@dataclass(slots=True)
class State:
    """A kernel between two passes.

    Passes rewrite `module` in place or replace it. The state of a pipeline adds fields for the results of its passes.
    """

    module: ModuleOp

    @property
    def kernel(self) -> FuncOp:
        """The kernel of tile IR. Raises ValueError unless the module holds one."""
        kernels = [op for op in self.module.body.ops if isinstance(op, FuncOp) and op.is_public]
        if len(kernels) != 1:
            raise ValueError(f"a module holds one kernel, got {len(kernels)}: compile one kernel at a time")
        return kernels[0]


S = TypeVar("S", bound=State)
Seen = TypeVar("Seen", bound=State, contravariant=True)


@dataclass(frozen=True, slots=True)
class Pass(Generic[Seen]):
    """A step of a pipeline.

    run: changes the state in place. It returns the object that a dump prints, or None for the module.
    """

    name: str
    run: Callable[[Seen], object]


def on_module(rewrite: Callable[[ModuleOp], None]) -> Pass[State]:
    """A pass that rewrites the module in place. Its name is the name of the function."""
    return Pass(rewrite.__name__.replace("_", "-"), lambda state: rewrite(state.module))


def names(passes: Sequence[Pass[S]]) -> tuple[str, ...]:
    """The passes' names, in order."""
    return tuple(each.name for each in passes)


def run_passes(passes: Sequence[Pass[S]], state: S, watch: Watch = NOWHERE) -> None:
    """Runs passes in order.

    The module is verified after the last pass if any of them rewrote it. With an active watch it is verified after each
    pass. To verify takes about as long as to run a pass. Raises the error of a pass that rejects the kernel.
    """
    rewritten = False
    for each in passes:
        made = each.run(state)
        rewritten |= made is None
        if watch.active or (each is passes[-1] and rewritten):
            state.module.verify()
        watch.write(each.name, state.module if made is None else made)


def _copy(state: State) -> None:
    state.module = state.module.clone()


COPY: Pass[State] = Pass("tile-ir", _copy)
"""Copies the module, so that the caller's module does not change."""
