"""Gate and up weights as the one operand that a product reads: made once for each pair."""

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
    """The operand made of two tensors. It does not keep them alive, and follows their values."""

    gate: weakref.ref[SparseTensor]
    up: weakref.ref[SparseTensor]
    made: GatedTensor

    def refresh(self, s: SparseTensor) -> None:
        """Follow the values that gate and up have now."""
        gate, up = self.gate(), self.up()
        if gate is None or up is None:
            return
        # Of two threads that change gate and up, the later one here has the values of both.
        with self.made.derived.lock:
            self.made.update_(gated(gate, up).values)


class Pairs:
    """Gated tensors by the identities of the two that they were made of; one goes when either of these dies."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], Pair] = {}
        self._lock = threading.Lock()

    def has(self, gate: SparseTensor, up: SparseTensor) -> bool:
        """Whether `of` has made it already."""
        found = self._kept.get((id(gate), id(up)))
        return found is not None and found.gate() is gate and found.up() is up

    def of(self, gate: SparseTensor, up: SparseTensor) -> GatedTensor:
        """Both as one, see `louver.gated`."""
        key = (id(gate), id(up))
        with self._lock:
            if not self.has(gate, up):
                # Called when either dies, at any time: it takes no lock.
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
    """The process's pairs."""
    return Pairs()


def operand(parts: Sequence[SparseTensor]) -> SparseTensor:
    """The sparse operand that one or two arguments are."""
    return parts[0] if len(parts) == 1 else pairs().of(parts[0], parts[1])


def is_made(parts: Sequence[SparseTensor]) -> bool:
    """Whether `operand` would copy nothing."""
    return len(parts) == 1 or pairs().has(parts[0], parts[1])
