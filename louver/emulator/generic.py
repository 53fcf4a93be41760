"""Ordinary loads, stores, atomics and shuffles of a warp (generic proxy)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from louver.emulator.errors import ConvergenceError, LaunchError, MisalignedError, OutOfBoundsError
from louver.emulator.masks import all_zero, some
from louver.emulator.memory import Allocation
from louver.isa.bulk import TensorMap
from louver.isa.instruction import LANES, Bits
from louver.isa.machine import RANK_ONE, SHARED_CLUSTER_BIT, U8, AtomicKind, Mask, Space

if TYPE_CHECKING:
    from louver.emulator.cluster import Cta
    from louver.emulator.warp import Warp

ATOMIC_NUMBERS: dict[AtomicKind, np.dtype[Any]] = {
    "u32": np.dtype(np.uint32),
    "s32": np.dtype(np.int32),
    "u64": np.dtype(np.uint64),
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16x2": np.dtype(np.float16),
    "bf16x2": np.dtype(ml_dtypes.bfloat16),
}
"""NumPy type of each kind in `atomic_add`; a pair is two numbers of half the width."""


def load(warp: Warp, space: Space, address: Bits, size: int, *, read_only: bool) -> U8:
    """Values that the active lanes read: uint8 [32, size], zeros elsewhere."""
    if space == "global":
        check = warp.check_read_only if read_only else warp.check_load
        return warp.cluster.memory.gather(address, size, warp.active, check)
    if space == "param":
        return warp.cluster.parameters.gather(address, size, warp.active)
    out = np.zeros((LANES, size), np.uint8)
    for cta, lanes, where in windows(warp, address, size):
        cta.shared.read(where, warp.access(), warp.clock.rows[lanes], lanes)
        out[lanes] = cta.shared.data[where]
    return out


def store(warp: Warp, space: Space, address: Bits, data: U8) -> None:
    """Store uint8 [32, size] of the active lanes."""
    if space == "global":
        warp.cluster.memory.scatter(address, data, warp.active, warp.check_store)
        return
    if space == "param":
        raise OutOfBoundsError("kernel parameters cannot be written")
    for cta, lanes, where in windows(warp, address, data.shape[1]):
        cta.shared.write(where, warp.access(), warp.clock.rows[lanes], lanes)
        cta.shared.data[where] = data[lanes]


def load_volatile(warp: Warp, address: Bits, size: int) -> U8:
    """Values in global memory that other CTAs may write meanwhile. A warp may poll them."""
    for at in address[warp.active_lanes()].tolist():
        warp.cluster.writes.handovers.atomic(warp.global_name, at, changed=False)
    warp.cluster.asks = True
    return warp.cluster.memory.gather(address, size, warp.active, warp.check_atomic)


def store_volatile(warp: Warp, address: Bits, data: U8) -> None:
    """Store to global memory that other CTAs may read meanwhile."""

    def check(allocation: Allocation, index: NDArray[np.int64], lanes: NDArray[np.int64], data: U8) -> None:
        warp.check_atomic(allocation, index, lanes)

    warp.cluster.memory.scatter(address, data, warp.active, check)
    warp.cluster.writes.changes += 1
    for at in address[warp.active_lanes()].tolist():
        warp.cluster.writes.handovers.atomic(warp.global_name, at, changed=True)


def atomic_add(warp: Warp, space: Space, address: Bits, value: Bits, kind: AtomicKind, *, returns: bool) -> Bits:
    """Add in lane order. Returns the old values, 0 for inactive lanes."""
    number = ATOMIC_NUMBERS[kind]

    def add(old: Bits, by: Bits) -> Bits:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.add(old.view(number), by.view(number)).view(old.dtype)

    return atomic_update(warp, space, address, value, add, returns=returns)


def atomic_update(
    warp: Warp, space: Space, address: Bits, value: Bits, change: Callable[[Bits, Bits], Bits], *, returns: bool
) -> Bits:
    """Store `change(old, value)` in lane order. Returns the old values, 0 for inactive lanes.

    value: [32], or [count, 32] if a change takes several. change: of lanes with different addresses, each on its own.
    returns: whether the program gets the old values. Without them it polls nothing, however often it changes nothing.
    """
    if space != "global":
        raise OutOfBoundsError(f"atomics are modelled on global memory, got space {space!r}")
    out = np.zeros(LANES, value.dtype)
    memory, size = warp.cluster.memory, value.dtype.itemsize
    writes, changed = warp.cluster.writes, False
    for lanes in _rounds(address, warp.active_lanes()):
        active: Mask = np.zeros(LANES, np.bool_)
        active[lanes] = True
        old = memory.gather(address, size, active, warp.check_atomic)
        new = old.copy()
        out[lanes] = old[lanes].view(value.dtype)[:, 0]
        new[lanes] = change(out[lanes], value[..., lanes])[:, None].view(np.uint8)
        memory.scatter(address, new, active)
        differs: Mask = (new[lanes] != old[lanes]).any(axis=1)
        for at, differs_there in zip(address[lanes].tolist(), differs.tolist(), strict=True):
            writes.handovers.atomic(warp.global_name, at, changed=differs_there)
        changed |= some(differs)
    if changed:
        writes.changes += 1
    elif returns:
        # It may poll until another cluster changes this.
        warp.cluster.asks = True
    return out


def _rounds(address: Bits, lanes: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Groups of lanes with different addresses. Lanes of one address keep their order."""
    while lanes.size:
        _, first = np.unique(address[lanes], return_index=True)
        first.sort()
        yield lanes[first]
        lanes = np.delete(lanes, first)


