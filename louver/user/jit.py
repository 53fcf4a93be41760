"""`louver.jit`: a Triton kernel, launched with sparse arguments."""

from __future__ import annotations

from typing import Any

from louver.formats.dynamo import opaque
from louver.user.decorators import unwrap
from louver.user.hints import Hints
from louver.user.kernel import JitKernel
from louver.user.source import TritonSource


@opaque
def jit(kernel: Any, **hints: Any) -> JitKernel:
    """A Triton kernel that takes sparse tensors: `louver.jit(kernel)[grid](…)` with the kernel's own arguments.

    kernel: a function decorated with `triton.jit`, also under `triton.autotune` and `triton.heuristics`.
    hints: fields of a schedule for products (`stages`, `consumers`, `cluster`, `raster`, `store`, …), `num_warps` for
        other kernels. They hold for every config. A call may give hints too.
    A `SparseTensor` stands for its dense array, with the sizes and strides of the contiguous dense array. Triton runs a
    call with only PyTorch's tensors; it takes `num_warps` and `num_stages`, or those of its decorators. For
    `triton.autotune`, configs that the compiler rejects are skipped. The others are timed on a GPU when a call's `key`
    is new, and the fastest is kept; without a GPU the first one is taken. A config's `num_warps` applies to register
    tiles; its `num_stages`, `num_ctas` and `maxnreg` to Triton. Raises ValueError for other objects and hints.
    """
    function, layers = unwrap(kernel)
    source = TritonSource(function)
    if layers is None:
        return JitKernel(source, Hints.of(hints))
    from louver.user.autotuned import AutotunedKernel

    return AutotunedKernel(source, Hints.of(hints), layers)
