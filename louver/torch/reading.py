"""A proof from source that statements only read: none of them can write to the memory of one tensor, the input.

A small language, closed under what it calls: assignments to names, arithmetic, and calls of
- methods of tensors, whose names do not end with `_`, without `out=`
- functions and modules of PyTorch, whose first argument has memory of its own: others may write to it (`inplace=`)
- methods of the block, its children and plain functions, whose own source is in this language
Values have kinds, from what is known least to what is known best.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

import ast
import builtins
import functools
import inspect
from collections.abc import Iterable, Mapping
from enum import IntEnum
from types import FunctionType
from typing import Any, Final

import torch
from torch import Tensor, nn

from louver.torch.layers import is_dense, is_hooked
from louver.torch.linear import SparseLinear
from louver.torch.source import NotJoinedError, Source, source_of


class Kind(IntEnum):
    """What is known of a value."""

    UNKNOWN = 0
    SHARED = 1
    """A tensor, or made of tensors, which may have memory of the input."""
    OWN = 2
    """A tensor, or made of tensors, without memory of the input."""
    PLAIN = 3
    """Numbers and texts."""


_PLAIN: Final = (int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_BUILTINS: Final = (abs, bool, float, int, isinstance, len, list, max, min, range, tuple)
_NOTHING: Final = object()
_PARTS: Final = (ast.Tuple, ast.List, ast.BoolOp, ast.Slice, ast.Starred, ast.JoinedStr, ast.FormattedValue)
"""Expressions that are of the least kind of their parts, which are evaluated in the order of `ast`."""


class Reader:
    """Reads statements of one function. Raises NotJoinedError at what is not in the language. It reads in the order of
    evaluation, so nothing that it has not read runs before what it has.

    block: what `self` is. members: names of children whose calls with the input are collected in `calls`, in the order
    of the source. steps: the other children that were called. views: calls of `view` of tensors with their own memory.
    """

    def __init__(
        self,
        source: Source,
        block: Any,
        kinds: Mapping[str, Kind],
        *,
        shared: str = "",
        members: Iterable[str] = (),
        outer: tuple[Any, ...] = (),
    ) -> None:
        self._source, self._block, self._outer = source, block, outer
        self._shared, self._members = shared, frozenset(members)
        self._itself = source.parameters[0] if block is not None and source.parameters else ""
        code = source.function.__code__
        self._locals = {*code.co_varnames, *code.co_cellvars}
        self._conditional = 0
        self.kinds = dict(kinds)
        self.returned = Kind.PLAIN
        self.calls: list[tuple[str, ast.Call]] = []
        self.steps: dict[str, type] = {}
        self.views: list[ast.Call] = []

    # --- statements ---------------------------------------------------------------------------------------------------
    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign():
                kind = self.value(node.value)
                for target in node.targets:
                    self._bind(target, kind)
            case ast.AnnAssign() if node.value is not None:
                self._bind(node.target, self.value(node.value))
            case ast.AugAssign() if self.value(node.target) == self.value(node.value) == Kind.PLAIN:
                pass
            case ast.Return():
                self.returned = min(self.returned, Kind.PLAIN if node.value is None else self.value(node.value))
            case ast.If():
                self.value(node.test)
                self._branches(node.body, node.orelse)
            case ast.Assert():
                self._apart(node.test)
            case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Raise():
                # An error ends the call.
                pass
            case _:
                raise self._refused(node)

    def _branches(self, *bodies: list[ast.stmt]) -> None:
        before, ends = self.kinds, list[dict[str, Kind]]()
        self._conditional += 1
        for body in bodies:
            self.kinds = dict(before)
            for node in body:
                self.statement(node)
            ends.append(self.kinds)
        self._conditional -= 1
        names = {name for end in ends for name in end}
        self.kinds = {name: min(end.get(name, Kind.UNKNOWN) for end in ends) for name in names}

    def _bind(self, target: ast.expr, kind: Kind) -> None:
        match target:
            case ast.Name():
                self.kinds[target.id] = kind
            case ast.Tuple() | ast.List():
                for each in target.elts:
                    self._bind(each, kind)
            case ast.Starred():
                self._bind(target.value, kind)
            case _:
                raise self._refused(target)

    def _refused(self, node: ast.AST) -> NotJoinedError:
        text = ast.unparse(node).splitlines()[0]
        return NotJoinedError(f"{text[:60]!r} may write to the input" if text else "its source is not understood")

    # --- expressions --------------------------------------------------------------------------------------------------
    def value(self, node: ast.expr) -> Kind:
        match node:
            case ast.Constant():
                return Kind.PLAIN
            case ast.Name() | ast.Attribute():
                known = self._known(node)
                if known is not _NOTHING:
                    return _kind(known)
                if isinstance(node, ast.Name):
                    return self.kinds.get(node.id, Kind.UNKNOWN)
                return self.value(node.value)
            case ast.Subscript():
                kind = self.value(node.value)
                self.value(node.slice)
                return kind
            case ast.UnaryOp():
                return self.value(node.operand)
            case ast.IfExp():
                self.value(node.test)
                return min(self._apart(node.body), self._apart(node.orelse))
            case ast.Call():
                return self._call(node)
            case ast.Compare():
                kinds = [self._apart(each) for each in _parts(node)]
                return Kind.OWN if Kind.UNKNOWN not in kinds and min(kinds) < Kind.PLAIN else min(kinds)
            case ast.BinOp():
                kinds = self.value(node.left), self.value(node.right)
                # The product of a tensor and a number is a new tensor, but the sum of lists may hold the input.
                added = isinstance(node.op, ast.Add) or Kind.SHARED in kinds
                return Kind.OWN if Kind.OWN in kinds and not added else min(kinds)
            case _ if isinstance(node, _PARTS):
                read = self._apart if isinstance(node, ast.BoolOp) else self.value
                return min((read(each) for each in _parts(node)), default=Kind.PLAIN)
            case _:
                raise self._refused(node)

    def _apart(self, node: ast.expr) -> Kind:
        """The kind of an expression that may not be evaluated."""
        self._conditional += 1
        kind = self.value(node)
        self._conditional -= 1
        return kind

    def _call(self, node: ast.Call) -> Kind:
        member = member_of(node, self._itself, self._shared)
        if member in self._members and not self._conditional:
            self.calls.append((member, node))
            return Kind.OWN
        function = node.func
        known = self._known(function)
        receiver = Kind.UNKNOWN
        if known is _NOTHING and isinstance(function, ast.Attribute):
            receiver = self.value(function.value)
        given = [self.value(each) for each in node.args]
        named = {each.arg: self.value(each.value) for each in node.keywords}
        if None in named or "out" in named:
            raise self._refused(node)
        if receiver is not Kind.UNKNOWN and isinstance(function, ast.Attribute) and not function.attr.endswith("_"):
            if receiver is Kind.OWN and function.attr == "view":
                self.views.append(node)
            # What a method of the input gives may be no tensor, but an array with its memory.
            return Kind.UNKNOWN if receiver is Kind.SHARED else receiver
        if isinstance(known, functools.partial) and "out" not in known.keywords and not known.args:
            known = known.func
        if isinstance(known, nn.Module):
            return self._module(node, known, given, named)
        if isinstance(known, FunctionType) and not _is_torch(known):
            owner = function.value if isinstance(function, ast.Attribute) else None
            bound = isinstance(owner, ast.Name) and owner.id == self._itself and known not in vars(self._block).values()
            return self._function(node, known, self._block if bound else None, given, named)
        if any(known is each for each in _BUILTINS) or getattr(known, "__module__", None) == "math":
            return min([*given, *named.values()], default=Kind.PLAIN)
        return self._torch(node, known, given)

    def _torch(self, node: ast.Call, known: Any, given: list[Kind]) -> Kind:
        """A call of PyTorch, which may write to its first argument."""
        if not _is_torch(known) or getattr(known, "__name__", "_").endswith("_") or given[:1] != [Kind.OWN]:
            raise self._refused(node)
        return min(given)

    def _module(self, node: ast.Call, module: Any, given: list[Kind], named: dict[Any, Kind]) -> Kind:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if self._outer or self._block._modules.get(name) is not module or is_hooked(module):
            raise NotJoinedError(f"{ast.unparse(node.func)} is called between them, and has hooks or is no child")
        self.steps[name] = type(module)
        if isinstance(module, SparseLinear) or is_dense(module):
            return Kind.OWN
        if _is_torch(type(module)) and not module._modules:
            return self._torch(node, type(module), given)
        return self._function(node, type(module).forward, module, given, named)

    def _function(self, node: ast.Call, function: Any, block: Any, given: list[Kind], named: dict[Any, Kind]) -> Kind:
        source = source_of(function)
        if (
            function is not source.function
            or function in self._outer
            or any(isinstance(a, ast.Starred) for a in node.args)
        ):
            raise self._refused(node)
        first = [] if block is None else [Kind.UNKNOWN]
        try:
            bound = inspect.signature(function).bind(*first, *given, **named)
        except TypeError as error:
            raise self._refused(node) from error
        kinds = {name: kind if isinstance(kind, Kind) else Kind.UNKNOWN for name, kind in bound.arguments.items()}
        parameters = inspect.signature(function).parameters.values()
        kinds |= {each.name: _kind(each.default) for each in parameters if each.name not in kinds}
        inner = Reader(source, block, kinds, outer=(*self._outer, function))
        for each in source.tree.body:
            inner.statement(each)
        return inner.returned

    def _known(self, node: ast.expr) -> Any:
        """What a name or an attribute is, found without running anything; `_NOTHING` if that is not known."""
        match node:
            case ast.Name():
                if node.id == self._itself:
                    return self._block
                return _NOTHING if node.id in self._locals else _global(self._source, node.id)
            case ast.Attribute():
                return _attribute(self._known(node.value), node.attr)
            case _:
                return _NOTHING


def member_of(node: ast.AST, itself: str, shared: str) -> str:
    """The name of the child that a node calls with the input alone, or ""."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=owner), attr=name), args=[ast.Name(id=given)], keywords=[]
        ) if owner == itself and given == shared:
            return name
        case _:
            return ""


