"""Triton kernels as tile IR. Triton's own frontend makes TTIR, without a GPU and without torch. Triton is an extra
(`pip install 'louver[triton]'`, versions 3.4 and newer), imported at the first kernel.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from xdsl.dialects.builtin import Float32Type, ModuleOp, StringAttr

from louver.frontend.ttir import read_ttir, sparse_axis, sparse_mark
from louver.frontend.tuples import CONSTEXPR, Elements, arrange
from louver.ir.tile import DotOp
from louver.ir.tile.types import tensor_of
from louver.isa.rule import RuleError
from louver.isa.targets import target as machine


def triton_to_tile_ir(
    kernel: Any,
    signature: Mapping[str, str],
    constexprs: Mapping[str, Any],
    *,
    sparse: Mapping[str, str] | None = None,
    target: str = "sm_90a",
) -> ModuleOp:
    """A `triton.jit` function as verified tile IR. Its operations carry their lines in the user's file.

    signature: Triton types by argument name, such as "*fp16", "i32", "fp32", "tensordesc<fp16[128,64]>"; no constexprs.
    constexprs: values of the other arguments. As in Triton, pass a stride of 1 as a constexpr. sparse: patterns of the
        sparse arguments, such as {"a": "2:4"}. They become attributes; `propagate_sparsity` makes types of them.
    A tuple is given by elements, `{"shape.0": "i32", "shape.1": "i32"}`, or by fields, `{"size.rows": "i32", …}`, in
    order. An element that is a constexpr has the type "constexpr"; an empty tuple has the type "()".
    Raises ImportError without Triton, ValueError for unknown arguments, UnsupportedKernelError for operations that tile
    IR lacks, and Triton's CompilationError.
    """
    elements = _elements(kernel, signature, constexprs, sparse or {})
    text = _ttir(kernel, elements, constexprs, sparse or {}, target)
    module = read_ttir(text, name=str(kernel.fn.__name__), names=elements.passed)
    _say_precision(module)
    return module


def _say_precision(module: ModuleOp) -> None:
    """Set "ieee" on dots of f32 without a precision: Triton's text omits it, and tile IR has another default."""
    for op in [op for op in module.walk() if isinstance(op, DotOp)]:
        if op.input_precision is None and isinstance(tensor_of(op.a).element_type, Float32Type):
            op.properties["inputPrecision"] = StringAttr("ieee")


def triton_to_ttir(
    kernel: Any,
    signature: Mapping[str, str],
    constexprs: Mapping[str, Any],
    *,
    sparse: Mapping[str, str] | None = None,
    target: str = "sm_90a",
) -> str:
    """The text that `triton_to_tile_ir` reads: TTIR after inlining, canonicalization and CSE, with source locations."""
    elements = _elements(kernel, signature, constexprs, sparse or {})
    return _ttir(kernel, elements, constexprs, sparse or {}, target)


def _argument_names(kernel: Any) -> list[str]:
    names = getattr(kernel, "arg_names", None)
    if names is None or not hasattr(kernel, "fn"):
        raise RuleError(f"a kernel is a function decorated with triton.jit, got {type(kernel).__name__}: {kernel!r}")
    return list(names)


def _elements(
    kernel: Any, signature: Mapping[str, str], constexprs: Mapping[str, Any], sparse: Mapping[str, str]
) -> Elements:
    """The kernel's arguments. Raises ValueError for arguments that the kernel does not have."""
    names = _argument_names(kernel)
    given = {*signature, *constexprs}
    for name in given:
        if name.partition(".")[0] not in names:
            raise RuleError(f"the kernel's arguments are {', '.join(names)}, got {name!r}")
        if (name in constexprs) != (signature.get(name, CONSTEXPR) == CONSTEXPR):
            what = "both" if name in constexprs else "neither"
            raise RuleError(f"each argument is in the signature or among the constexprs, got {name!r} in {what}")
    found = arrange(names, {**signature, **dict.fromkeys(constexprs, CONSTEXPR)})
    for name in names:
        if name not in found.types:
            raise RuleError(f"each argument is in the signature or among the constexprs, got {name!r} in neither")
    for name, pattern in sparse.items():
        kind = signature.get(name, "a constexpr")
        if not kind.startswith(("*", "tensordesc<")):
            raise RuleError(f"a sparse argument is a pointer or a descriptor, got {name!r}: {kind}")
        sparse_mark(pattern)
    return found


def _ttir(
    kernel: Any, elements: Elements, constexprs: Mapping[str, Any], sparse: Mapping[str, str], target: str
) -> str:
    compiler, backends, library = _import_triton()
    source: Any = compiler.ASTSource(
        kernel,
        elements.types,
        _constants(elements, constexprs),
        {elements.paths[name]: [[sparse_mark(pattern), sparse_axis(pattern)]] for name, pattern in sparse.items()},
    )
    gpu: Any = backends.GPUTarget("cuda", machine(target).number, 32)
    backend: Any = compiler.make_backend(gpu)
    options: Any = backend.parse_options({})
    context: Any = library.ir.context()
    library.ir.load_dialects(context)
    backend.load_dialects(context)
    arguments = (gpu, options, backend.get_codegen_implementation(options), backend.get_module_map(), context)
    # Triton 3.4 takes no target.
    count = len(inspect.signature(source.make_ir).parameters)
    module: Any = source.make_ir(*arguments[-count:])
    _simplify(library, module, context)
    return str(module)


def _constants(elements: Elements, constexprs: Mapping[str, Any]) -> dict[tuple[int, ...], Any]:
    """Values by path, inner ones first. Triton 3.5 and 3.6 lose a tuple's constants after a loop, if an enclosing tuple
    is set before them and after one of its own values.
    """
    names = sorted(constexprs, key=lambda name: -len(elements.paths[name]))
    return {elements.paths[name]: constexprs[name] for name in names}


def _simplify(library: Any, module: Any, context: Any) -> None:
    """Run only passes that keep the kernel as written. Triton's own pipeline would decompose block pointers."""
    manager: Any = library.ir.pass_manager(context)
    for name in ("add_inliner", "add_canonicalizer", "add_cse", "add_symbol_dce"):
        getattr(library.passes.common, name)(manager)
    # Triton 3.5 requires a name for its dumps.
    try:
        manager.run(module, "louver")
    except TypeError:
        manager.run(module)


def _import_triton() -> tuple[Any, Any, Any]:
    try:
        return (
            import_module("triton.compiler.compiler"),
            import_module("triton.backends.compiler"),
            import_module("triton._C.libtriton"),
        )
    except ImportError as error:
        raise ImportError("kernels written in Triton need it: pip install 'louver[triton]'") from error
