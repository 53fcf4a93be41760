"""The proof that a block is a gated layer: a trace of its own `forward`, which is down(act(gate(x)) · up(x)), in both
modes of training, changes nothing in the block, and runs no other code than PyTorch's and that of the block's modules.
Other code, such as a sum over ranks, may return its argument now and do more later.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Generator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

from louver.torch.source import NotJoinedError


@dataclass(frozen=True, slots=True)
class Pair:
    """The names of a block's children, and the activation of the gate.

    steps: children without parameters that `forward` calls, such as the module of the activation, with their classes.
    """

    gate: str
    up: str
    down: str
    activation: str | None
    steps: tuple[tuple[str, type], ...]

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The names of layers that are one product."""
        return ((self.gate, self.up),)

    def function(self, original: type) -> Any:
        """The forward of a class with one product: `self.louver_gated(x)`."""
        down = self.down

        def forward(self: Any, *arguments: Any, **named: Any) -> Any:
            (x,) = (*arguments, *named.values())
            return self._modules[down](self.louver_gated(x))

        return forward


def proved(block: Any) -> Pair:
    """The pair of a block. Raises NotJoinedError if its `forward` does more, or something else, in either mode."""
    if "forward" in vars(block):
        raise NotJoinedError("the block's forward was replaced")
    found = {_traced(block, training) for training in (True, False)}
    if len(found) > 1:
        raise NotJoinedError("the block does something else in training")
    return found.pop()


class _Tracer(fx.Tracer):
    """Traces a block; its children with parameters stay calls."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return next(m.parameters(), None) is not None

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        found = super().call_module(m, forward, args, kwargs)
        if not self.is_leaf_module(m, ""):
            self.steps.append(self.path_of_module(m))
            if any(found is each for each in args) and type(m).__module__.partition(".")[0] != "torch":
                raise NotJoinedError(f"its {self.steps[-1]} returns its argument, and may do something else later")
        return found


def _traced(block: Any, training: bool) -> Pair:
    tracer = _Tracer()
    try:
        with _untouched(block, training), _own_code(block):
            graph = tracer.trace(block)
    except NotJoinedError:
        raise
    # The forward of a block may raise anything when it gets a proxy in the place of a tensor.
    except Exception as error:
        raise NotJoinedError(f"its forward cannot be traced ({type(error).__name__})") from error
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    calls = [node for node in graph.nodes if node.op == "call_module"]
    reads = [node for node in calls if inputs and node.args == (inputs[0],) and not node.kwargs]
    last = next(iter(reversed(graph.nodes))).args[0]
    if len(inputs) != 1 or len(calls) != 3 or len(reads) != 2 or last is not calls[-1]:
        raise NotJoinedError("its forward is not down(act(gate(x)) · up(x))")
    names = [str(node.target) for node in calls]
    if any("." in name for name in (*names, *tracer.steps)):
        raise NotJoinedError("its layers are not its own children")
    try:
        kinds = tuple(_float(block._modules[name]) for name in names[:2])
        order, activation = _between(_Calls(graph, _text(graph), tuple(names), kinds))
    except NotJoinedError:
        raise
    except Exception as error:
        raise NotJoinedError(f"its activation cannot be traced ({type(error).__name__})") from error
    gate, up = order
    steps = tuple((name, type(block._modules[name])) for name in dict.fromkeys(tracer.steps))
    return Pair(gate, up, names[2], activation, steps)


@contextlib.contextmanager
def _untouched(block: Any, training: bool) -> Generator[None]:
    """Run in a mode of training. Puts the block's attributes back, and raises NotJoinedError if they have changed."""
    modes = [(module, module.training) for module in block.modules()]
    block.train(training)
    before = dict(vars(block))
    try:
        yield
        if {name: id(each) for name, each in vars(block).items()} != {name: id(each) for name, each in before.items()}:
            raise NotJoinedError("its forward changes the block")
    finally:
        vars(block).clear()
        vars(block).update(before)
        for module, mode in modes:
            module.training = mode


@contextlib.contextmanager
def _own_code(block: Any) -> Generator[None]:
    """Raises NotJoinedError behind a trace in which methods of the block's modules call other code than PyTorch's and each
    other.
    """
    modules, others = set(block.modules()), dict[str, None]()

    def is_own(frame: FrameType) -> bool:
        first = _first(frame)
        # An instance check would run code of the object.
        return issubclass(type(first), nn.Module) and first in modules

    def seen(frame: FrameType, event: str, argument: object) -> None:
        caller = frame.f_back
        if event != "call" or caller is None or _is_of_torch(caller) or _is_of_torch(frame):
            return
        if is_own(caller) and not is_own(frame):
            others[frame.f_code.co_qualname] = None

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        yield
    finally:
        sys.setprofile(before)
    if others:
        raise NotJoinedError(f"its forward calls {next(iter(others))}, which may do something else later")


