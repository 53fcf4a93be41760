"""The source of a user's kernel: its parameters, a key of its source, and its tile IR for given argument types."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel.

    constexpr: its value is compiled in. default: its value where a call does not give it, if `has_default`.
    type: Triton's type that the user wrote beside a number, such as "i64", or "". by_value: an integer 1 is compiled in.
    """

    name: str
    constexpr: bool = False
    has_default: bool = False
    default: Any = None
    type: str = ""
    by_value: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A global of a kernel's module, which is compiled in. module: its globals."""

    name: str
    value: Any
    module: Mapping[str, Any]

    @property
    def changed(self) -> bool:
        """Whether it has another value now."""
        return bool(self.name not in self.module or self.module[self.name] != self.value)


class TileSource(Protocol):
    """The source that a kernel is compiled from."""

    @property
    def name(self) -> str:
        """The kernel's name."""
        ...

    @property
    def key(self) -> str:
        """A hash of all source text that the kernel is made of, called functions and its compiler's version included.

        Raises RuntimeError when a global that is compiled in has changed.
        """
        ...

    def tile_ir(
        self, signature: Mapping[str, str], constexprs: Mapping[str, Any], sparse: Mapping[str, str], target: str
    ) -> ModuleOp:
        """The kernel as tile IR, see `louver.frontend.triton.triton_to_tile_ir`."""
        ...


class KernelSource(TileSource, Protocol):
    """A kernel before its arguments are known."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Its parameters, in order."""
        ...

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Global constants that the kernel was compiled with; known once its `key` is."""
        ...

    @property
    def native(self) -> Any:
        """Triton's own launcher of the kernel, as `native[grid](…)`; None if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class TritonSource:
    """A function decorated with `triton.jit`. Raises ValueError for anything else."""

    kernel: Any

    def __post_init__(self) -> None:
        if not hasattr(self.kernel, "params") or not hasattr(self.kernel, "fn"):
            raise ValueError(
                f"louver.jit takes a function decorated with triton.jit, got {type(self.kernel).__name__}: {self.kernel!r}; of other "
                "decorators only triton.autotune and triton.heuristics may stand above it"
            )

    @property
    def name(self) -> str:
        """The function's name."""
        return str(self.kernel.fn.__name__)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """As Triton has them."""
        return tuple(
            Parameter(
                each.name,
                each.is_constexpr,
                each.has_default,
                each.default if each.has_default else None,
                str(each.annotation_type),
                not each.do_not_specialize,
            )
            for each in self.kernel.params
        )

    @property
    def key(self) -> str:
        """Triton's hash of the function and of what it calls, and Triton's version."""
        key = self.kernel.cache_key
        for each in self.constants:
            if each.changed:
                raise RuntimeError(
                    f"{self.name} was compiled with the global {each.name} = {each.value!r}, got "
                    f"{each.module.get(each.name)!r} now: pass it as a tl.constexpr"
                )
        return f"triton {sys.modules['triton'].__version__} {key}"

    @property
    def constants(self) -> tuple[Constant, ...]:
        """As Triton has noted them."""
        found = self.kernel.used_global_vals.items()
        return tuple(Constant(name, value, module) for (name, _), (value, module) in found)

    @property
    def native(self) -> Any:
        """Triton's own launcher."""
        return self.kernel

    def tile_ir(
        self, signature: Mapping[str, str], constexprs: Mapping[str, Any], sparse: Mapping[str, str], target: str
    ) -> ModuleOp:
        """By Triton's frontend."""
        # A warm start needs neither xDSL nor Triton's compiler.
        from louver.frontend.triton import triton_to_tile_ir

        return triton_to_tile_ir(self.kernel, signature, constexprs, sparse=sparse, target=target)
