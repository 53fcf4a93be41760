"""Decorated kernels without Triton: what `triton.autotune` and `triton.heuristics` make, as far as Louver looks at it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from louver.isa.rule import RuleError
from louver.user.autotuned import AutotunedKernel
from louver.user.decorators import unwrap
from louver.user.hints import Hints
from louver.user.reached import Read
from louver.user.source import Parameter
from support.compiled import read_copy
from support.triton.cases import CASES, kept

REFUSED = "a style that is known"
"""The first words of the error of a refused config."""


@dataclass(frozen=True)
class Config:
    kwargs: dict[str, Any]
    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None
    pre_hook: Callable[[dict[str, Any]], Any] | None = None

    def all_kwargs(self) -> dict[str, Any]:
        return {**self.kwargs, "num_warps": self.num_warps, "num_stages": self.num_stages, "num_ctas": self.num_ctas}


class Native:
    """A launcher as Triton's autotuner takes it. launched: grids and arguments."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn
        self.arg_names = fn.arg_names
        self.launched: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **kwargs: self.launched.append((grid, args, kwargs))


class Heuristics(Native):
    def __init__(self, fn: Any, values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> None:
        super().__init__(fn)
        self.values = values


class Autotuner(Native):
    """prune: stands for `prune_configs_by`. pruned: how often it was called."""

    def __init__(
        self,
        fn: Any,
        configs: Sequence[Config],
        key: Sequence[str] = (),
        *,
        reset_to_zero: Sequence[str] = (),
        restore_value: Sequence[str] = (),
        pre_hook: Any = None,
        post_hook: Any = None,
        prune: Callable[..., list[Config]] | None = None,
    ) -> None:
        super().__init__(fn)
        self.configs = list(configs)
        self.keys = list(key)
        self.reset_to_zero = list(reset_to_zero)
        self.restore_value = list(restore_value)
        self.pre_hook, self.user_defined_pre_hook = pre_hook, pre_hook is not None
        self.post_hook, self.user_defined_post_hook = post_hook, post_hook is not None
        self.prune = prune
        self.nargs: dict[str, Any] | None = None

    def prune_configs(self, kwargs: dict[str, Any]) -> list[Config]:
        return self.configs if self.prune is None else self.prune(self.configs, self.nargs, **kwargs)


class Function:
    """A function as `triton.jit` decorates it."""

    params: tuple[Any, ...] = ()

    def __init__(self, names: Sequence[str]) -> None:
        self.arg_names = list(names)
        self.fn = len


STYLES = ("made_descriptors", "block_pointers")
"""Kept kernels with the same arguments: d, a, b, M, N, K, strides, and the tile."""


@dataclass(frozen=True)
class StyleSource:
    """A kernel whose constant STYLE says which of the kept ones it is; EVEN changes nothing. asked: the constants of each reading."""

    name: str = "styled"
    native: Any = None
    reads: tuple[Read, ...] = ()
    files: tuple[str, ...] = ()
    asked: list[dict[str, Any]] = field(default_factory=list, compare=False)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        constants = ("BM", "BN", "BK", "EVEN", "STYLE")
        names = (*(name for name in CASES[STYLES[0]].parameters if name not in constants), *constants)
        return tuple(Parameter(name, name in constants, name == "EVEN") for name in names)

    @property
    def key(self) -> str:
        return "styled"

    def tile_ir(
        self, signature: Mapping[str, str], constexprs: Mapping[str, Any], sparse: Mapping[str, str], target: str
    ) -> ModuleOp:
        self.asked.append(dict(constexprs))
        style = constexprs["STYLE"]
        if style not in STYLES:
            raise RuleError(f"{REFUSED} is {' or '.join(STYLES)}, got {style!r}")
        return read_copy(kept(style))


def styles(*names: str, **options: Any) -> list[Config]:
    """A config for each style, of the tile that the kept kernels have."""
    return [Config({"BM": 128, "BN": 64, "BK": 64, "STYLE": name}, **options) for name in names]


def decorated(
    configs: Sequence[Config] = (),
    key: Sequence[str] = ("M", "N", "K"),
    *,
    above: Mapping[str, Any] | None = None,
    below: Mapping[str, Any] | None = None,
    hints: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[AutotunedKernel, Any]:
    """The kernel under `triton.autotune` with these options, heuristics above and below it; and the outermost decorator."""
    source = StyleSource()
    kernel: Any = Function([each.name for each in source.parameters])
    kernel = kernel if below is None else Heuristics(kernel, below)
    kernel = Autotuner(kernel, configs or styles(*STYLES), key, **options)
    kernel = kernel if above is None else Heuristics(kernel, above)
    _, layers = unwrap(kernel)
    assert layers is not None
    return AutotunedKernel(source, Hints.of(hints or {}), layers), kernel