def _first(frame: FrameType) -> Any:
    """The first argument of a call, also of a wrapper that takes any arguments; None without arguments."""
    code, given = frame.f_code, frame.f_locals
    if code.co_argcount:
        return given.get(code.co_varnames[0])
    more = given.get(code.co_varnames[code.co_kwonlyargcount]) if code.co_flags & inspect.CO_VARARGS else ()
    return more[0] if more else None


def _is_of_torch(frame: FrameType) -> bool:
    """Whether code is PyTorch's, Python's or this module's. What ranks exchange is no fixed function."""
    module = str(frame.f_globals.get("__name__"))
    package = module.partition(".")[0]
    return module == __name__ or (
        (package == "torch" or package in sys.stdlib_module_names) and not module.startswith("torch.distributed")
    )


@dataclass(frozen=True, slots=True)
class _Calls:
    """A traced forward. text: says all of the graph. kinds: types of the outputs of the first two layers."""

    graph: fx.Graph = field(compare=False)
    text: tuple[Any, ...]
    names: tuple[str, ...]
    kinds: tuple[torch.dtype, ...]


def _text(graph: fx.Graph) -> tuple[Any, ...]:
    """The nodes of a graph. Raises NotJoinedError for one that reads a tensor of the block, which is no part of it."""
    if any(node.op == "get_attr" for node in graph.nodes):
        raise NotJoinedError("its forward reads a tensor of its own")
    return tuple((node.op, node.target, repr(node.args), repr(node.kwargs)) for node in graph.nodes)


@functools.lru_cache(maxsize=64)
def _between(calls: _Calls) -> tuple[tuple[str, str], str | None]:
    """The gate, the up projection, and the activation, of the operations between the layers. Blocks of a model mostly
    have one graph.
    """
    names = calls.names
    module = fx.GraphModule(dict.fromkeys(names, nn.Identity()), calls.graph)

    def run(first: Tensor, second: Tensor) -> Any:
        outputs = dict(zip(names[:2], (first, second), strict=True))

        class Between(fx.Interpreter):
            def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
                return outputs.get(target, args[0])

        return Between(module).run(torch.empty(1, device="meta"))

    sample = [torch.empty(3, 8, dtype=kind, device="meta") for kind in calls.kinds]
    nodes = list(make_fx(run)(*sample).graph.nodes)
    first, second = nodes[:2]
    work = [node for node in nodes[2:] if node.op == "call_function" and node.target is not _EMPTY]
    end = nodes[-1].args[0]
    if not work or work[-1] is not end or end.target is not torch.ops.aten.mul.Tensor or len(work) > 2:
        raise NotJoinedError("its forward is not down(act(gate(x)) · up(x))")
    acting = [node for node in work[:-1] if node in end.args]
    if work[:-1] != acting:
        raise NotJoinedError("its forward is not down(act(gate(x)) · up(x))")
    inner = acting[0] if acting else first
    factors = set(end.args)
    for gate, up, order in ((first, second, (names[0], names[1])), (second, first, (names[1], names[0]))):
        source = inner.args[0] if acting else first
        if source is gate and factors == {inner, up}:
            return order, _name_of(inner) if acting else None
    raise NotJoinedError("its forward is not down(act(gate(x)) · up(x))")


_EMPTY = torch.ops.aten.empty.memory_format


def _float(layer: Any) -> torch.dtype:
    """The type of a layer's outputs, as far as an activation sees it."""
    kind = layer.weight.dtype
    return kind if kind.itemsize > 1 else torch.bfloat16


def _name_of(node: fx.Node) -> str:
    """Louver's name of an activation. Raises NotJoinedError if it has none."""
    aten, tanh = torch.ops.aten, node.kwargs.get("approximate") == "tanh"
    names: dict[Any, str] = {
        aten.relu.default: "relu",
        aten.silu.default: "silu",
        aten.gelu.default: "gelu_tanh" if tanh else "gelu",
    }
    name = names.get(node.target)
    if name is None or len(node.args) > 1 or set(node.kwargs) - {"approximate"}:
        raise NotJoinedError(f"Louver has no activation {node.target}")
    return name
