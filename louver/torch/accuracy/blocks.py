"""The blocks of a model that run one after the other: which they are, what each is given, and how one runs alone."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_map, tree_unflatten

from louver.torch.accuracy.products import Stop
from louver.torch.accuracy.stored import Stored
from louver.torch.layers import is_dense
from louver.torch.linear import SparseLinear

_HELP: Final = (
    'pass blocks="NAME" of the torch.nn.ModuleList or Sequential whose members run one after the other, each on the '
    "output of the one before"
)


_CLOSE: Final = 0.02
"""A run block by block may differ from the model's own by this part of the norm, by rounding."""


class Blocks(Protocol):
    """Where the blocks of a chain come from, one at a time. At most two are resident."""

    def load(self, index: int) -> nn.Module:
        """Block `index` with its weights, on any device; the same class and parameter names as in the model."""
        ...

    def store(self, index: int, block: nn.Module) -> None:
        """Take a block back, pruned or as it was. Its memory may be released."""
        ...


@dataclass(frozen=True, slots=True)
class Chain:
    """Modules that run one after the other. name: of their list in the model. names: of the modules, in the model."""

    name: str
    names: tuple[str, ...]


class Resident:
    """The blocks of a model in memory. Each comes to `device` while it is in use, and goes back then."""

    def __init__(self, model: nn.Module, chain: Chain) -> None:
        self._blocks = [model.get_submodule(name) for name in chain.names]
        self._homes = [next((p.device for p in block.parameters()), None) for block in self._blocks]

    def load(self, index: int) -> nn.Module:
        return self._blocks[index]

    def store(self, index: int, block: nn.Module) -> None:
        home = self._homes[index]
        if home is not None:
            block.to(home)


def find_chains(model: nn.Module, blocks: str | None = None) -> tuple[Chain, ...]:
    """The chains of blocks of a model: outermost lists of modules of one class. Whether they are chains, a run shows.

    blocks: the name of the one list to take, of any classes. Raises ValueError if there is none.
    """
    if blocks is not None:
        named = dict(model.named_modules())
        found = named.get(blocks)
        if not isinstance(found, nn.ModuleList | nn.Sequential) or not len(found):
            got = "no module of this name" if found is None else f"a {type(found).__name__}"
            raise ValueError(f"blocks names a torch.nn.ModuleList or Sequential with modules, got {blocks!r}: {got}")
        return (_chain(blocks, found),)
    chains: list[Chain] = []
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{chain.name}.") or not chain.name for chain in chains)
        if isinstance(module, nn.ModuleList | nn.Sequential) and not inside and _is_list_of_blocks(module):
            chains.append(_chain(name, module))
    if not chains:
        raise ValueError(
            f"a model has a torch.nn.ModuleList or Sequential of blocks of one class with linear layers, got "
            f"{type(model).__name__} without one: {_HELP}"
        )
    return tuple(chains)


def _chain(name: str, module: nn.ModuleList | nn.Sequential) -> Chain:
    return Chain(name, tuple(f"{name}.{child}" if name else child for child, _ in module.named_children()))


def _is_list_of_blocks(module: nn.Module) -> bool:
    children = list(module.children())
    kinds = {type(child) for child in children}
    return len(kinds) == 1 and all(
        any(is_dense(each) or isinstance(each, SparseLinear) for each in child.modules()) for child in children
    )


@dataclass(frozen=True, slots=True)
class _Carried:
    """A place in a block's arguments that takes an output of the block before, by its number."""

    output: int


@dataclass(frozen=True, slots=True)
class Call:
    """How a block is called for one batch: its arguments, flat, with `_Carried` for what the block before gives. Tensors
    may be in files.
    """

    leaves: tuple[Any, ...]
    spec: TreeSpec

    def arguments(self, state: Sequence[Any], device: torch.device) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with the outputs of the block before, on a device."""
        return moved(self.filled(state), device)

    def filled(self, state: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with the outputs of the block before, where these are."""
        filled = [state[leaf.output] if isinstance(leaf, _Carried) else leaf for leaf in self.leaves]
        return tree_unflatten(filled, self.spec)

    @property
    def carried(self) -> set[int]:
        """The outputs of the block before that the call takes."""
        return {leaf.output for leaf in self.leaves if isinstance(leaf, _Carried)}


