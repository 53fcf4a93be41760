"""A call of a decorated kernel before configs and heuristics complete it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from louver.formats.tensor import SparseTensor
from louver.runtime.arrays import ArrayView, view
from louver.user.arguments import plain
from louver.user.device_and_stream import place
from louver.user.source import Parameter


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """A call's arguments. args, kwargs: for the kernel's parameters. options: the other keywords, which are hints.

    arrays, sparse: by argument. ordinal, stream: see `place`.
    """

    names: tuple[str, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: dict[str, Any]
    arrays: dict[str, ArrayView]
    sparse: dict[str, SparseTensor]
    ordinal: int | None
    stream: int

    @classmethod
    def of(cls, name: str, parameters: Sequence[Parameter], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Given:
        """A call of the kernel `name`. Raises TypeError for too many arguments, and as `place`."""
        names = tuple(each.name for each in parameters)
        if len(args) > len(names):
            raise TypeError(f"{name} takes {len(names)} arguments, got {len(args)}")
        own = {key: value for key, value in kwargs.items() if key in names}
        options = {key: value for key, value in kwargs.items() if key not in names}
        arrays: dict[str, ArrayView] = {}
        sparse: dict[str, SparseTensor] = {}
        constants = {each.name for each in parameters if each.constexpr}
        for key, value in {**dict(zip(names, args, strict=False)), **own}.items():
            for part, found in () if key in constants else _parts(key, value):
                (sparse if isinstance(found, SparseTensor) else arrays)[part] = found
        return cls(names, args, own, options, arrays, sparse, *place(name, arrays, sparse))

    @property
    def named(self) -> dict[str, Any]:
        """The given arguments by name."""
        return {**dict(zip(self.names, self.args, strict=False)), **self.kwargs}


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The arrays and sparse tensors in an argument. Other values are checked with the whole call."""
    value = plain(value)
    if isinstance(value, tuple | list):
        for index, part in enumerate(cast("Sequence[Any]", value)):
            yield from _parts(f"{name}.{index}", part)
        return
    value = value.base if hasattr(value, "block_shape") else value
    if isinstance(value, SparseTensor):
        yield name, value
    elif value is not None and not isinstance(value, int | float | str):
        try:
            yield name, view(value)
        except (TypeError, ValueError):
            return
