"""Products like the last one, launched after few questions: for the host time of eager calls.

A product on a GPU asks PyTorch for twenty properties, and each answer takes host time. PyTorch's guards give most of
them in one call: those of the weight here whether both arrays are as they were; those of the launch the same about x and
the bias, and whether PyTorch records the call or changes it, as autocast and transforms do.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from louver.library.fused import NOTHING, Given
from louver.library.products import linear_options
from louver.runtime.known_calls import Same, tensor_guard
from louver.torch.core import Core, cores

modes: Callable[[], int] = torch._C._len_torch_dispatch_stack  # pyright: ignore[reportPrivateUsage]
"""The number of modes that see all operators: fake tensors, traces, counters of work."""

_compiles: Callable[[], bool] = torch.compiler.is_compiling


class _Known:
    """A kind of product. core: its tensor. same: whether values and indices have the same properties."""

    __slots__ = ("core", "options", "same")

    def __init__(self, core: weakref.ref[Core], same: Same, activation: Any) -> None:
        self.core, self.same, self.options = core, same, linear_options(activation)


class KnownProducts:
    """The last kind of product of each weight, by the addresses of its arrays, its pattern and its epilogue."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], _Known] = {}

    def __len__(self) -> int:
        return len(self._known)

    def launched(
        self,
        x: Tensor,
        values: Tensor,
        indices: Tensor,
        bias: Tensor | None,
        pattern: str,
        activation: Any,
        gated: bool,
        out: Tensor | None = None,
    ) -> Tensor | None:
        """The product, in `out` if given, if it is of a known kind. None, with nothing done, for another one, and while PyTorch compiles or
        traces.
        """
        if _compiles() or modes():
            return None
        known = self._known.get((values.data_ptr(), indices.data_ptr(), pattern, activation, gated))
        # A core ends when PyTorch frees a storage, so addresses say which storage it is.
        core = None if known is None else known.core()
        if known is None or core is None or not known.same(values, indices):
            return None
        if indices._version != core.indices.version:
            return None
        if (core.copied or core.state.copies_values) and not core.has_these_values(values):
            return None
        given = NOTHING if bias is None else Given(bias, None, None, None, None, None, None, None)
        return core.state.warm.launch(known.options, x, given, out)

    def keep(self, values: Tensor, indices: Tensor, pattern: str, size: int, activation: Any, gated: bool) -> None:
        """Keep the kind of a product that was made, and that PyTorch has not recorded."""
        guard, key = tensor_guard(torch), (values.data_ptr(), indices.data_ptr(), pattern, activation, gated)
        core, known = cores().core(values, indices, pattern, size, gated=gated), self._known.get(key)
        # Writes to tensors that were made in inference mode are not counted.
        if guard is None or core.indices.version is None:
            return
        if known is None or known.core() is not core or not known.same(values, indices):
            held = weakref.ref(core, functools.partial(self._end, key))
            self._known[key] = _Known(held, guard((values, indices)), activation)

    def _end(self, key: tuple[Any, ...], core: weakref.ref[Core]) -> None:
        known = self._known.get(key)
        if known is not None and known.core is core:
            self._known.pop(key, None)


@functools.cache
def known_products() -> KnownProducts:
    """The known products of this process."""
    return KnownProducts()
