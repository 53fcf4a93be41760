"""Compresses the weights of a dense checkpoint one by one, each before Transformers reads the next one."""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from louver.formats.pattern import Pattern
from louver.torch.layers import dense_layers
from louver.torch.swap import Swapper, checked_tokens, choices_of, nothing_kept, refusal


class Loading:
    """Stands between a checkpoint and a model on the meta device. Arguments as of `compress_`.

    Transformers gives each weight to `convert` when it has read it, under its name in the model, and sets what it gets
    back. A dense weight is alive only during that call.
    """

    def __init__(
        self,
        model: nn.Module,
        tokens: int | Sequence[int],
        patterns: Sequence[str | Pattern],
        skip: Collection[str],
        force: bool,
    ) -> None:
        self._patterns = [Pattern.parse(pattern) for pattern in patterns]
        self._swapper = Swapper(checked_tokens(tokens), force)
        layers = dense_layers(model)
        self._reasons: dict[str, str] = {layer.name: refusal(layer, skip) or "it was not loaded" for layer in layers}
        self._waiting = {
            name: layer for layer in layers if refusal(layer, skip) is None for name in layer.parameter_names
        }
        self._swapped: set[str] = set()

    def takes(self, name: str) -> bool:
        """Whether a parameter of the dense model is a weight that may become sparse, or that has become it."""
        return name in self._waiting or name in self._swapped

    def convert(
        self, input_dict: Mapping[str, Any], *, missing_keys: set[str] | None = None, **_: Any
    ) -> dict[str, Tensor]:
        """The parameters to set in place of those that were read."""
        made: dict[str, Tensor] = {}
        for name, given in input_dict.items():
            # A list has one tensor, see `transformers.core_model_loading`.
            w: Tensor = given[0] if isinstance(given, list) else given
            if name in self._waiting and w.shape == self._waiting[name].stored.shape:
                made |= self._parts(name, w)
            elif name not in self._swapped:
                made[name] = w
        if missing_keys is not None:
            missing_keys -= self._swapped
        return made

    def _parts(self, name: str, w: Tensor) -> dict[str, Tensor]:
        layer = self._waiting[name]
        for each in layer.parameter_names:
            del self._waiting[each]
        layer.store(nn.Parameter(w, layer.stored.requires_grad))
        (choice,) = choices_of([layer], self._patterns, ())
        row = self._swapper.row(choice)
        self._reasons[layer.name] = row.reason if choice.pattern is None else ""
        if row.done != "sparse":
            return {name: w}
        self._swapped |= set(layer.parameter_names)
        return {f"{name}.{part}": each.detach() for part, each in layer.placed.weight.named_parameters()}

    def check(self) -> None:
        """Raises ValueError if no weight that was read keeps a pattern."""
        if all(self._reasons.values()):
            raise nothing_kept(self._reasons, self._patterns)
