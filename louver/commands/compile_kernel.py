"""`louver compile FILE.py:kernel`: a user's Triton kernel at each stage, as text. Needs Triton, no GPU."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from louver.commands.compile import STAGES, stage_text
from louver.frontend.triton import triton_to_tile_ir, triton_to_ttir
from louver.isa.targets import target as machine
from louver.kernels.configure import choose_for_nest
from louver.passes.canonicalize import canonicalize
from louver.passes.nest import read_nest
from louver.passes.pipeline import CompiledProduct, compile_tile_ir

KERNEL_STAGES = ("ttir", *STAGES)
"""What can be printed of a user's kernel, in the order of the pipeline."""


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
    """What `emit` names (one of `KERNEL_STAGES`, or "all"). Raises ValueError with the rule that is broken."""
    stages = KERNEL_STAGES if emit == "all" else (emit,)
    texts = dict.fromkeys(stages, "")
    if "ttir" in texts:
        texts["ttir"] = triton_to_ttir(kernel, given.signature, given.constexprs, sparse=given.sparse, target=target)
    if set(stages) - {"ttir"}:
        compiled = compile_kernel(kernel, given, target)
        texts |= {stage: stage_text(compiled, stage) for stage in stages if stage != "ttir"}
    if emit != "all":
        return texts[emit]
    return "\n".join(f"// ---- {stage} ----\n{text}" for stage, text in texts.items())


def compile_kernel(kernel: Any, given: KernelArguments, target: str) -> CompiledProduct:
    """The kernel with its own tile, as many consumers as the tile has room for, and as many stages as fit."""
    tile_ir = triton_to_tile_ir(kernel, given.signature, given.constexprs, sparse=given.sparse, target=target)
    nest = read_nest(canonicalize(tile_ir))
    return compile_tile_ir(tile_ir, choose_for_nest(nest, machine(target), aligned_output=True), target)


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
