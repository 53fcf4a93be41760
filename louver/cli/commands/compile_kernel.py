"""`louver compile` of a user's Triton kernel or a file of IR, at each level, as text. Needs no GPU."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from louver.cli.commands.kernel_levels import Source, user_source
from louver.formats.extras import explained
from louver.frontend.triton import triton_to_tile_ir, triton_to_ttir
from louver.frontend.ttir import read_ttir
from louver.ir.refusal import UnsupportedKernelError
from louver.ir.tile.multiples import MULTIPLE
from louver.user.arguments import POINTEES
from louver.user.decorators import Layers, unwrap
from louver.user.reached import reached
from louver.user.source import TritonSource

_MARK = f":{MULTIPLE}"
"""Suffix of the type of a multiple of 16, as in Triton's command that compiles kernels."""

_OTHERS = ("i1", "i16", "i64", "u16", "u32", "u64", "fp64", "fp8e4b15", "fp8e4b8", "fp8e5b16", "constexpr")
_ELEMENTS = tuple(dict.fromkeys((*POINTEES.values(), *_OTHERS)))


@dataclass(frozen=True, slots=True)
class KernelArguments:
    """The arguments for which a kernel is compiled. signature, constexprs: Triton's types and constants by argument.

    sparse: patterns by argument. multiples: integers that are multiples of 16. options: all of these as they were typed.
    """

    signature: Mapping[str, str]
    constexprs: Mapping[str, Any]
    sparse: Mapping[str, str]
    multiples: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    @classmethod
    def parse(cls, arguments: Iterable[str], constants: Iterable[str], sparse: Iterable[str]) -> KernelArguments:
        """Parse texts such as "a=*fp16", "K=i32:16", "BLOCK_M=128" and "a=2:4". Raises ValueError with the rule."""
        given = {"--arg": [*arguments], "--const": [*constants], "--sparse": [*sparse]}
        options = tuple(part for option, texts in given.items() for text in texts for part in (option, text))
        arguments, constants, sparse = given.values()
        signature, patterns = (dict(_pair(text) for text in texts) for texts in (arguments, sparse))
        multiples = tuple(name for name, type_ in signature.items() if type_.endswith(_MARK))
        signature = {name: _type(name, type_.removesuffix(_MARK)) for name, type_ in signature.items()}
        return cls(
            signature, {name: _constant(value) for name, value in map(_pair, constants)}, patterns, multiples, options
        )

    @property
    def arrays(self) -> tuple[str, ...]:
        """The dense arrays among the arguments."""
        arrays = [name for name, type_ in self.signature.items() if type_.startswith(("*", "tensordesc"))]
        return tuple(name for name in arrays if name not in self.sparse)