def run(block: nn.Module, weights: Mapping[str, Tensor], arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> Any:
    """The output of a block, with other weights in the place of some of its own."""
    args, kwargs = arguments
    if weights:
        return functional_call(block, dict(weights), args, kwargs)
    return block(*args, **kwargs)


def outputs(result: Any) -> list[Any]:
    """The outputs of a block, flat: what the next block may be given."""
    return tree_leaves(result)


def stream(leaves: Sequence[Any]) -> Tensor:
    """The one that the blocks hand on: the first tensor of floating type."""
    return next(leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point())


def chains_of(
    model: nn.Module, blocks: str | None, batch: Tensor, source: Callable[[Chain], Blocks] | None = None
) -> dict[Chain, Blocks]:
    """The chains of a model: the lists that `find_chains` finds, and that a run on a small batch confirms.

    source: where the blocks of the one chain come from, if they are not in the model's memory. Raises ValueError if
    there is none, and if the list with the most parameters is not one of them.
    """
    found = find_chains(model, blocks)
    if source is not None and len(found) > 1:
        names = " and ".join(repr(chain.name) for chain in found)
        raise ValueError(f"blocks that come one at a time are of one chain, got {names}: load the model into memory")
    chains, errors = dict[Chain, Blocks](), dict[int, ValueError]()
    for chain in found:
        mine = Resident(model, chain) if source is None else source(chain)
        try:
            check_chain(model, chain, mine, batch)
            chains[chain] = mine
        except ValueError as error:
            errors[_size(model, chain)] = error
    if errors and max(errors) > max((_size(model, chain) for chain in chains), default=0):
        raise errors[max(errors)]
    return chains


def weights_of(model: nn.Module, chain: Chain) -> Iterator[nn.Parameter]:
    """The parameters of a chain that are matrices, or stacks of such."""
    return (p for name in chain.names for p in model.get_submodule(name).parameters() if p.dim() > 1)


def _size(model: nn.Module, chain: Chain) -> int:
    return sum(p.numel() for p in weights_of(model, chain))


class Capture:
    """Finds how a model calls the blocks of a chain, batch by batch.

    Only the first block runs; the others give its output on. So no weights of theirs are needed. `calls[batch][index]`
    has the arguments of a block.
    """

    def __init__(self, model: nn.Module, chain: Chain, source: Blocks, device: torch.device) -> None:
        self._model, self._chain, self._source, self._device = model, chain, source, device
        self._blocks = [model.get_submodule(name) for name in chain.names]
        self._shared: dict[int, Tensor] = {}

    def calls(self, batch: Tensor) -> list[Call]:
        """The calls of all blocks for one batch. Raises ValueError if the modules are no chain."""
        first = self._source.load(0).to(self._device)
        recorder = _Recorder(self._chain, first.forward, self._device)
        try:
            with torch.no_grad(), patched(self._blocks, recorder.forward), recorder:
                call_model(self._model, batch)
        except Stop:
            pass
        missing = [name for index, name in enumerate(self._chain.names) if index >= len(recorder.calls)]
        if missing:
            raise ValueError(f"all blocks of {self._chain.name!r} run, got no call of {missing[0]}: {_HELP}")
        # Masks and tables of positions are often equal in all batches: one copy serves.
        known: dict[int, Any] = {}
        self._position = 0
        return [Call(tuple(self._once(leaf, known) for leaf in call.leaves), call.spec) for call in recorder.calls]

    def _once(self, leaf: Any, known: dict[int, Any]) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if id(leaf) not in known:
            last = self._shared.get(self._position)
            equal = last is not None and last.shape == leaf.shape and last.dtype == leaf.dtype
            if not (equal and last is not None and torch.equal(last, leaf)):
                self._shared[self._position] = leaf
            known[id(leaf)] = self._shared[self._position]
            self._position += 1
        return known[id(leaf)]


class _Recorder(TorchFunctionMode):
    """Stands for the blocks in a forward pass of the model, and ends it at the first function behind the last block."""

    def __init__(self, chain: Chain, first: Callable[..., Any], device: torch.device) -> None:
        super().__init__()
        self._chain, self._first, self._device = chain, first, device
        self.calls: list[Call] = []
        self._output: Any = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if len(self.calls) == len(self._chain.names):
            raise Stop
        return func(*args, **(kwargs or {}))

    def forward(self, index: int, args: Any, kwargs: Any) -> Any:
        names = self._chain.names
        if index < len(self.calls):
            raise ValueError(f"a block runs once in a pass, got a second call of {names[index]}: {_HELP}")
        if index > len(self.calls):
            raise ValueError(f"blocks run in their order, got {names[index]} before {names[len(self.calls)]}: {_HELP}")
        leaves, spec = tree_flatten((args, kwargs))
        if index == 0:
            home = next((leaf.device for leaf in leaves if isinstance(leaf, Tensor)), self._device)
            result = self._first(*moved(args, self._device), **moved(kwargs, self._device))
            self._output = moved(result, home)
            self.calls.append(Call(tuple(leaves), spec))
            return self._output
        given = {id(leaf): _Carried(at) for at, leaf in enumerate(outputs(self._output)) if isinstance(leaf, Tensor)}
        call = Call(tuple(given.get(id(leaf), leaf) for leaf in leaves), spec)
        if not call.carried:
            raise ValueError(
                f"each block reads the output of the one before, as it is, got {names[index]} that does not: {_HELP}"
            )
        self.calls.append(call)
        return self._output


def check_chain(model: nn.Module, chain: Chain, source: Blocks, batch: Tensor) -> None:
    """Run the blocks of a chain one by one on a small batch, and compare with the model's own run.

    Raises ValueError for a model that hands more from block to block than their outputs. Nothing is changed.
    """
    blocks = [model.get_submodule(name) for name in chain.names]
    forwards = [block.forward for block in blocks]
    device = _device_of(source.load(0))
    calls = Capture(model, chain, source, device).calls(batch)
    own: list[Any] = []
    state: list[Any] = []

    def watched(index: int, args: Any, kwargs: Any) -> Any:
        block = source.load(index)
        result = forwards[index](*args, **kwargs)
        alone, named = calls[index].arguments(state, _device_of(block))
        state[:] = outputs(forwards[index](*alone, **named))
        own[:] = outputs(result)
        source.store(index, block)
        return result

    with torch.no_grad(), patched(blocks, watched):
        call_model(model, batch)
    wanted, got = stream(own).float(), stream(state).float()
    # NaN and infinity compare with nothing: the walk names their layer.
    far = wanted.shape != got.shape or bool((wanted - got.to(wanted.device)).norm() > _CLOSE * wanted.norm())
    if far:
        raise ValueError(
            f"blocks hand on nothing but their outputs, got {chain.name!r} whose blocks, run one by one, give another "
            f"result than the model: {_HELP}"
        )


def _device_of(block: nn.Module) -> torch.device:
    return next((p.device for p in block.parameters()), torch.device("cpu"))


@contextlib.contextmanager
def patched(blocks: Sequence[nn.Module], forward: Callable[[int, Any, Any], Any]) -> Generator[None]:
    """Give each block another `forward` meanwhile."""

    def of(index: int) -> Callable[..., Any]:
        return lambda *args, **kwargs: forward(index, args, kwargs)

    before = [vars(block).get("forward") for block in blocks]
    try:
        for index, block in enumerate(blocks):
            block.forward = of(index)
        yield
    finally:
        for block, old in zip(blocks, before, strict=True):
            if old is None:
                vars(block).pop("forward", None)
            else:
                block.forward = old


def call_model(model: nn.Module, batch: Tensor) -> Any:
    """Run a model on a batch: token ids for all its inputs that take them, without a cache of keys and values."""
    takes_more = "decoder_input_ids" in inspect.signature(model.forward).parameters
    # Set in configurations, because a wrapper's `forward` may not name it.
    configs = {id(config): config for module in model.modules() if (config := getattr(module, "config", None))}
    cached = [config for config in configs.values() if getattr(config, "use_cache", None)]
    try:
        for config in cached:
            config.use_cache = False
        return model(batch, **({"decoder_input_ids": batch} if takes_more else {}))
    finally:
        for config in cached:
            config.use_cache = True


def moved(tree: Any, device: torch.device) -> Any:
    """A tree with its tensors on a device, read from files where they are there."""

    def move(leaf: Any) -> Any:
        return leaf.to(device) if isinstance(leaf, Tensor | Stored) else leaf

    return tree_map(move, tree)
