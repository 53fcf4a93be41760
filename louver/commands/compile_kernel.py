"""`louver compile FILE.py:kernel`: a user's Triton kernel at each stage, as text. Needs Triton, no GPU."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from louver.commands.compile import stage_text
from louver.frontend.triton import triton_to_tile_ir, triton_to_ttir
from louver.isa.targets import target as machine
from louver.kernels.configure import choose_for_nest
from louver.passes.choose_family import CompiledKernel, compile_kernel
from louver.passes.compile_tiles import TileStage
from louver.passes.pipeline import CompiledProduct
from louver.ptx.assembler import assemble
from louver.ptx.sass import disassemble

KERNEL_STAGES = ("ttir", "tile", "decomposed", "encoded", "sched", "ptx", "sass")
"""What can be printed of a user's kernel, in the order of the pipeline: a product has no "encoded", register tiles no "sched"."""


@dataclass(frozen=True, slots=True)
class KernelArguments:
    """What a kernel is compiled for: Triton's types and constants by argument, patterns of the sparse ones."""

    signature: Mapping[str, str]
    constexprs: Mapping[str, int | float | bool | str]
    sparse: Mapping[str, str]

    @classmethod
    def parse(cls, arguments: Iterable[str], constants: Iterable[str], sparse: Iterable[str]) -> KernelArguments:
        """From texts such as "a=*fp16", "BLOCK_M=128" and "a=2:4". Raises ValueError with the rule."""
        signature, patterns = (dict(_pair(text) for text in texts) for texts in (arguments, sparse))
        return cls(signature, {name: _constant(value) for name, value in map(_pair, constants)}, patterns)


def load_kernel(place: str) -> Any:
    """The function that "FILE.py:name" names. Raises ValueError with the rule, and whatever the file itself raises."""
    path, colon, name = place.rpartition(":")
    if not colon or not path.endswith(".py") or not name.isidentifier():
        raise ValueError(f"a kernel is FILE.py:name, got {place!r}")
    if not Path(path).is_file():
        raise ValueError(f"{path} is no file: give the path of the kernel's Python file")
    module = f"louver_kernel_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(module, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} cannot be imported as Python")
    loaded = importlib.util.module_from_spec(spec)
    # Triton looks a function's module up to read its globals.
    sys.modules[module] = loaded
    spec.loader.exec_module(loaded)
    if not hasattr(loaded, name):
        raise ValueError(f"{path} has no {name!r}")
    return getattr(loaded, name)


def kernel_text(kernel: Any, given: KernelArguments, emit: str, target: str) -> str:
    """What `emit` names (one of `KERNEL_STAGES`, or "all"); of a kernel that is no product, why it is none comes first.

    Raises ValueError with the rule that is broken.
    """
    if emit == "ttir":
        return triton_to_ttir(kernel, given.signature, given.constexprs, sparse=given.sparse, target=target)
    compiled = compile_user_kernel(kernel, given, target)
    reason = "" if compiled.refusal is None else f"// register tiles: {' '.join(compiled.refusal.split())}\n"
    if emit != "all":
        return reason + family_text(compiled, emit)
    texts = {"ttir": kernel_text(kernel, given, "ttir", target)}
    missing = "encoded" if compiled.refusal is None else "sched"
    texts |= {stage: family_text(compiled, stage) for stage in KERNEL_STAGES if stage not in ("ttir", missing)}
    return reason + "\n".join(f"// ---- {stage} ----\n{text}" for stage, text in texts.items())


def compile_user_kernel(kernel: Any, given: KernelArguments, target: str) -> CompiledKernel:
    """The kernel as `louver.jit` compiles it, for arrays that are aligned."""
    tile_ir = triton_to_tile_ir(kernel, given.signature, given.constexprs, sparse=given.sparse, target=target)
    return compile_kernel(tile_ir, lambda nest: choose_for_nest(nest, machine(target), aligned_output=True), target)


def family_text(compiled: CompiledKernel, stage: str) -> str:
    """A stage of either family, "ttir" excepted. Raises ValueError for one that the kernel's does not have."""
    made = compiled.made
    if isinstance(made, CompiledProduct):
        if stage == "encoded":
            raise ValueError("a product has no encodings, which are of register tiles: print its sched")
        return stage_text(made, stage)
    if stage == "sched":
        raise ValueError(f"the kernel has no schedule, which is a product's: print encoded ({compiled.refusal})")
    return (
        disassemble(assemble(made.ptx, made.target.name).cubin)
        if stage == "sass"
        else made.text(cast("TileStage", stage))
    )


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise ValueError(f"an argument is NAME=VALUE, got {text!r}")
    return name, value


def _constant(text: str) -> int | float | bool | str:
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
