"""The levels of one kernel as text, for each family and each source of kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from xdsl.dialects.builtin import ModuleOp

from louver.choose.reasons import Reasons
from louver.compile.canonical.canonicalize import canonicalize
from louver.compile.compiled import CompiledKernel, CompiledProduct, ProductLevel, TileLevel
from louver.compile.decompose.decompose_sparse_tensors import decompose_sparse_tensors
from louver.ptx.assembler import assemble
from louver.ptx.sass import disassemble
from louver.user.arguments import Kind
from louver.user.compiled import Wanted, assembled
from louver.user.explained import reasons_of
from louver.user.hints import Hints

PRODUCT_LEVELS = ("tile", "canonical", "decomposed", "sched", "ptx", "sass")
"""In order. "decomposed" is only for the reader; no later level of a product depends on it."""

TILES_LEVELS = ("tile", "decomposed", "encoded", "ptx", "sass")

LEVELS = ("ttir", "tile", "canonical", "decomposed", "encoded", "sched", "ptx", "sass")


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a kernel. ttir, tile: make its Triton IR and its tile IR. ttir is None without Triton IR. reasons: makes
    those that the kernel's record keeps.

    files: the Python files whose lines a page may show: those that the user named, and those of the kernel's functions.
    """

    tile: Callable[[], ModuleOp]
    compiled: Callable[[], CompiledKernel]
    reasons: Callable[[], Reasons]
    ttir: Callable[[], str] | None = None
    files: tuple[str, ...] = ()

    def text(self, emit: str) -> str:
        """One of `LEVELS`, or "all" existing levels, each below a line with its name; or "reasons". Raises ValueError with the
        broken rule.

        For register tiles, the first line gives the reason why the kernel is no product, except with "ttir" and "tile".
        """
        if emit not in (*LEVELS, "all", "reasons"):
            raise ValueError(f"levels are {', '.join(LEVELS)}, all or reasons, got {emit!r}")
        if emit == "reasons":
            return f"{self.reasons()}\n"
        if emit == "ttir":
            if self.ttir is None:
                raise ValueError("only a Triton kernel has a TTIR: the first level here is tile")
            return self.ttir()
        # A module that the frontend reads is printed even if no family takes it.
        if emit == "tile":
            return str(self.tile()) + "\n"
        compiled = self.compiled()
        note = "" if compiled.refusal is None else f"// {reason(compiled)}\n"
        if emit != "all":
            return note + level_text(compiled, emit)
        texts = {} if self.ttir is None else {"ttir": self.ttir()}
        texts |= {level: level_text(compiled, level) for level in level_names(compiled)}
        return note + "\n".join(f"// ---- {level} ----\n{text}" for level, text in texts.items())


@dataclass(frozen=True, slots=True)
class Text:
    """A kernel that is compiled for its text, not for a call."""

    name: str
    read: Callable[[], ModuleOp]
    key: str = "printed"
    files: tuple[str, ...] = ()

    def tile_ir(
        self, signature: Mapping[str, str], constexprs: Mapping[str, Any], sparse: Mapping[str, str], target: str
    ) -> ModuleOp:
        return self.read()


def user_source(
    name: str,
    tile: Callable[[], ModuleOp],
    target: str,
    ttir: Callable[[], str] | None = None,
    *,
    multiples: tuple[str, ...] = (),
    apart: tuple[str, ...] = (),
    files: tuple[str, ...] = (),
) -> Source:
    """A user's kernel with the choices of `louver.jit` for its tile. multiples, apart: see `Wanted`. files: `Source`."""
    wanted = Wanted(Text(name, tile, files=files), Kind((), (), (), ()), Hints(), "bulk", target, multiples, apart)
    made = functools.cache(lambda: assembled(wanted))
    return Source(tile, lambda: made().kernel, lambda: reasons_of(made(), wanted), ttir, files)


def level_names(compiled: CompiledKernel) -> tuple[str, ...]:
    """The levels of the kernel's family, in order."""
    return PRODUCT_LEVELS if isinstance(compiled.made, CompiledProduct) else TILES_LEVELS


def reason(compiled: CompiledKernel) -> str:
    """Why the kernel is lowered to register tiles, in one line."""
    return " ".join(f"register tiles: {compiled.refusal}".split())


def level_text(compiled: CompiledKernel, level: str) -> str:
    """One level of the kernel's family. "sass" assembles and disassembles. Raises ValueError for the other family's."""
    made = compiled.made
    if level not in level_names(compiled):
        if isinstance(made, CompiledProduct):
            raise ValueError(f"a warpgroup product has the levels {', '.join(PRODUCT_LEVELS)}, got {level}")
        raise ValueError(f"the kernel has the levels {', '.join(TILES_LEVELS)}, got {level}: {reason(compiled)}")
    if level == "sass":
        return disassemble(assemble(made.ptx, made.target.name).cubin)
    if not isinstance(made, CompiledProduct):
        return made.text(cast("TileLevel", level))
    if level == "canonical":
        return str(canonicalize(made.tile)) + "\n"
    if level == "decomposed":
        decomposed = decompose_sparse_tensors(canonicalize(made.tile))
        decomposed.verify()
        return f"{decomposed}\n"
    return made.text(cast("ProductLevel", level))
