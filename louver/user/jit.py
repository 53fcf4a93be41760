"""`louver.jit`: a Triton kernel, launched with sparse arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from louver.formats.dynamo import opaque
from louver.user.decorators import unwrap
from louver.user.finding import FindingKernel
from louver.user.hints import Hints
from louver.user.jit_kernel import JitKernel
from louver.user.source import TritonSource


@overload
def jit(kernel: Any, *, find: Sequence[str], frozen: Sequence[str] = (), **hints: Any) -> FindingKernel: ...
@overload
def jit(kernel: Any, **hints: Any) -> JitKernel: ...
@opaque
def jit(kernel: Any, *, find: Sequence[str] = (), frozen: Sequence[str] = (), **hints: Any) -> JitKernel:
    """A Triton kernel that takes sparse tensors: `louver.jit(kernel)[grid](…)` with the kernel's own arguments.

    kernel: a function decorated with `triton.jit`, also under `triton.autotune` and `triton.heuristics`.
    hints: fields of a schedule for products (`stages`, `consumers`, `cluster`, `raster`, `store`, …), `num_warps` for
        other kernels. They hold for every config. A call may give hints too.
    find: dense arguments that may hold 2:4 (f32: 1:2) along the axis that the kernel sums; those that do are multiplied
        by sparse tensor cores. The contents are looked at in each call. On a GPU that is a kernel in the order of the
        stream, and only for sizes for which it was measured to be faster. Kernels with decorators take only frozen ones.
    frozen: those of `find` that nobody writes until `kernel.forget(array)`. They are looked at once.
    A `SparseTensor` stands for its dense array, with the sizes and strides of the contiguous dense array. Triton runs a
    call with only PyTorch's tensors; it takes `num_warps` and `num_stages`, or those of its decorators. For
    `triton.autotune`, configs that the compiler rejects are skipped. The others are timed on a GPU when a call's `key`
    is new, and the fastest is kept; without a GPU the first one is taken. A config's `num_warps` applies to register
    tiles; its `num_stages`, `num_ctas` and `maxnreg` to Triton. Raises ValueError for other objects, hints and names.
    """
    function, layers = unwrap(kernel)
    source = TritonSource(function)
    if layers is None:
        made = JitKernel(source, Hints.of(hints))
    else:
        from louver.user.autotuned import AutotunedKernel

        made = AutotunedKernel(source, Hints.of(hints), layers)
    if not find and not frozen:
        return made
    found = FindingKernel(made, find, frozen)
    if layers is not None and (unfrozen := [name for name in find if name not in frozen]):
        raise ValueError(
            f"{source.name} has decorators, and its configs are timed with one kernel, so it finds frozen arguments only, got "
            f"{unfrozen[0]!r}: name it in frozen too, or leave the decorators out"
        )
    return found
