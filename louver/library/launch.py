"""One product ready to launch: a kernel on a device, its sparse operand, and the arguments that each call binds."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, TypeAlias

from louver.compile.signature import MapParameter
from louver.library.bind import packed, product_arguments
from louver.library.compiled import LoadedProduct
from louver.library.fused import Bound
from louver.library.operand import DeviceOperand
from louver.library.ranges import Cutting, Ranges
from louver.library.rows import Rows
from louver.runtime.driver import is_capturing
from louver.runtime.module import ArgumentPack, BoundLaunch, ParamType
from louver.runtime.tensormap import encode
from louver.runtime.workspace import workspace

RECENT_MAPS = 64
"""Encoded tensor maps that a launcher keeps: an address or shape seen lately is not encoded again."""


class CapturedApart:
    """A launch that has a workspace: its stream's, or one of its own for each capture of the stream.

    send, recover: as a `BoundLaunch` has them.
    """

    __slots__ = ("_bind", "_eager", "_stream")

    def __init__(self, bind: Callable[[], BoundLaunch], stream: int) -> None:
        self._bind = bind
        self._stream = stream
        self._eager = None if is_capturing(stream) else bind()

    def send(self) -> tuple[Any, ...]:
        """Send it. Gives a tuple with the driver's result code."""
        # Its name keeps it, and with it the arguments that the driver reads.
        launch = self._now()
        return launch.send()

    def recover(self, code: int) -> None:
        """Send what was refused with this result code once more, or raise."""
        self._now().recover(code)

    def __call__(self) -> None:
        """Send it. Raises as `BoundLaunch` does."""
        self._now()()

    def _now(self) -> BoundLaunch:
        if is_capturing(self._stream):
            return self._bind()
        if self._eager is None:
            self._eager = self._bind()
        return self._eager


Sendable: TypeAlias = BoundLaunch | CapturedApart
"""A launch of which all is fixed."""


class Launcher:
    """A loaded product with its sparse operand [m, k], or those of a batch. Threads may share it: a bound pack is never changed
    again.
    """

    __slots__ = ("_cutting", "_maps", "_operand", "_shape", "_sm_count", "_types", "_values", "kernel", "signature")

    def __init__(
        self, product: LoadedProduct, operand: DeviceOperand, shape: tuple[int, ...], cutting: Cutting | None = None
    ) -> None:
        """cutting: how K is cut, by a kernel that knows ranges."""
        self._cutting = cutting
        self.kernel = product.kernel
        self.signature = product.signature
        self._operand = operand
        *leading, m, k = shape
        self._shape = m, k
        self._sm_count = product.kernel.device.sm_count
        self._types: tuple[ParamType, ...] = tuple(parameter.type for parameter in product.signature.parameters)
        self._values = operand.rows(m, prod(leading))
        self._maps: dict[tuple[str | int, ...], bytes] = {}

    def grid(self, n: int, batch: int = 1, planned: tuple[int, int] | None = None) -> int:
        """CTAs of a launch for a dense operand [k, n], or `batch` products of such. planned: as for `bound`."""
        if self._cutting is None:
            return self.signature.grid(self._shape[0], n, self._sm_count, batch)
        return self._cutting.grid(self._ranges(n, batch, planned), self._sm_count)

    def arguments(
        self, n: int, dense: Rows, out: Rows, bound: Bound, stream: int = 0, planned: tuple[int, int] | None = None
    ) -> ArgumentPack:
        """The arguments of a launch to `stream` as it is now: while it is being captured, for that graph alone. bound: the epilogue's."""
        m, k = self._shape
        maps = {"a": self._values, "b": dense, "d": out}
        metadata = self._operand.metadata.address
        if self._cutting is not None:
            cut = self._ranges(n, out.batch, planned)
            room = workspace(self.kernel.device.ordinal, stream, *self._cutting.workspace(cut))
            bound = self._cutting.bound(bound, cut, room.sums, room.counters)
        values = product_arguments(self.signature, (m, n, k), maps, metadata, bound, self._encoded)
        return packed(self._types, values)

    def bound(
        self, n: int, dense: Rows, out: Rows, bound: Bound, stream: int, planned: tuple[int, int] | None = None
    ) -> Sendable:
        """A launch with these arguments on a stream.

        planned: N and the number of products whose cut of K is taken, unless the launch has more tiles; by default its own.
        """

        def bind() -> BoundLaunch:
            arguments = self.arguments(n, dense, out, bound, stream, planned)
            return self.kernel.bound(self.grid(n, out.batch, planned), arguments, stream)

        return bind() if self._cutting is None else CapturedApart(bind, stream)

    def _ranges(self, n: int, batch: int, planned: tuple[int, int] | None) -> Ranges:
        assert self._cutting is not None
        (m, k), sm_count = self._shape, self._sm_count
        own = self._cutting.best(m, n, k, batch, sm_count)
        if planned is None:
            return own
        cut = self._cutting.best(m, planned[0], k, planned[1], sm_count)
        return cut.of(own.tiles) if own.tiles <= cut.tiles else own

    def _encoded(self, parameter: MapParameter, rows: Rows) -> bytes:
        key = (parameter.name, rows.address, rows.inner, rows.rows, rows.pitch, rows.batch, rows.batch_pitch)
        found = self._maps.get(key)
        if found is None:
            found = encode(rows.tensor_map(parameter))
            if len(self._maps) >= RECENT_MAPS:
                self._maps.clear()
            self._maps[key] = found
        return found
