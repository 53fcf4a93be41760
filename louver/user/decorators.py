"""Decorators above a kernel, `triton.autotune` and `triton.heuristics`, and their effect on a call's arguments."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from louver.formats.tensor import SparseTensor
from louver.formats.torch_tensors import dense_meta, is_torch_tensor

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")
"""Options that a `triton.Config` sets besides the kernel's constants."""

DEFAULT_WARPS = 4
"""Warps of a `triton.Config` by default."""

Heuristic: TypeAlias = "Callable[[dict[str, Any]], Any]"


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A call with the additions of the decorators.

    args, kwargs: for the kernel beneath. config: a `triton.Config` or None. constants: from config and heuristics.
    named: the arguments for hooks by name, in the call's order, with the config's options.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    config: Any
    constants: dict[str, Any]
    named: dict[str, Any]

    @property
    def hook(self) -> Callable[[dict[str, Any]], Any] | None:
        """The function that the config calls before each launch."""
        return None if self.config is None else self.config.pre_hook

    @property
    def warps(self) -> int | None:
        """The config's warps; None for Triton's default, which may not be the author's choice."""
        warps = None if self.config is None else self.config.num_warps
        return None if warps == DEFAULT_WARPS else warps

    def same(self, other: Candidate, product: bool) -> bool:
        """Whether another candidate of the call gives the same kernel. product: this one is a product, with own warps."""
        if other.constants != self.constants or other.hook is not self.hook:
            return False
        return product or other.warps == self.warps

    def run_hook(self) -> None:
        """Call the config's hook as before a launch. It may change descriptors and arrays."""
        if self.hook is not None:
            self.hook(self.named)

    def __str__(self) -> str:
        if self.config is None:
            return "no config"
        options = {"num_warps": self.config.num_warps, "num_stages": self.config.num_stages}
        return ", ".join(f"{name}={value!r}" for name, value in {**self.config.kwargs, **options}.items())


@dataclass(frozen=True, slots=True, eq=False)
class Layers:
    """The decorators above a kernel, from the outside in. native: the outermost object, which launches without Louver.

    names: the kernel's arguments, in order. above, below: heuristics on either side of `triton.autotune`; without it
        all are above. tuner: the `triton.autotune` object, or None.
    """

    native: Any
    names: tuple[str, ...]
    above: tuple[Mapping[str, Heuristic], ...]
    tuner: Any
    below: tuple[Mapping[str, Heuristic], ...]

    @property
    def count(self) -> int:
        """Number of configs."""
        return 1 if self.tuner is None else len(self.tuner.configs)

    @property
    def hooked(self) -> bool:
        return self.tuner is not None and any(config.pre_hook is not None for config in self.tuner.configs)

    def outer(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The keywords at `triton.autotune`, with the values of heuristics above it."""
        found = dict(kwargs)
        for values in self.above:
            found |= self._computed(values, args, found, self.tuner is not None)
        return found

    def named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The given arguments by name, as the author's functions see them."""
        return _shown({**dict(zip(self.names, args, strict=False)), **kwargs})

    def configs(self, args: tuple[Any, ...], outer: dict[str, Any]) -> Sequence[Any]:
        """The configs after the user's pruning; [None] without `triton.autotune`. outer: the keywords at
        `triton.autotune`. Raises ValueError if none is left, and errors of the user's functions.
        """
        if self.tuner is None:
            return [None]
        if self.count == 1:
            return list(self.tuner.configs)
        # Triton stores a call's arguments in its object. A copy hides this from other threads and from Triton's own
        # calls.
        pruning = copy.copy(self.tuner)
        named = self.named(args, outer)
        pruning.nargs = {name: named[name] for name, _ in zip(self.names, args, strict=False)}
        try:
            found = list(pruning.prune_configs({name: named[name] for name in outer}))
        except Exception as error:
            error.add_note(
                "While configs of triton.autotune were pruned; a sparse argument has no elements there: it is a tensor on "
                "PyTorch's meta device, or louver.SparseTensor beside arrays of NumPy."
            )
            raise
        if not found:
            raise ValueError(f"prune_configs_by must leave one config at least, got none of {self.count}")
        return found

    def candidate(self, config: Any, args: tuple[Any, ...], outer: dict[str, Any]) -> Candidate:
        """The call with a config and with the values of heuristics below it."""
        if config is None:
            return Candidate(args, outer, None, {}, self.named(args, outer))
        options = {name: value for name in OPTIONS if (value := getattr(config, name, None)) is not None}
        constants = dict(config.kwargs)
        for values in self.below:
            constants |= self._computed(values, args, {**outer, **options, **constants}, False)
        named = {**self.named(args, outer), **config.kwargs, **options}
        return Candidate(args, {**outer, **constants}, config, constants, named)

    def check_conflicts(self, given: Mapping[str, Any]) -> None:
        """Raises ValueError if a call or heuristics above set what configs set. given: arguments and options by name."""
        for config in () if self.tuner is None else self.tuner.configs:
            names = [name for name in (*config.kwargs, *OPTIONS) if name in given]
            if names:
                raise ValueError(
                    f"configs of triton.autotune set {', '.join((*config.kwargs, 'num_warps', 'num_stages'))}, got "
                    f"{', '.join(f'{name}={given[name]!r}' for name in names)} with the call or by triton.heuristics above: leave it to the configs, or give "
                    "louver.jit the kernel beneath triton.autotune"
                )

    def _computed(
        self, values: Mapping[str, Heuristic], args: tuple[Any, ...], kwargs: dict[str, Any], above: bool
    ) -> dict[str, Any]:
        """The values of heuristics, each of which sees those before it. above: they stand above `triton.autotune`."""
        found: dict[str, Any] = {}
        for name, heuristic in values.items():
            try:
                found[name] = heuristic(self.named(args, {**kwargs, **found}))
            except Exception as error:
                unseen = "; it stands above triton.autotune, whose configs it does not see" if above else ""
                error.add_note(f"In the value that triton.heuristics computes for {name!r}{unseen}.")
                raise
        return found


def _shown(named: dict[str, Any]) -> dict[str, Any]:
    """The arguments, with a tensor without memory for each sparse one beside PyTorch's tensors, as authors write for those."""
    if not any(map(is_torch_tensor, named.values())):
        return named
    return {
        name: dense_meta(each.shape, each.dtype.numpy) if isinstance(each, SparseTensor) else each
        for name, each in named.items()
    }


def unwrap(kernel: Any) -> tuple[Any, Layers | None]:
    """The kernel beneath Triton's decorators, and the decorators or None. Raises ValueError for two `triton.autotune`."""
    native, tuner = kernel, None
    above: list[Mapping[str, Heuristic]] = []
    below: list[Mapping[str, Heuristic]] = []
    while not hasattr(kernel, "params") and hasattr(kernel, "fn"):
        if hasattr(kernel, "configs"):
            if tuner is not None:
                raise ValueError("a kernel has one triton.autotune, got two: give the outer one the configs of both")
            tuner = kernel
        elif isinstance(getattr(kernel, "values", None), Mapping):
            (above if tuner is None else below).append(kernel.values)
        else:
            break
        kernel = kernel.fn
    if kernel is native:
        return kernel, None
    names = tuple(cast("Sequence[str]", native.arg_names))
    return kernel, Layers(native, names, tuple(above), tuner, tuple(below))