def _parts(node: ast.AST) -> list[ast.expr]:
    return [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]


def _kind(value: object) -> Kind:
    if isinstance(value, Tensor):
        return Kind.OWN if isinstance(value, nn.Parameter) else Kind.SHARED
    if isinstance(value, tuple):
        return min((_kind(each) for each in value), default=Kind.PLAIN)
    return Kind.PLAIN if isinstance(value, _PLAIN) else Kind.UNKNOWN


def _is_torch(value: Any) -> bool:
    module = getattr(value, "__module__", None) or getattr(getattr(value, "__self__", None), "__module__", None)
    return str(module).partition(".")[0] == "torch"


def _global(source: Source, name: str) -> Any:
    function = source.function
    if name in function.__code__.co_freevars:
        return _NOTHING
    return function.__globals__.get(name, getattr(builtins, name, _NOTHING))


def _attribute(owner: Any, name: str) -> Any:
    if owner is _NOTHING or isinstance(owner, Tensor):
        return _NOTHING
    if isinstance(owner, nn.Module):
        for held in (vars(owner), owner._modules, owner._parameters, owner._buffers):
            if name in held:
                return held[name]
        found = inspect.getattr_static(type(owner), name, _NOTHING)
        return found if isinstance(found, (FunctionType, *_PLAIN)) else _NOTHING
    try:
        return getattr(owner, name, _NOTHING)
    except Exception:
        return _NOTHING
