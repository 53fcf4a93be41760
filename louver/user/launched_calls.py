"""Recent calls, keyed by everything that their checks read. A repeated call is looked up and launched without checks."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from louver.formats.tensor import SparseTensor
from louver.runtime.known_calls import KnownCalls, keep_recent
from louver.runtime.violations import Page
from louver.user.arguments import Call
from louver.user.reached import Read, reads_of, unchanged

if TYPE_CHECKING:
    from louver.runtime.module import BoundLaunch
    from louver.user.found_launch import FoundLaunch

RECENT_CALLS = 512
"""Calls that a kernel remembers. At this number it forgets all of them."""

RECENT_STREAMS = 16
"""Streams for which a call keeps launches."""

_RECORDED = "PyTorch records the call for a gradient"


Repeatable: TypeAlias = "BoundLaunch | FoundLaunch"
"""A launch that is known."""


@dataclass(frozen=True, slots=True)
class LaunchedCall:
    """A call that was checked and launched.

    first: its launch. grid: programs along each axis. meta: numbers and constants, for computed grids. sparse: its
        sparse tensors (same objects). reads: what its functions read. ordinal: the device. sent: launches by stream.
        page: where the kernel reports violations, if it may.
    """

    first: Repeatable
    grid: tuple[int, ...]
    meta: dict[str, Any]
    sparse: tuple[weakref.ref[SparseTensor], ...]
    reads: tuple[Read, ...]
    ordinal: int
    page: Page | None = None
    sent: dict[int, Repeatable] = field(default_factory=dict[int, Repeatable])

    @classmethod
    def of(
        cls,
        launch: Repeatable,
        grid: tuple[int, ...],
        call: Call,
        reads: tuple[Read, ...],
        ordinal: int,
        page: Page | None = None,
    ) -> LaunchedCall:
        """The record of a call, without its arrays. reads: of the kernel; those of its constants are added."""
        meta = {name: value for name, value in call.given.items() if name not in call.held}
        sparse = tuple(weakref.ref(each) for each in call.sparse.values())
        compiled_in = reads_of(value for _, value in call.kind.constexprs)
        return cls(launch, grid, meta, sparse, (*reads, *compiled_in), ordinal, page)

    @property
    def alive(self) -> bool:
        """Whether its sparse tensors are alive (a new tensor may have a dead one's identity) and its reads unchanged."""
        return unchanged(self.reads) and all(each() is not None for each in self.sparse)

    def launch(self, stream: int) -> None:
        if self.page is not None:
            self.page.check()
        launch = self.sent.get(stream)
        if launch is None:
            launch = keep_recent(self.sent, stream, self.first.on(stream), RECENT_STREAMS)
        code = launch.send()[0]
        if code:
            launch.recover(int(code))


class LaunchedCalls(KnownCalls[LaunchedCall]):
    """Recent calls of a kernel."""

    __slots__ = ()

    def find(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> LaunchedCall | None:
        """The call with these arguments; None for a call that must be checked."""
        if not self.calls or self.modes() or self.trace() is not None:
            return None
        try:
            found = self.calls.get(self._key(args, kwargs))
        except (RuntimeError, TypeError, AttributeError):
            # Tensors without strides or memory, or with gradients, and arrays of other libraries: the checks explain them.
            return None
        return found if found is not None and found.alive else None

    def keep(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], call: LaunchedCall) -> None:
        """Remember a call if all its arrays are PyTorch's."""
        if not self.know_torch():
            return
        with contextlib.suppress(RuntimeError, TypeError, AttributeError):
            keep_recent(self.calls, self._key(args, kwargs), call, RECENT_CALLS)

    def _key(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Hashable:
        """Everything that the checks read. Raises for arguments that only the checks can judge."""
        types, grad_enabled = self.types, self.grad_enabled
        # The number of positional arguments separates a positional text from a keyword.
        facts: list[Hashable] = [len(args)]
        for value in args:
            kind = value.__class__
            if kind is int:
                facts.append(value)
            elif kind in types:
                # Inlined: a function call for each argument would cost as much as the launch.
                if value.requires_grad and grad_enabled():
                    raise TypeError(_RECORDED)
                facts.append(
                    (
                        value.data_ptr(),
                        value.dtype,
                        value.shape,
                        value.stride(),
                        value.get_device(),
                        value.is_neg(),
                    )
                )
            else:
                facts.append(self._facts(value))
        if kwargs:
            for name, value in kwargs.items():
                facts.append(name)
                facts.append(value if type(value) is int else self._facts(value))
        return tuple(facts)

    def _facts(self, value: Any) -> Hashable:
        """An argument's facts, which differ from those of any other type."""
        kind = value.__class__
        if kind is SparseTensor:
            return ("sparse", id(value))
        if kind in self.types:
            if value.requires_grad and self.grad_enabled():
                raise TypeError(_RECORDED)
            return (
                value.data_ptr(),
                value.dtype,
                value.shape,
                value.stride(),
                value.get_device(),
                value.is_neg(),
            )
        if kind in (str, int) or value is None:
            return value
        if kind in (bool, float):
            # These equal integers, and 0 equals -0, but they are different arguments.
            return (kind, repr(value))
        if isinstance(value, tuple):
            elements = cast("tuple[Any, ...]", value)
            return ("tuple", getattr(elements, "_fields", None), *(self._facts(each) for each in elements))
        if hasattr(value, "block_shape"):
            sizes = tuple(value.shape), tuple(value.strides), tuple(value.block_shape)
            return (self._facts(value.base), *sizes, getattr(value, "padding", "zero"))
        if kind.__name__ == "constexpr":
            # Triton's constexprs compare by value, so 1 equals True.
            return ("constexpr", self._facts(value.value))
        if kind.__module__.partition(".")[0] == "triton":
            return value
        raise TypeError("only PyTorch's tensors, sparse tensors, descriptors and constants are known by their facts")
