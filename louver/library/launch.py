"""One product ready to launch: a kernel on a device, its sparse operand, and the arguments that each call binds."""

from __future__ import annotations

from math import prod

from louver.compile.signature import MapParameter
from louver.library.bind import packed, product_arguments
from louver.library.compiled import LoadedProduct
from louver.library.fused import Bound
from louver.library.operand import DeviceOperand
from louver.library.rows import Rows
from louver.runtime.module import ArgumentPack, BoundLaunch, ParamType
from louver.runtime.tensormap import encode

RECENT_MAPS = 64
"""Encoded tensor maps that a launcher keeps: an address or shape seen lately is not encoded again."""


class Launcher:
    """A loaded product with its sparse operand [m, k], or those of a batch. Threads may share it: a bound pack is never changed
    again.
    """

    __slots__ = ("_maps", "_operand", "_shape", "_sm_count", "_types", "_values", "kernel", "signature")

    def __init__(self, product: LoadedProduct, operand: DeviceOperand, shape: tuple[int, ...]) -> None:
        self.kernel = product.kernel
        self.signature = product.signature
        self._operand = operand
        *leading, m, k = shape
        self._shape = m, k
        self._sm_count = product.kernel.device.sm_count
        self._types: tuple[ParamType, ...] = tuple(parameter.type for parameter in product.signature.parameters)
        self._values = operand.rows(m, prod(leading))
        self._maps: dict[tuple[str | int, ...], bytes] = {}

    def grid(self, n: int, batch: int = 1) -> int:
        """CTAs of a launch for a dense operand [k, n], or `batch` products of such."""
        return self.signature.grid(self._shape[0], n, self._sm_count, batch)

    def arguments(self, n: int, dense: Rows, out: Rows, bound: Bound) -> ArgumentPack:
        """The arguments of a launch. bound: the epilogue's."""
        m, k = self._shape
        maps = {"a": self._values, "b": dense, "d": out}
        metadata = self._operand.metadata.address
        values = product_arguments(self.signature, (m, n, k), maps, metadata, bound, self._encoded)
        return packed(self._types, values)

    def bound(self, n: int, dense: Rows, out: Rows, bound: Bound, stream: int) -> BoundLaunch:
        """A launch with these arguments on a stream."""
        return self.kernel.bound(self.grid(n, out.batch), self.arguments(n, dense, out, bound), stream)

    def _encoded(self, parameter: MapParameter, rows: Rows) -> bytes:
        key = (parameter.name, rows.address, rows.inner, rows.rows, rows.pitch, rows.batch, rows.batch_pitch)
        found = self._maps.get(key)
        if found is None:
            found = encode(rows.tensor_map(parameter))
            if len(self._maps) >= RECENT_MAPS:
                self._maps.clear()
            self._maps[key] = found
        return found
