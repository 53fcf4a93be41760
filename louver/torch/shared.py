"""The proof, from the source of a block's `forward`, that some of its linear layers get one input, and the forward that
computes them as one product.

Between the first and the last of their calls, nothing may write to the input (`louver.torch.reading`), bind its name
anew, or skip one of the calls. So they are in one list of statements. The new forward differs only in these calls.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from louver.torch.reading import Kind, Reader, member_of
from louver.torch.source import NotJoinedError, Source, rebuilt, source_of


@dataclass(frozen=True, slots=True)
class Region:
    """Where a forward calls some layers with one input, by numbers of nodes in `ast.walk` of its source.

    calls: of each layer. first, last: the statements with the first and the last call. views: calls of `view` of outputs,
    which need not be contiguous when they are parts of one product.
    """

    shared: str
    calls: tuple[tuple[str, int], ...]
    views: tuple[int, ...]
    first: int
    last: int

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.calls)

    def only(self, names: Collection[str]) -> Region:
        """The same without the other layers."""
        return replace(self, calls=tuple(call for call in self.calls if call[0] in names))


@dataclass(frozen=True, slots=True)
class Found:
    """The layers of a block that get one input, at least two for each.

    regions: of layers that can be one product. steps: children that are called between, with their classes.
    reasons: why layers of an input are in no region.
    """

    inputs: tuple[tuple[str, ...], ...]
    regions: tuple[Region, ...]
    steps: tuple[tuple[str, type], ...]
    reasons: tuple[tuple[tuple[str, ...], str], ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """A block whose forward calls layers with one input. text: the source for which that is proven."""

    regions: tuple[Region, ...]
    steps: tuple[tuple[str, type], ...]
    text: str

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The names of layers that are one product."""
        return tuple(dict.fromkeys(tuple(sorted(region.members)) for region in self.regions))

    def function(self, original: Any) -> Any:
        """The forward of a class with one product for each region: `self.louver_products(group, x)` gives the outputs
        of a group, in its order. Raises NotJoinedError for another source than the proven one.
        """
        forward = original.forward
        if source_of(forward).text != self.text:
            raise NotJoinedError(f"the source of {original.__qualname__}.forward is not that of the joined block")
        return rebuilt(forward, self._change)

    def _change(self, tree: ast.FunctionDef) -> None:
        nodes = list(ast.walk(tree))
        itself = tree.args.posonlyargs[0].arg if tree.args.posonlyargs else tree.args.args[0].arg
        for number in dict.fromkeys(number for region in self.regions for number in region.views):
            method: Any = nodes[number]
            method.func.attr = "reshape"
        for region in self.regions:
            group = self.groups.index(tuple(sorted(region.members)))
            names = {name: f"louver_{group}_{name}" for name in sorted(region.members)}
            for name, number in region.calls:
                call: Any = nodes[number]
                # The node itself changes, wherever it is held.
                call.__class__ = ast.Name
                call.__dict__ = {**_place(call), "id": names[name], "ctx": ast.Load()}
            product = f"{', '.join(names.values())} = {itself}.louver_products({group}, {region.shared})"
            _insert(tree, nodes[region.first], product, after=False)
            # The outputs end when the block drops them, as before.
            _insert(tree, nodes[region.last], f"del {', '.join(names.values())}", after=True)


def found(block: Any, names: Collection[str]) -> Found:
    """The regions of a block's forward with layers among its children of these names.

    Raises NotJoinedError if its source is not known.
    """
    if "forward" in vars(block):
        raise NotJoinedError("the block's forward was replaced")
    kind: Any = block.__class__
    source = source_of(kind.forward)
    if not source.parameters:
        raise NotJoinedError("its forward has no parameter for the block")
    calls = _calls(source, names)
    regions: list[Region] = []
    steps: dict[str, type] = {}
    reasons: list[tuple[tuple[str, ...], str]] = []
    inputs: list[tuple[str, ...]] = []
    for shared, members in calls.items():
        if len(members) < 2:
            continue
        search = _Search(source, block, shared, members)
        mine = [each for body in _bodies(source.tree) for each in search.regions(body)]
        regions += mine
        steps |= search.steps if mine else {}
        left = tuple(name for name in members if not any(name in each.members for each in mine))
        if left and search.reason is not None:
            reasons.append((left, search.reason))
        if mine or search.reason is not None:
            inputs.append(members)
    return Found(tuple(inputs), tuple(_disjoint(regions)), tuple(steps.items()), tuple(reasons))


