"""One token more for each row, with all keys and values in memory of fixed place: a step that a CUDA graph can replay.

PyTorch shows each function that a model calls (`TorchFunctionMode`). The attention of a new token is replaced by one
over the kept keys and values, so the model needs no cache of its own, and no shape changes from step to step.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from louver.torch.accuracy.scores import logits_of, takes

CLOSE: Final = 0.05
"""Most relative difference of logits from those of a pass over the whole row, which rounds otherwise."""


class _Kept(TorchFunctionMode):
    """Attention over kept keys and values. Each layer's are [rows, heads, length, width]."""

    def __init__(self, length: int, device: torch.device) -> None:
        super().__init__()
        self.at = torch.zeros((), dtype=torch.long, device=device)
        self._positions = torch.arange(length, device=device)
        self._layers: list[tuple[Tensor, Tensor, int]] = []
        self._next = 0

    def begin(self) -> None:
        """Begin a pass: the next attention is that of the first layer."""
        self._next = 0

    @property
    def layers(self) -> int:
        """Layers of the last pass."""
        return self._next

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.scaled_dot_product_attention:
            return self._attend(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, *_: Any, scale: float | None = None, **__: Any
    ) -> Tensor:
        if key.shape[2] != 1:
            raise ValueError(f"a step has one token, got {key.shape[2]} keys")
        if self._next == len(self._layers):
            self._layers.append(self._place(key, value))
        keys, values, times = self._layers[self._next]
        self._next += 1
        keys.index_copy_(2, self.at[None], key[:, ::times])
        values.index_copy_(2, self.at[None], value[:, ::times])
        # All queries are of this token: those of one head of the keys are the rows of one product.
        grouped = query.reshape(len(query), keys.shape[1], -1, query.shape[3])
        seen = (self._positions <= self.at)[None, None, None]
        found = functional.scaled_dot_product_attention(grouped, keys, values, attn_mask=seen, scale=scale)
        return found.reshape(*query.shape[:3], values.shape[3])

    def _place(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, int]:
        """Memory for a layer, and how often each head of its keys and values is repeated, which is kept once."""
        heads = key.shape[1]
        times = next(
            n
            for n in range(heads, 0, -1)
            if heads % n == 0 and all(torch.equal(x, x[:, ::n].repeat_interleave(n, 1)) for x in (key, value))
        )
        made = [x.new_zeros(x.shape[0], heads // times, len(self._positions), x.shape[3]) for x in (key, value)]
        return made[0], made[1], times


class Decoder:
    """A model that scores the next token of rows of one length, step by step."""

    def __init__(self, model: nn.Module, first: Tensor, length: int) -> None:
        """first: [rows], the first tokens. length: most tokens of a row.

        Raises ValueError for a model that takes no positions, or whose attention is not PyTorch's.
        """
        if not (takes(model, "position_ids") and takes(model, "attention_mask")):
            raise ValueError(f"a {type(model).__name__} takes no position_ids and attention_mask")
        self._model, self._token = model, first[:, None].clone()
        self._kept = _Kept(length, first.device)
        self._graph: Any = None
        kind = next(model.parameters()).dtype
        # A mask that is ready, of one query and one key: models take it as it is. The attention here ignores it.
        self._mask = torch.zeros(len(first), 1, 1, 1, dtype=kind, device=first.device)
        self._scores = self._pass()
        if self._kept.layers == 0:
            raise ValueError(f"a {type(model).__name__} calls no scaled_dot_product_attention")
        if first.is_cuda:
            self._capture()

    def __call__(self, token: Tensor, at: int) -> Tensor:
        """Scores [rows, vocabulary] after a token of each row at position `at`. Valid until the next call."""
        self._token.copy_(token[:, None])
        self._kept.at.fill_(at)
        if self._graph is None:
            self._scores = self._pass()
        else:
            self._graph.replay()
        return self._scores

    def check(self, text: Tensor) -> None:
        """Compare the last scores with those of a pass over `text` [rows, length] of the first rows.

        Raises ValueError for a model that computes something else, as with windows or other kinds of state.
        """
        wanted = logits_of(self._model, text)[:, -1].float()
        far = (self._scores[: len(text)].float() - wanted).norm() / wanted.norm()
        if not far <= CLOSE:
            raise ValueError(f"scores of kept keys are those of a whole pass, got a difference of {far:.1%}")

    def _pass(self) -> Tensor:
        self._kept.begin()
        positions = self._kept.at.expand(len(self._token), 1)
        with self._kept:
            made: Any = self._model(self._token, attention_mask=self._mask, position_ids=positions, use_cache=False)
        return made.logits[:, -1]

    def _capture(self) -> None:
        stream = torch.cuda.Stream(self._token.device)
        stream.wait_stream(torch.cuda.current_stream(self._token.device))
        with torch.cuda.stream(stream):
            self._pass()
        torch.cuda.current_stream(self._token.device).wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._token.device), torch.cuda.graph(self._graph):
            self._scores = self._pass()
