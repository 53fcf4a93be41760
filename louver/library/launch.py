"""One product ready to launch: a kernel on a device, its sparse operand, and the arguments that each call binds."""

from __future__ import annotations

from math import prod

from louver.library.bind import Sized, bind_product, packed
from louver.library.boxes import RecentMaps
from louver.library.compiled import BuiltKernel
from louver.library.fused import NOTHING_BOUND, Bound
from louver.library.operand import DeviceOperand
from louver.library.rows import Rows
from louver.runtime.module import BoundLaunch, LoadedKernel


class Launcher:
    """A loaded product with its sparse operand [m, k], or those of a batch. Threads may share it: a bound launch is never changed
    again.
    """

    __slots__ = ("_maps", "_metadata", "_shape", "_types", "_values", "kernel", "signature")

    def __init__(self, product: BuiltKernel[LoadedKernel], operand: DeviceOperand, shape: tuple[int, ...]) -> None:
        self.kernel = product.kernel
        self.signature = product.signature
        *leading, m, k = shape
        self._shape = m, k
        self._values = operand.rows(m, prod(leading))
        self._metadata = operand.metadata.address
        self._maps = RecentMaps()
        self._types = product.signature.types

    def sized(self, n: int, dense: Rows, out: Rows) -> Sized:
        """What launches have in common for such matrices, wherever these are."""
        m, k = self._shape
        maps = {"a": self._values, "b": dense, "d": out}
        return Sized.of(self.signature, (m, n, k), maps, self.kernel.device.sm_count)

    def bound(self, sized: Sized, dense: Rows, out: Rows, bound: Bound = NOTHING_BOUND, stream: int = 0) -> BoundLaunch:
        """A launch on a stream. bound: what the epilogue reads."""
        places = {"a": self._values.held, "b": dense.held, "d": out.held}
        values = bind_product(self.signature, sized, places, self._metadata, bound, self._maps)
        return self.kernel.bound(sized.ctas, packed(self._types, values), stream)
