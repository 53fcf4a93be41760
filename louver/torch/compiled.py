"""Products in code that PyTorch's compiler generates: called without the dispatcher, into memory that the code allocates.

An operator of Python takes 6 µs of host time for its way through the dispatcher. Where no gradient is recorded, which
generated code never does, that way decides nothing. So the products are lowered to calls of `launch`, as those of
cuBLAS are to `torch.mm(…, out=…)`.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any, Final

import torch

_COMPILER: Final = "torch._inductor.lowering"
_LOADED: Final = "torch._inductor.compile_fx"

Product = Callable[..., Any]


def provide(op: Any, product: Product, out_dtype: Callable[..., torch.dtype], *, gated: bool) -> None:
    """Give an operator the call of generated code. The generated code names it, also in files that the compiler keeps
    from one process to the next, so a changed signature needs another name.

    product, out_dtype: of `louver.torch.operators`.
    """
    op.launch = functools.partial(product, gated=gated)
    op.louver_lowering = functools.partial(_lowered, op, out_dtype, gated)


def lower(*ops: Any) -> None:
    """Tell the compiler, if it is loaded, how to call these operators. PyTorch's operators are traced with fake tensors once
    more after its compiler is loaded and before it generates code.
    """
    if _LOADED in sys.modules:
        lowering: Any = importlib.import_module(_COMPILER)
        for op in ops:
            if op not in lowering.lowerings:
                lowering.register_lowering(op, type_promotion_kind=None)(op.louver_lowering)


def _lowered(
    op: Any,
    out_dtype: Callable[..., torch.dtype],
    gated: bool,
    x: Any,
    values: Any,
    indices: Any,
    bias: Any = None,
    scale: Any = None,
    dense_scale: Any = None,
    pattern: str = "2:4",
    activation: str | None = None,
    wanted: torch.dtype | None = None,
) -> Any:
    ir: Any = importlib.import_module("torch._inductor.ir")
    graph: Any = importlib.import_module("torch._inductor.virtualized").V.graph
    options = (bias, scale, dense_scale)
    if graph.cpp_wrapper or any(each is not None for each in (scale, dense_scale, wanted)):
        handler: Any = importlib.import_module(_COMPILER).fallback_handler(op, add_to_fallback_set=False)
        return handler(x, values, indices, *options, pattern, activation, wanted)
    given = [ir.ExternKernel.realize_input(each) for each in (x, values, indices, bias) if each is not None]
    rows = values.get_size()[0]
    size = [*x.get_size()[:-1], rows // 2 if gated else rows]
    dtype = out_dtype(x.get_dtype(), epilogue=activation is not None)
    layout = ir.FixedLayout(x.get_device(), dtype, size, ir.FlexibleLayout.contiguous_strides(size))
    call = ir.ExternKernelOut(
        layout=layout,
        inputs=given,
        kwargs={"pattern": pattern, "activation": activation},
        python_kernel_name=f"{op}.launch" if str(op).startswith("torch.ops") else f"torch.ops.{op}.launch",
        op_overload=op,
    )
    return ir.TensorBox.create(call)