def shuffle(warp: Warp, value: Bits, source_lane: Bits) -> Bits:
    """Each active lane gets the value of `source_lane`, which must be active."""
    source = source_lane.astype(np.int64) % LANES
    idle = ~warp.active[source] & warp.active
    if some(idle):
        lane = int(np.flatnonzero(idle)[0])
        raise ConvergenceError(f"a shuffle reads lane {int(source[lane])}, which does not take part in it", lane=lane)
    return value[source]


def tensor_map(warp: Warp, address: Bits) -> TensorMap:
    """The tensor map of the parameter at that address."""
    value = warp.cluster.parameters.at(int(address[warp.active_lanes()[0]]))
    if not isinstance(value, TensorMap):
        raise LaunchError(f"the address of a tensor map is expected, got that of {value!r}")
    return value


def windows(warp: Warp, address: Bits, size: int) -> list[tuple[Cta, NDArray[np.int64], NDArray[np.int64]]]:
    """(CTA, lanes, byte offsets [lanes, size]) for each shared window that the active lanes use."""
    lanes = warp.active_lanes()
    wanted = address[lanes].astype(np.int64)
    check_alignment(wanted, lanes, size)
    if all_zero(wanted & SHARED_CLUSTER_BIT):
        own = wanted // RANK_ONE == warp.cta.rank
        return [window(warp.cta, lanes, np.where(own, wanted % RANK_ONE, wanted), size)]
    found: list[tuple[Cta, NDArray[np.int64], NDArray[np.int64]]] = []
    ctas = [warp.shared_address(int(a))[0] for a in wanted]
    for cta in dict.fromkeys(ctas):
        chosen = np.array([c is cta for c in ctas])
        warp.cluster.touch(warp, cta, int(lanes[chosen][0]))
        found.append(window(cta, lanes[chosen], wanted[chosen] % RANK_ONE, size))
    return found


def check_alignment(wanted: NDArray[Any], lanes: NDArray[np.int64], size: int) -> None:
    """Raise MisalignedError unless the lanes' shared addresses are multiples of `size`."""
    if not all_zero(wanted % size):
        row = int(np.flatnonzero(wanted % size)[0])
        raise MisalignedError(
            f"a {size}-byte access needs a multiple of {size}, got shared address {int(wanted[row]):#x}",
            lane=int(lanes[row]),
        )


def window(
    cta: Cta, lanes: NDArray[np.int64], offsets: NDArray[np.int64], size: int
) -> tuple[Cta, NDArray[np.int64], NDArray[np.int64]]:
    """The entry of `windows` for one CTA, with its bounds checked."""
    first, last = int(offsets.min()), int(offsets.max()) + size - 1
    cta.shared.check_bounds(first, last)
    return cta, lanes, offsets[:, None] + cast("NDArray[np.int64]", np.arange(size))
