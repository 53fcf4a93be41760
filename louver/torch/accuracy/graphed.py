"""All blocks of a model as one function of the stream, so that one CUDA graph runs them forward and one backward.

A block of a small model takes the host longer than the GPU. Replays of graphs take it a few microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from louver.torch.accuracy.blocks import Call, Capture, Resident, find_chains, outputs
from louver.torch.layers import is_hooked


class Body(nn.Module):
    """The blocks of a model, called as the model calls them for tokens of one shape.

    It takes the stream that the first block reads, and gives the one that the last block writes. All other arguments
    of blocks are constants: tables of positions, masks.
    """

    def __init__(self, model: nn.Module, tokens: Tensor, wrap: Callable[[Any], Any] = lambda forward: forward) -> None:
        """tokens: [rows, length], of the shape of all calls. wrap: makes what runs of a block's `forward`.

        Raises ValueError for a model whose blocks are no such function: of several chains, with hooks, with arguments
        that depend on the tokens, or with several outputs.
        """
        super().__init__()
        chains = find_chains(model)
        if len(chains) != 1:
            raise ValueError(f"blocks are of one chain, got {len(chains)}")
        names = chains[0].names
        self.blocks = nn.ModuleList(model.get_submodule(name) for name in names)
        hooked = [name for name, block in zip(names, self.blocks, strict=True) if is_hooked(block)]
        if hooked:
            raise ValueError(f"blocks have no hooks, got {hooked[0]} with some")
        capture = Capture(model, chains[0], Resident(model, chains[0]), tokens.device)
        one, other = capture.calls(tokens), capture.calls(tokens.flip(0, 1))
        self._calls, self._stream = one, _stream_of(one, other, names)
        self._forwards = [wrap(block.forward) for block in self.blocks]
        self._made: Any = None
        self.sample: Tensor = one[0].leaves[self._stream].detach().clone()
        """A stream that the first block reads."""

    def forward(self, x: Tensor) -> Tensor:
        result: Any = None
        for index, (call, forward) in enumerate(zip(self._calls, self._forwards, strict=True)):
            if index == 0:
                leaves = list(call.leaves)
                leaves[self._stream] = x
                args, kwargs = tree_unflatten(leaves, call.spec)
            else:
                args, kwargs = call.arguments(outputs(result), x.device)
            result = forward(*args, **kwargs)
        leaves, self._spec = tree_flatten(result)
        self._at = [at for at, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        if len(self._at) != 1:
            raise ValueError(f"a block gives one tensor, got {len(self._at)}")
        self._rest = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        return leaves[self._at[0]]

    def enter(self, run: Callable[[Tensor], Tensor]) -> None:
        """Let the model's own first block run all of them by `run`, this module or a graph of it; the others hand on."""

        def first(*args: Any, **kwargs: Any) -> Any:
            leaves = list(self._rest)
            leaves[self._at[0]] = run(tree_flatten((args, kwargs))[0][self._stream])
            self._made = tree_unflatten(leaves, self._spec)
            return self._made

        for index, block in enumerate(self.blocks):
            block.forward = first if index == 0 else lambda *args, **kwargs: self._made

    def leave(self) -> None:
        """Let the model run its blocks itself again."""
        self._made = None
        for block in self.blocks:
            vars(block).pop("forward", None)


def _stream_of(one: Sequence[Call], other: Sequence[Call], names: Sequence[str]) -> int:
    """Which argument of the first block depends on the tokens. one, other: calls of all blocks for two batches."""
    depends = [
        (name, at)
        for name, a, b in zip(names, one, other, strict=True)
        for at, (x, y) in enumerate(zip(a.leaves, b.leaves, strict=True))
        if isinstance(x, Tensor) and not (isinstance(y, Tensor) and x.shape == y.shape and torch.equal(x, y))
    ]
    if [name for name, _ in depends] != [names[0]]:
        raise ValueError(
            f"blocks read one argument that depends on the tokens, got {', '.join(name for name, _ in depends) or 'none'}"
        )
    if any(len(call.carried) != 1 for call in one[1:]):
        raise ValueError("each block reads one output of the block before")
    return depends[0][1]


def graph(body: Body) -> Callable[[Tensor], Tensor]:
    """Capture a body in CUDA graphs, forward and backward. Its parameters and their gradients then stay where they are.

    The result of a call, and gradients of a backward pass, are valid until the next one.
    """
    sample = body.sample.requires_grad_()
    made: Any = torch.cuda.make_graphed_callables(body, (sample,))
    return made