def load_kernel(place: str) -> Any:
    """The function that "FILE.py:name" names. Raises ValueError with the rule, or with the error of the file."""
    path, colon, name = place.rpartition(":")
    if not colon or not path.endswith(".py") or not name.isidentifier():
        raise ValueError(f"a kernel is FILE.py:name, FILE.ttir or FILE.mlir, got {place!r}")
    if not Path(path).is_file():
        raise ValueError(f"{path} is no file: give the path of the kernel's Python file")
    module = f"louver_kernel_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(module, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} cannot be imported as Python")
    loaded = importlib.util.module_from_spec(spec)
    # Triton finds the globals of a function through its module.
    sys.modules[module] = loaded
    # A kernel's file can import its neighbours, as under `python FILE.py`.
    folder = str(Path(path).resolve().parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(loaded)
    except Exception as error:
        text = explained(error) if isinstance(error, ImportError) else error
        raise ValueError(f"{path} cannot be imported: {type(error).__name__}: {text}") from error
    finally:
        sys.path.remove(folder)
    if not hasattr(loaded, name):
        raise ValueError(f"{path} has no {name!r}")
    return getattr(loaded, name)


def kernel_source(
    kernel: Any, given: KernelArguments, target: str, config: int | None = None, place: str = "FILE.py:NAME"
) -> Source:
    """A `triton.jit` function, perhaps under `triton.autotune` and `triton.heuristics`. Its arrays are aligned to 16
    bytes and disjoint.

    config: number of the config for constants that are not given; None: the first. place: where the kernel is, as it was
    typed. Raises ValueError for an unknown config, for all arguments that are missing, and for missing constants that heuristics compute. Levels raise errors of `triton_to_tile_ir`.
    """
    kernel, layers = unwrap(kernel)
    if config is not None and (layers is None or layers.tuner is None):
        raise ValueError(f"--config is for kernels under triton.autotune, got --config {config}")
    if layers is not None:
        given = replace(given, constexprs=_completed(layers, given.constexprs, config or 0))
    given = _with_defaults(kernel, given, place)

    def tile() -> ModuleOp:
        return triton_to_tile_ir(kernel, given.signature, given.constexprs, sparse=given.sparse, target=target)

    def ttir() -> str:
        return triton_to_ttir(kernel, given.signature, given.constexprs, sparse=given.sparse, target=target)

    multiples = (*given.arrays, *given.multiples)
    name = str(getattr(kernel, "__name__", kernel))
    constants = tuple(given.constexprs.values())
    files = (*reached(kernel).files, *reached(constants).files)
    return user_source(name, tile, target, ttir, multiples=multiples, apart=given.arrays, files=files)


def _with_defaults(kernel: Any, given: KernelArguments, place: str) -> KernelArguments:
    """The arguments with the kernel's own defaults. Raises ValueError for all that are missing, with the command to type."""
    named = {name.partition(".")[0] for name in (*given.signature, *given.constexprs)}
    missing = [each for each in TritonSource(kernel).parameters if each.name not in named]
    wanted = [each for each in missing if not each.has_default]
    if wanted:
        more = [
            part
            for each in wanted
            for part in (
                ("--const", f"{each.name}=VALUE") if each.constexpr else ("--arg", f"{each.name}={each.type or 'TYPE'}")
            )
        ]
        raise ValueError(
            f"each argument has a type or a value, got none for {', '.join(each.name for each in wanted)}: "
            f"{shlex.join(['louver', 'compile', place, *given.options, *more])}, where TYPE is *fp16 for an array of f16, "
            "i32 for an integer, fp32 for a float"
        )
    defaults = {each.name: each.default for each in missing}
    return replace(given, constexprs={**given.constexprs, **defaults})


def _completed(layers: Layers, constants: Mapping[str, Any], config: int) -> dict[str, Any]:
    of_config: dict[str, Any] = {}
    if layers.tuner is not None:
        if not 0 <= config < layers.count:
            raise ValueError(f"the kernel has the configs 0 to {layers.count - 1}, got --config {config}")
        of_config = layers.tuner.configs[config].kwargs
    found = {**of_config, **constants}
    computed = dict.fromkeys(name for values in (*layers.above, *layers.below) for name in values if name not in found)
    if computed:
        raise ValueError(
            f"triton.heuristics compute {', '.join(computed)} from a call's arguments, got none: give "
            f"{' '.join(f'--const {name}=VALUE' for name in computed)}"
        )
    return found


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise ValueError(f"an argument is NAME=VALUE, got {text!r}")
    return name, value


def _type(name: str, type_: str) -> str:
    """Triton's name of a type, also for Louver's element names. Triton checks types of other forms."""
    element = type_.removeprefix("*")
    if element in POINTEES:
        return type_.removesuffix(element) + POINTEES[element]
    if element.isalnum() and element not in _ELEMENTS:
        raise ValueError(
            f"an argument's type is that of a number or, with a star, of an array's elements, got {name}={type_}: use one of "
            f"{', '.join(_ELEMENTS)}"
        )
    return type_


def _constant(text: str) -> int | float | bool | str:
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def ir_source(file: str, sparse: Mapping[str, str], target: str, files: Sequence[str] = ()) -> Source:
    """The kernel in a file. sparse: patterns by argument, in addition to those of the text. files: see `Source`.

    Raises ValueError for a file without a kernel, and UnsupportedKernelError for operations that tile IR does not have.
    """
    path = Path(file)
    text = _read(path)
    # Read once here, so that a file without IR is refused for every level.
    module = _parse(path, text, sparse)
    ttir = (lambda: text) if path.suffix == ".ttir" else None
    return user_source(path.name, lambda: module, target, ttir, files=tuple(files))


def _read(path: Path) -> str:
    if not path.is_file():
        raise ValueError(f"{path} is no file: give the path of a file of TTIR or tile IR")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"TTIR and tile IR are text in UTF-8, got {path}, which is not") from None


def _parse(path: Path, text: str, sparse: Mapping[str, str]) -> ModuleOp:
    if not text.strip():
        raise ValueError(f"{path} is empty: it should hold a kernel as TTIR or tile IR")
    try:
        return read_ttir(text, name=str(path), sparse=sparse)
    except UnsupportedKernelError:
        raise
    except ValueError as error:
        raise ValueError(f"{path} holds no kernel as TTIR or tile IR: {error}") from error
