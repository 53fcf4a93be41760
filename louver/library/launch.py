"""Launches of a product: a kernel on a device, its sparse operand, and the arguments that each call binds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from louver.library.bind import Sized, bind_product, packed
from louver.library.compiled import BuiltKernel
from louver.library.forms import Operand
from louver.library.fused import NOTHING_BOUND, Bound
from louver.library.ranges import Cutting, Ranges, with_workspace
from louver.library.rows import RecentMaps, Rows
from louver.runtime.adapters import DEFAULT_STREAMS
from louver.runtime.driver import capture_question, is_capturing
from louver.runtime.module import BoundLaunch, LoadedKernel
from louver.runtime.workspace import workspace


class CapturedApart:
    """A launch that has a workspace. Outside a capture it uses the workspace of its stream; each capture has its own.

    send, recover: as in `BoundLaunch`.

    No capture can begin on the legacy default stream, so `send` does not query the capture state there.
    """

    __slots__ = ("_asking", "send")

    def __init__(self, bind: Callable[[int], BoundLaunch], stream: int) -> None:
        self._asking = asking = _Asking(bind, stream)
        self.send: Callable[[], tuple[Any, ...]] = asking.send
        if asking.eager is not None and stream in DEFAULT_STREAMS:
            self.send = asking.eager.send

    def on(self, stream: int) -> CapturedApart:
        """The same launch on another stream, with the workspace of that stream."""
        return CapturedApart(self._asking.bind, stream)

    def recover(self, code: int) -> None:
        """Send the launch again after the driver refused it with this result code, or raise an error."""
        self._asking.now().recover(code)

    def __call__(self) -> None:
        """Send the launch. Raises as `BoundLaunch` does."""
        self._asking.now()()


class _Asking:
    """A launch that queries whether its stream is being captured, each time it is sent.

    eager: the launch outside a capture, made when it is first needed.

    It is an object of its own to avoid a reference cycle. A cycle would keep device memory until a garbage collection,
    which may come during a capture.
    """

    __slots__ = ("_capture", "bind", "eager", "stream")

    def __init__(self, bind: Callable[[int], BoundLaunch], stream: int) -> None:
        self.bind = bind
        self.stream = stream
        self._capture = capture_question(stream)
        self.eager = None if is_capturing(stream) else bind(stream)

    def send(self) -> tuple[Any, ...]:
        """Send the launch. Returns a tuple that begins with the driver's result code."""
        code, capture = self._capture()
        # The local variable keeps the launch alive, and with it the arguments that the driver reads.
        launch = self.now() if code or capture or self.eager is None else self.eager
        return launch.send()

    def now(self) -> BoundLaunch:
        """The launch for the present capture state of the stream."""
        if is_capturing(self.stream):
            return self.bind(self.stream)
        if self.eager is None:
            self.eager = self.bind(self.stream)
        return self.eager


Sendable: TypeAlias = BoundLaunch | CapturedApart
"""A launch whose arguments are all fixed."""


class Launcher:
    """A loaded kernel with its sparse operand [m, k], or a batch of them. Threads may share it, because a bound
    launch never changes.
    """

    __slots__ = ("_cutting", "_maps", "_operand", "_shape", "_types", "kernel", "signature")

    def __init__(
        self,
        product: BuiltKernel[LoadedKernel],
        operand: Operand,
        shape: tuple[int, ...],
        cutting: Cutting | None = None,
    ) -> None:
        """cutting: the properties by which K is cut; None for a kernel without ranges."""
        self._cutting = cutting
        self.kernel = product.kernel
        self.signature = product.signature
        self._shape = shape[-2:]
        self._operand = operand
        self._maps = RecentMaps()
        self._types = product.signature.types

    def sized(self, n: int, dense: Rows, out: Rows, planned: tuple[int, int] | None = None) -> Sized:
        """The numbers of a launch with such matrices. They do not depend on the addresses.

        planned: N and the number of products that decide the cut of K. A launch with more tiles is cut by its own
            sizes. By default the launch's own sizes decide.
        """
        m, k = self._shape
        maps = {"a": self._operand.values, "b": dense, "d": out}
        cut = None if self._cutting is None else self._ranges(self._cutting, n, out.batch, planned or (n, out.batch))
        return Sized.of(self.signature, (m, n, k), self._operand.depth, maps, self.kernel.device.sm_count, cut)

    def bound(self, sized: Sized, dense: Rows, out: Rows, bound: Bound = NOTHING_BOUND, stream: int = 0) -> Sendable:
        """A launch on a stream, with all arguments bound. bound: the operands of the epilogue."""

        def bind(given: Bound, to: int) -> BoundLaunch:
            places = {"a": self._operand.values.held, "b": dense.held, "d": out.held}
            values = bind_product(self.signature, sized, places, self._operand, given, self._maps)
            return self.kernel.bound(sized.ctas, packed(self._types, values), to)

        if self._cutting is None or sized.cut is None or self._cutting.pairs:
            return bind(bound, stream)
        room = self._cutting.workspace(sized.cut)
        if not sized.cut.cut:
            # No tile is cut, so the kernel uses no workspace.
            return bind(with_workspace(bound, 0, 0), stream)

        def bind_now(to: int) -> BoundLaunch:
            held = workspace(self.kernel.device.ordinal, to, *room)
            return bind(with_workspace(bound, held.sums, held.counters), to)

        return CapturedApart(bind_now, stream)

    def _ranges(self, cutting: Cutting, n: int, batch: int, planned: tuple[int, int]) -> Ranges:
        m, k, sm_count = self._shape[0], self._operand.depth, self.kernel.device.sm_count
        own = cutting.best(m, n, k, batch, sm_count)
        cut = cutting.best(m, planned[0], k, planned[1], sm_count)
        return cut.of(own.tiles) if own.tiles <= cut.tiles else own
