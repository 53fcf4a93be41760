"""The source of a user's kernel: its parameters, a key, and its tile IR for given argument types."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from louver.user.reached import Reached, Read, reached, unchanged

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel.

    constexpr: its value is compiled in. default: its value if a call omits it, with `has_default`.
    type: the Triton type of a user's annotation, such as "i64", or "". by_value: an integer 1 is compiled in.
    """

    name: str
    constexpr: bool = False
    has_default: bool = False
    default: Any = None
    type: str = ""
    by_value: bool = True


class TileSource(Protocol):
    """The source from which a kernel is compiled."""

    @property
    def name(self) -> str: ...

    @property
    def key(self) -> str:
        """A hash of the kernel's source, of all that it reaches as it is now, and of its compiler's version."""
        ...

    @property
    def files(self) -> tuple[str, ...]:
        """The Python files of its functions. Messages quote their lines."""
        ...

    def tile_ir(
        self, signature: Mapping[str, str], constexprs: Mapping[str, Any], sparse: Mapping[str, str], target: str
    ) -> ModuleOp:
        """The kernel as tile IR, see `louver.frontend.triton.triton_to_tile_ir`."""
        ...


@dataclass(frozen=True, slots=True)
class ReadOnce:
    """A source for one call. The kernels that the call tries differ in other ways than their tile IR, which is read once."""

    source: TileSource
    _read: dict[tuple[Any, ...], ModuleOp] = field(
        default_factory=dict[tuple[Any, ...], "ModuleOp"], init=False, repr=False, compare=False
    )

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def key(self) -> str:
        return self.source.key

    @property
    def files(self) -> tuple[str, ...]:
        return self.source.files

    def tile_ir(
        self, signature: Mapping[str, str], constexprs: Mapping[str, Any], sparse: Mapping[str, str], target: str
    ) -> ModuleOp:
        """A copy, which the caller may change."""
        key = self.key, target, *(tuple(each.items()) for each in (signature, constexprs, sparse))
        if key not in self._read:
            self._read[key] = self.source.tile_ir(signature, constexprs, sparse, target)
        return self._read[key].clone()


class KernelSource(TileSource, Protocol):
    """A kernel whose arguments are not known yet."""

    @property
    def parameters(self) -> tuple[Parameter, ...]: ...

    @property
    def reads(self) -> tuple[Read, ...]:
        """What must be unchanged for `key` to be the same."""
        ...

    @property
    def native(self) -> Any:
        """Triton's launcher `native[grid](…)`, or None."""
        ...


@dataclass(frozen=True, slots=True)
class TritonSource:
    """A function decorated with `triton.jit`. Raises ValueError for anything else."""

    kernel: Any
    _known: list[Reached] = field(default_factory=list["Reached"], init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not hasattr(self.kernel, "params") or not hasattr(self.kernel, "fn"):
            raise ValueError(
                f"louver.jit takes a function decorated with triton.jit, got {type(self.kernel).__name__}: {self.kernel!r}; of other "
                "decorators only triton.autotune and triton.heuristics may stand above it"
            )

    @property
    def name(self) -> str:
        return str(self.kernel.fn.__name__)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
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
        """Triton's version and a hash of the function and of all that it reaches, see `louver.user.reached`."""
        return f"triton {sys.modules['triton'].__version__} {self._reached().key}"

    @property
    def reads(self) -> tuple[Read, ...]:
        return self._reached().reads

    @property
    def files(self) -> tuple[str, ...]:
        return self._reached().files

    def _reached(self) -> Reached:
        """What the kernel reaches now. It is walked again only after a change."""
        for known in self._known:
            if unchanged(known.reads):
                return known
        found = reached(self.kernel)
        self._known[:] = [found]
        return found

    @property
    def native(self) -> Any:
        return self.kernel

    def tile_ir(
        self, signature: Mapping[str, str], constexprs: Mapping[str, Any], sparse: Mapping[str, str], target: str
    ) -> ModuleOp:
        # Imported here: a warm start needs neither xDSL nor Triton's compiler.
        from louver.frontend.triton import triton_to_tile_ir

        return triton_to_tile_ir(self.kernel, signature, constexprs, sparse=sparse, target=target)