class _Search:
    """Looks for calls of layers with one input in lists of statements."""

    def __init__(self, source: Source, block: Any, shared: str, members: Collection[str]) -> None:
        self._source, self._block, self._shared, self._members = source, block, shared, members
        self._numbers = {id(node): number for number, node in enumerate(ast.walk(source.tree))}
        self.steps: dict[str, type] = {}
        self.reason: str | None = "its forward calls them in different branches"
        code = source.function.__code__
        inner = (each for each in ast.walk(source.tree) if isinstance(each, ast.Nonlocal))
        # Functions in the forward may read the input.
        local = shared in code.co_varnames or shared in code.co_cellvars
        self._bound = local and not any(shared in each.names for each in inner)

    def regions(self, body: list[ast.stmt]) -> Iterator[Region]:
        """The regions whose calls are in this list."""
        run: list[tuple[ast.stmt, ast.Call, str]] = []
        reader: Reader | None = None
        for number, node in enumerate(body):
            if reader is None and self._calls(node):
                reader = self._reader()
            if reader is None:
                continue
            calls = len(reader.calls)
            try:
                reader.statement(node)
                ended = _binds(node, self._shared)
                # The later layers get another input.
                self.reason = None if ended else self.reason
            except NotJoinedError as error:
                ended = True
                left = sum(map(self._calls, body[number:])) - len(reader.calls[calls:])
                self.reason = str(error) if left else self.reason
            run += [(node, call, name) for name, call in reader.calls[calls:]]
            if ended:
                yield from self._region(run, reader)
                run, reader = [], None
        if reader is not None:
            yield from self._region(run, reader)

    def _reader(self) -> Reader:
        return Reader(
            self._source, self._block, {self._shared: Kind.SHARED}, shared=self._shared, members=self._members
        )

    def _calls(self, node: ast.stmt) -> int:
        """The number of calls of the layers with the input."""
        itself = self._source.parameters[0]
        found = (member_of(each, itself, self._shared) in self._members for each in ast.walk(node))
        return sum(found) if self._bound else 0

    def _region(self, run: list[tuple[ast.stmt, ast.Call, str]], reader: Reader) -> Iterator[Region]:
        names = [name for _, _, name in run]
        if len(names) < 2:
            return
        if len(set(names)) < len(names):
            self.reason = "its forward calls one of them twice"
            return
        self.steps |= reader.steps
        calls = tuple((name, self._numbers[id(call)]) for _, call, name in run)
        first, last = (self._numbers[id(node)] for node, *_ in (run[0], run[-1]))
        yield Region(self._shared, calls, self._views(reader), first, last)

    def _views(self, reader: Reader) -> tuple[int, ...]:
        """The calls of `view` in a region, and those behind it of names that it bound to tensors of its own."""
        own = {name for name, kind in reader.kinds.items() if kind is Kind.OWN}
        later = [
            node
            for node in ast.walk(self._source.tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "view"
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id in own
        ]
        # `view` of a type is no change of shape.
        shaped = (
            node
            for node in (*reader.views, *later)
            if len(node.args) != 1 or not isinstance(node.args[0], ast.Attribute)
        )
        return tuple(dict.fromkeys(self._numbers[id(node)] for node in shaped))


def _calls(source: Source, names: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The layers that a forward calls with one local name, by this name."""
    found: dict[str, dict[str, None]] = {}
    itself = source.parameters[0]
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Name):
            member = member_of(node, itself, node.args[0].id)
            if member in names:
                found.setdefault(node.args[0].id, {})[member] = None
    return {shared: tuple(members) for shared, members in found.items()}


def _bodies(tree: ast.FunctionDef) -> Iterator[list[ast.stmt]]:
    """The lists of statements of a function, without those of functions and classes in it."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop(0)
        fields: Any = ast.iter_fields(node)
        for _, held in fields:
            if isinstance(held, list) and held and isinstance(held[0], ast.stmt):
                yield held
        inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.expr)
        waiting += [each for each in ast.iter_child_nodes(node) if not isinstance(each, inner)]


def _binds(node: ast.stmt, name: str) -> bool:
    return any(
        isinstance(each, ast.Name) and each.id == name and not isinstance(each.ctx, ast.Load) for each in ast.walk(node)
    )


def _disjoint(regions: list[Region]) -> Iterator[Region]:
    """The regions, largest first, without those that have a layer of another group."""
    groups: list[set[str]] = []
    for region in sorted(regions, key=lambda each: -len(each.calls)):
        mine = set(region.members)
        if mine in groups or not any(mine & group for group in groups):
            groups.append(mine)
            yield region


def _place(node: Any) -> dict[str, Any]:
    return {name: getattr(node, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")}


def _insert(tree: ast.FunctionDef, place: Any, text: str, *, after: bool) -> None:
    """Put a statement before or after another one. Nothing comes after a return."""
    if after and isinstance(place, ast.Return):
        return
    made = ast.parse(text).body[0]
    for node in ast.walk(made):
        if hasattr(node, "lineno"):
            node.__dict__ |= _place(place)
    body = next(body for body in _bodies(tree) if any(each is place for each in body))
    body.insert(next(number for number, each in enumerate(body) if each is place) + after, made)
