"""Converts frozen dataclasses to JSON values and back, by the types of their fields.

So records beside a cubin are read without IR.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from louver.ir.polynomial import Polynomial

T = TypeVar("T")


def to_json(value: object) -> Any:
    """JSON values that `from_json` reads back. Sizes become texts. Fields that equality ignores are left out."""
    if isinstance(value, Polynomial):
        return str(value)
    if isinstance(value, tuple):
        return [to_json(each) for each in cast("tuple[object, ...]", value)]
    if is_dataclass(value) and not isinstance(value, type):
        return {name: to_json(getattr(value, name)) for name in _kept(type(value))}
    return value


def from_json(kind: type[T], facts: Mapping[str, Any]) -> T:
    """The object of a dataclass that `to_json` wrote."""
    hints = _hints(kind)
    return kind(**{name: _read(hints[name], each) for name, each in facts.items()})


@functools.cache
def _kept(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.compare)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _read(kind: Any, value: Any) -> Any:
    inner = get_args(kind)
    if value is None:
        return None
    if get_origin(kind) in (Union, UnionType):
        several = [each for each in inner if each is not NoneType]
        return _read(several[0] if len(several) == 1 else _fitting(several, value), value)
    if get_origin(kind) is tuple:
        kinds = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return tuple(map(_read, kinds, value))
    if kind is Polynomial:
        return Polynomial.parse(value)
    return from_json(cast("type[Any]", kind), value) if is_dataclass(kind) else value


def _fitting(kinds: list[Any], facts: Mapping[str, Any]) -> Any:
    """The dataclass with these fields."""
    for kind in kinds:
        if is_dataclass(kind) and set(_kept(kind)) == set(facts):
            return kind
    raise ValueError(f"expected the fields of {' or '.join(kind.__name__ for kind in kinds)}, got {', '.join(facts)}")
