"""Calls of `support.autotune`'s kernels on a recording device, with a clock that says how long launches take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import louver
from support.autotune import STYLES
from support.fake_gpu import FakeGpu, Tensor

M, N, K = 200, 96, 256
GRID = (2, 2)


class Array(Tensor):
    """A tensor that says what was done to it. did: events, shared with the test."""

    def __init__(self, shape: tuple[int, ...], did: list[str], **options: Any) -> None:
        super().__init__(shape, **options)
        self.did = did

    def zero_(self) -> None:
        self.did.append("zero")


class Clock:
    """Gives launches of a kernel the time that `seconds` has under its name."""

    def __init__(self, gpu: FakeGpu) -> None:
        # Twice a cache that takes no time to fill.
        sizes = vars(gpu.CUdevice_attribute) | {"CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE": 1024}
        gpu.CUdevice_attribute = SimpleNamespace(**sizes)
        self.gpu = gpu
        self.seconds = dict.fromkeys(STYLES, 0.5)
        self.marks: dict[int, int] = {}
        gpu._cuEventCreate = lambda _: len(gpu.called("cuEventCreate"))  # type: ignore[attr-defined]
        gpu._cuEventRecord = self._record  # type: ignore[attr-defined]
        gpu._cuEventElapsedTime = self._elapsed  # type: ignore[attr-defined]

    def _record(self, event: int, stream: int) -> None:
        self.marks[event] = len(self.gpu.launches)

    def _elapsed(self, begin: int, end: int) -> float:
        (launch,) = self.gpu.launches[self.marks[begin] : self.marks[end]]
        return 1e3 * self.seconds[launch.kernel.kernel.name]

    @property
    def timed(self) -> int:
        return len(self.gpu.called("cuEventElapsedTime"))


def arguments(s: louver.SparseTensor, **changes: Any) -> dict[str, Any]:
    sizes = {"M": M, "N": N, "K": K, "stride_a": K, "stride_b": K, "stride_d": N}
    return {"d": Tensor((M, N)), "a": s, "b": Tensor((N, K)), **sizes, **changes}


def sent(gpu: FakeGpu) -> str:
    """The kernel of the last launch."""
    return gpu.launches[-1].kernel.kernel.name
