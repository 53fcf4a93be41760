"""Gate and up weights as the single operand that a product reads, made once for each pair."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

from louver.formats.gated import GatedTensor, gated
from louver.formats.tensor import SparseTensor


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Pair:
    """The operand of two tensors. It does not keep them alive. It follows changes of their values."""

    gate: weakref.ref[SparseTensor]
    up: weakref.ref[SparseTensor]
    made: GatedTensor

    def refresh(self, s: SparseTensor) -> None:
        """Recompute the operand from the current values of gate and up."""
        gate, up = self.gate(), self.up()
        if gate is None or up is None:
            return
        # If two threads change gate and up, the later one here sees both new values.
        with self.made.derived.lock:
            self.made.update_(gated(gate, up).values)


class Pairs:
    """Gated tensors by the identities of their two parts. An entry is removed when either part is freed."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], Pair] = {}
        self._lock = threading.Lock()

    def has(self, gate: SparseTensor, up: SparseTensor) -> bool:
        """Whether the pair exists."""
        found = self._kept.get((id(gate), id(up)))
        return found is not None and found.gate() is gate and found.up() is up

    def of(self, gate: SparseTensor, up: SparseTensor) -> GatedTensor:
        """The pair as one tensor, see `louver.gated`."""
        key = (id(gate), id(up))
        with self._lock:
            if not self.has(gate, up):
                # Called at any time when either part is freed, so it takes no lock.
                refs = [weakref.ref(each, lambda _: self._drop(key)) for each in (gate, up)]
                before = gate.values, up.values
                pair = self._kept[key] = Pair(refs[0], refs[1], gated(gate, up))
                for each in (gate, up):
                    each.derived.follow(pair)
                if gate.values is not before[0] or up.values is not before[1]:
                    pair.refresh(gate)
            return self._kept[key].made

    def _drop(self, key: tuple[int, int]) -> None:
        self._kept.pop(key, None)


@functools.cache
def pairs() -> Pairs:
    """The pairs of the process."""
    return Pairs()


def operand(parts: Sequence[SparseTensor]) -> SparseTensor:
    """The sparse operand of one or two arguments."""
    return parts[0] if len(parts) == 1 else pairs().of(parts[0], parts[1])


def is_made(parts: Sequence[SparseTensor]) -> bool:
    """Whether `operand` copies nothing."""
    return len(parts) == 1 or pairs().has(parts[0], parts[1])
