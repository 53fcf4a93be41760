"""The source of a function as a tree, if it is the code that runs, and the function of a changed tree."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType
from typing import Any


class NotJoinedError(Exception):
    """Why layers of a block stay products of their own."""


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A function without its decorators, the text of its file, and its tree."""

    function: Any
    file: str
    tree: ast.FunctionDef

    @property
    def text(self) -> str:
        """The function as text, to compare it with that of another process."""
        return ast.unparse(self.tree)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters that take arguments by position."""
        given = self.tree.args
        return tuple(each.arg for each in (*given.posonlyargs, *given.args))


@functools.cache
def source_of(function: Any) -> Source:
    """The source of a function. Raises NotJoinedError if there is none, or if other code runs."""
    inner: Any = inspect.unwrap(function)
    if type(inner) is not FunctionType:
        raise NotJoinedError(f"{getattr(function, '__qualname__', function)} is no function of Python")
    name = inner.__qualname__
    try:
        lines, _ = inspect.findsource(inner)
        file = "".join(lines)
        module, tree = _parsed(file, inner)
    except (OSError, TypeError, SyntaxError, StopIteration) as error:
        raise NotJoinedError(f"the source of {name} cannot be read ({type(error).__name__})") from error
    if not _same(_code(module, inner), inner.__code__):
        raise NotJoinedError(f"the source of {name} is not the code that runs")
    return Source(inner, file, tree)


def rebuilt(function: Any, change: Callable[[ast.FunctionDef], None]) -> Any:
    """A function with a changed tree, in the same globals and closure, and with its decorators around it.

    change: changes the tree in place. It adds no names of an outer scope.

    Raises NotJoinedError for a decorator that does not hold what it decorates in its closure.
    """
    source = source_of(function)
    inner = source.function
    module, tree = _parsed(source.file, inner)
    change(tree)
    code = _code(ast.fix_missing_locations(module), inner)
    cells = dict(zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True))
    made = _like(inner, code, tuple(cells[name] for name in code.co_freevars))
    wrappers: list[Any] = []
    while function is not inner:
        wrappers.append(function)
        function = function.__wrapped__
    for wrapper in reversed(wrappers):
        closure: tuple[CellType, ...] = getattr(wrapper, "__closure__", None) or ()
        held = [_holds(cell, wrapper.__wrapped__) for cell in closure]
        if not isinstance(wrapper, FunctionType) or held.count(True) != 1:
            raise NotJoinedError("a decorator of its forward cannot be put around another function")
        swapped = tuple(CellType(made) if mine else cell for mine, cell in zip(held, closure, strict=True))
        wrapped = _like(wrapper, wrapper.__code__, swapped)
        wrapped.__wrapped__ = made
        made = wrapped
    return made


def _holds(cell: CellType, value: object) -> bool:
    try:
        return cell.cell_contents is value
    except ValueError:
        return False


def _like(function: Any, code: CodeType, closure: tuple[CellType, ...]) -> Any:
    made: Any = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    functools.update_wrapper(made, function)
    del made.__wrapped__
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _parsed(file: str, function: Any) -> tuple[ast.Module, ast.FunctionDef]:
    """The tree of a file, and the definition in it. Raises StopIteration if there is none."""
    module, first = ast.parse(file), function.__code__.co_firstlineno
    found = (
        node
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef)
        and node.name == function.__code__.co_name
        and min([node.lineno, *(each.lineno for each in node.decorator_list)]) == first
    )
    return module, next(found)


def _code(module: ast.Module, function: Any) -> CodeType:
    """The code of a function in the tree of its whole file, on which its calls, names and closure depend."""
    whole = compile(module, function.__code__.co_filename, "exec", dont_inherit=True)
    wanted = function.__code__
    return next(
        code
        for code in _codes(whole)
        if (code.co_name, code.co_firstlineno) == (wanted.co_name, wanted.co_firstlineno)
        and code.co_flags & inspect.CO_OPTIMIZED
    )


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _same(made: CodeType, runs: CodeType) -> bool:
    """Whether two codes do the same, wherever they stand."""
    for name in (
        "co_code",
        "co_names",
        "co_varnames",
        "co_cellvars",
        "co_freevars",
        "co_argcount",
        "co_kwonlyargcount",
    ):
        if getattr(made, name) != getattr(runs, name):
            return False
    pairs = list(zip(made.co_consts, runs.co_consts, strict=False))
    return len(made.co_consts) == len(runs.co_consts) and all(
        _same(a, b) if isinstance(a, CodeType) and isinstance(b, CodeType) else (type(a), repr(a)) == (type(b), repr(b))
        for a, b in pairs
    )
