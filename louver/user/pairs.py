"""Gate and up weights that a kernel takes one by one, as the one operand that its product reads: made once for each pair."""

from __future__ import annotations

import functools
import threading
import weakref

from louver.formats.gated import GatedTensor, gated
from louver.formats.tensor import SparseTensor


class Pairs:
    """Gated tensors by the identities of the two that they were made of; one goes when either of these dies."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], tuple[weakref.ref[SparseTensor], weakref.ref[SparseTensor], GatedTensor]] = {}
        self._lock = threading.Lock()

    def has(self, gate: SparseTensor, up: SparseTensor) -> bool:
        """Whether `of` has made it already."""
        found = self._kept.get((id(gate), id(up)))
        return found is not None and found[0]() is gate and found[1]() is up

    def of(self, gate: SparseTensor, up: SparseTensor) -> GatedTensor:
        """Both as one, see `louver.gated`."""
        key = (id(gate), id(up))
        with self._lock:
            if not self.has(gate, up):
                # Called when either dies, at any time: it takes no lock.
                refs = [weakref.ref(each, lambda _: self._drop(key)) for each in (gate, up)]
                self._kept[key] = (refs[0], refs[1], gated(gate, up))
            return self._kept[key][2]

    def _drop(self, key: tuple[int, int]) -> None:
        self._kept.pop(key, None)


@functools.cache
def pairs() -> Pairs:
    """The process's pairs."""
    return Pairs()


def operand(parts: list[SparseTensor]) -> SparseTensor:
    """The sparse operand that one or two arguments are."""
    return parts[0] if len(parts) == 1 else pairs().of(parts[0], parts[1])


def is_made(parts: list[SparseTensor]) -> bool:
    """Whether `operand` would copy nothing."""
    return len(parts) == 1 or pairs().has(parts[0], parts[1])
