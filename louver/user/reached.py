"""Everything that Triton compiles in of a function, beside the arguments: the functions that it reaches, and the globals,
attributes and defaults that these read.

Triton's own key has only globals that are `tl.constexpr`, and it keeps the first key of a function. This key is made
again for each new call, so a changed global is another kernel. Objects of Triton itself are known by Triton's version.
"""

from __future__ import annotations

import dis
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import lru_cache, partial
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple, TypeAlias, cast

_MISSING = object()

Facts: TypeAlias = "tuple[Any, ...]"
"""Nested tuples of texts that are unique to a value."""


class Read(NamedTuple):
    """A name or an attribute that was read. again: reads it once more. value: the object that it was."""

    again: Callable[[], Any]
    value: Any


_MUTABLE = Read(object, None)
"""Stands for an object that may change in place: always changed."""


@dataclass(frozen=True, slots=True, eq=False)
class Reached:
    """key: a hash of all that was reached. reads: what must be unchanged for the key to be the same. files: those with the
    text of the jit functions, Triton's own too.
    """

    key: str
    reads: tuple[Read, ...]
    files: tuple[str, ...]


def unchanged(reads: tuple[Read, ...]) -> bool:
    """Whether all that was read is the same object now. Equality would not do: 1, 1.0 and True compile differently."""
    for again, value in reads:  # noqa: SIM110 - each launch runs this, and a generator costs more
        if again() is not value:
            return False
    return True


def reached(value: Any) -> Reached:
    """All that a jit function, or a constant that may hold jit functions, reaches."""
    walk = _Walk()
    facts = walk.of(value)
    key = hashlib.sha256(repr(facts).encode()).hexdigest()
    return Reached(key, tuple(walk.reads.values()), tuple(sorted(walk.files)))


def is_function(value: Any) -> bool:
    """Whether a value is a function that Triton decorated."""
    return hasattr(value, "fn") and hasattr(value, "src")


class _Walk:
    """reads: those so far, by object and name. seen: numbers of objects on the way, by identity; functions may call
    themselves.
    """

    def __init__(self) -> None:
        self.reads: dict[tuple[int, str], Read] = {}
        self.files: set[str] = set()
        self._seen: dict[int, int] = {}
        # An object that lives keeps its identity.
        self._kept: list[Any] = []

    def of(self, value: Any) -> Facts:
        """The facts of a value that is compiled in as a whole."""
        kind = cast("type[Any]", type(value))
        if value is None or value is _MISSING or kind in (bool, int, float, complex, str, bytes):
            return kind.__name__, repr(value) if value is not _MISSING else ""
        if is_function(value):
            self.files.add(str(value.fn.__code__.co_filename))
        if (package := _package(value)) is not None:
            return "package", package, _name(value)
        if _is_type(value):
            return kind.__name__, str(value)
        if id(value) in self._seen:
            return "again", self._seen[id(value)]
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        return self._opened(value)

    def _opened(self, value: Any) -> Facts:
        kind = cast("type[Any]", type(value))
        if kind.__name__ == "constexpr":
            return "constexpr", self.of(self._read(value, "value"))
        if is_function(value):
            return self._jit(value)
        if isinstance(value, tuple):
            elements = cast("tuple[Any, ...]", value)
            return "tuple", _name(kind), getattr(kind, "_fields", ()), *map(self.of, elements)
        if isinstance(value, Enum):
            return "enum", _name(kind), value.name, self.of(value.value)
        if isinstance(value, MethodType):
            return "method", self.of(value.__func__), self.of(value.__self__)
        if isinstance(value, FunctionType):
            return self._plain(value)
        if isinstance(value, ModuleType | BuiltinFunctionType):
            return kind.__name__, _name(value)
        if isinstance(value, type):
            return self._class(value)
        if is_dataclass(value):
            names = [each.name for each in fields(value)]
            return "dataclass", self.of(kind), *((name, self.of(self._read(value, name))) for name in names)
        self.reads[0, ""] = _MUTABLE
        return "object", _name(kind), *self._content(value)

    def _jit(self, function: Any) -> Facts:
        """A function by its text and its line, which messages name, and by what the text reads."""
        text = str(self._read(function, "src"))
        return (
            "function",
            _name(function.fn),
            text,
            getattr(function, "starting_line_number", 0),
            self.of(self._read(function, "noinline")),
            *self._defaults(function.fn),
            *self._names(_compiled(text), function.fn),
        )

    def _plain(self, function: FunctionType) -> Facts:
        """A function that runs while the kernel is compiled, such as `triton.constexpr_function` calls."""
        code = self._read(function, "__code__")
        return "plain", *_code(code), *self._defaults(function), *self._names(code, function)

    def _defaults(self, function: Any) -> Iterator[Facts]:
        yield self.of(self._read(function, "__defaults__"))
        named: dict[str, Any] = self._read(function, "__kwdefaults__") or {}
        yield tuple((name, self.of(value)) for name, value in named.items())
        yield tuple(map(str, function.__annotations__.items()))

    def _names(self, code: CodeType, function: Any) -> Iterator[Facts]:
        """What code reads of the function's module and of the functions around it."""
        around = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for root, *attributes in _chains(code):
            place, name = (around[root], "cell_contents") if root in around else (function.__globals__, root)
            value = self._read(place, name)
            for attribute in attributes:
                if value is _MISSING or not _has_attributes(value):
                    break
                value = self._read(value, attribute)
            yield root, *attributes, self.of(value)
        for name in _locals(code):
            # Triton reads a global where the kernel has not yet set a variable of that name.
            value = function.__globals__.get(name)
            if is_function(value) or _is_constant(value):
                yield name, self.of(self._read(function.__globals__, name))

    def _read(self, place: Any, name: str) -> Any:
        """A name of a module's dictionary, or an attribute of another object."""
        key = id(place), name
        known = self.reads.get(key)
        if known is None:
            look = cast(Any, dict).get if type(place) is dict else getattr if _is_plain(place) else _attribute
            get = partial(look, place, name, _MISSING)
            known = self.reads[key] = Read(get, get())
            self._kept.append(place)
        return known.value

    def _class(self, value: type) -> Facts:
        """A class by all that its objects may call: no code tells which methods. A kernel may make an object, too."""
        names = {
            name
            for base in value.__mro__
            if _package(base) is None
            for name, held in vars(base).items()
            if not name.startswith("__") or name == "__init__" or is_function(held)
        }
        return "class", _name(value), *((name, self.of(self._read(value, name))) for name in sorted(names))

    def _content(self, value: Any) -> Iterator[Any]:
        if isinstance(value, dict):
            for each in cast("dict[Any, Any]", value).items():
                yield self.of(each)
        elif isinstance(value, list):
            yield from map(self.of, cast("list[Any]", value))
        elif isinstance(value, set | frozenset):
            yield from sorted(map(self.of, cast("set[Any]", value)), key=repr)
        elif type(value).__repr__ is not object.__repr__ and " at 0x" not in (text := repr(value)):
            yield text
        else:
            yield from (self.of(each) for each in getattr(value, "__dict__", {}).items())


