"""`louver.jit`: an ordinary Triton kernel, launched with sparse arguments."""

from __future__ import annotations

from typing import Any

from louver.user.decorators import unwrap
from louver.user.hints import Hints
from louver.user.kernel import JitKernel
from louver.user.source import TritonSource


def jit(kernel: Any, **hints: Any) -> JitKernel:
    """A Triton kernel that takes sparse tensors: `louver.jit(kernel)[grid](…)` with the kernel's own arguments.

    kernel: a function decorated with `triton.jit`, as it is for dense arrays, `triton.autotune` and `triton.heuristics` above it too.
    hints: fields of a schedule by name (`stages`, `consumers`, `cluster`, `raster`, `store`, …) for products, `num_warps` for other
    kernels; a call may give them too. They hold for every config.
    A `SparseTensor` stands for its dense array: sizes and strides are those of the dense one, contiguous. A call of PyTorch's tensors
    alone is Triton's own, which takes `num_warps` and `num_stages`, or its decorators'.
    Of the configs of `triton.autotune` those that the compiler refuses drop out, the others are timed on a GPU when a call's `key` is
    new, and the fastest is kept; without a GPU the first one is taken. A config's `num_warps` is for register tiles, its `num_stages`,
    `num_ctas` and `maxnreg` are Triton's own.
    Raises ValueError for what is no kernel, and for unknown hints.
    """
    function, layers = unwrap(kernel)
    source = TritonSource(function)
    if layers is None:
        return JitKernel(source, Hints.of(hints))
    from louver.user.autotuned import AutotunedKernel

    return AutotunedKernel(source, Hints.of(hints), layers)