def _is_plain(value: Any) -> bool:
    """Whether reading an attribute runs none of the user's code."""
    return is_function(value) or isinstance(value, ModuleType | FunctionType) or type(value).__name__ == "constexpr"


def _attribute(value: Any, name: str, missing: Any) -> Any:
    try:
        return getattr(value, name, missing)
    except Exception:
        # A property of the user's, or a variable of an outer function that is not set yet.
        return missing


def _has_attributes(value: Any) -> bool:
    """Whether the attributes of a value are read one by one."""
    whole = is_function(value) or _is_constant(value) or _package(value) is not None
    return not whole and not isinstance(value, int | float | str | list | dict | set | frozenset)


def _is_type(value: Any) -> bool:
    """Whether a value is a type of Triton's, such as `tl.float16` or a pointer to it."""
    return hasattr(value, "mangle") and type(value).__module__.partition(".")[0] == "triton"


def _is_constant(value: Any) -> bool:
    """Whether a value is one that Triton compiles in from a global."""
    return type(value).__name__ == "constexpr" or _is_type(value)


def _package(value: Any) -> str | None:
    """The package, with its version, that tells everything of a function, class or module; None for the user's own ones.

    Triton and Python are such packages, and an installed one is for plain functions. A jit function is opened unless it
    is Triton's: people write kernels in packages that they change in place.
    """
    function = value.fn if is_function(value) else value
    if not isinstance(function, ModuleType | type | FunctionType | BuiltinFunctionType):
        return None
    place = function.__name__ if isinstance(function, ModuleType) else function.__module__ or ""
    package = place.partition(".")[0]
    known = package == "triton" or (not is_function(value) and package in sys.stdlib_module_names)
    module = sys.modules.get(package)
    if not known and isinstance(value, FunctionType | BuiltinFunctionType):
        known = bool({"site-packages", "dist-packages"} & set(PurePath(getattr(module, "__file__", None) or "").parts))
    return f"{package} {getattr(module, '__version__', '')}" if known else None


def _name(value: Any) -> str:
    module = getattr(value, "__module__", None) or ""
    return f"{module}.{getattr(value, '__qualname__', None) or getattr(value, '__name__', '')}"


@lru_cache(maxsize=1024)
def _compiled(text: str) -> CodeType:
    """The code of a function's text, with the expressions of its defaults. Nothing runs it."""
    return compile(text, "<kernel>", "exec", dont_inherit=True)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _nested(each)


def _code(code: CodeType) -> Iterator[Any]:
    for each in _nested(code):
        yield each.co_code
        yield each.co_names
        yield tuple(repr(value) for value in each.co_consts if not isinstance(value, CodeType))


_ROOTS = (
    "LOAD_GLOBAL",
    "LOAD_NAME",
    "LOAD_DEREF",
    "LOAD_CLASSDEREF",
    "LOAD_FROM_DICT_OR_GLOBALS",
    "LOAD_FROM_DICT_OR_DEREF",
)


@lru_cache(maxsize=1024)
def _chains(code: CodeType) -> tuple[tuple[str, ...], ...]:
    """The names that code reads of its module and of outer functions, each with the attributes that follow: `a.b.c`."""
    found: set[tuple[str, ...]] = set()
    for each in _nested(code):
        chain: list[str] = []
        for step in dis.get_instructions(each):
            if chain and step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                chain.append(str(step.argval))
            elif step.opname != "EXTENDED_ARG":
                found.add(tuple(chain))
                chain = [str(step.argval)] if step.opname in _ROOTS else []
    own = {name for each in _nested(code) for name in each.co_cellvars}
    return tuple(sorted(each for each in found - {()} if each[0] not in own))


@lru_cache(maxsize=1024)
def _locals(code: CodeType) -> tuple[str, ...]:
    """The variables that code sets, without its parameters."""
    return tuple(
        sorted(
            {name for each in _nested(code) for name in each.co_varnames[each.co_argcount + each.co_kwonlyargcount :]}
        )
    )


def reads_of(values: Iterable[Any]) -> tuple[Read, ...]:
    """What must be unchanged for constants to be compiled in as before."""
    return tuple(read for value in values for read in reached(value).reads)
