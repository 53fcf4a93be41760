"""Products on the device: operands as torch tensors of any layout, each in a buffer of NaN that must stay untouched."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

import louver
from louver.formats.dtypes import element_type
from louver.runtime.arrays import view
from support.products import Operands

Array = NDArray[Any]

NAN_BYTE = 0x7F
"""NaN as an 8-bit float; the greatest integer."""

Form = Literal["linear", "matmul k_major", "matmul n_major", "right k_major", "right n_major"]
"""Ways to ask for a product, with the layout of the dense operand; "right": the sparse operand is on the right."""
FORMS: tuple[Form, ...] = get_args(Form)


def torch_dtype(name: str) -> Any:
    """torch's element type of that name."""
    return getattr(sys.modules["torch"], element_type(name).numpy.name)


def to_torch(array: Array) -> Any:
    """A contiguous copy on the device."""
    torch: Any = sys.modules["torch"]
    element = element_type(array.dtype)
    bits = np.ascontiguousarray(array).view({1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}[element.bytes])
    return torch.from_numpy(bits.copy()).cuda().view(torch_dtype(element.name))


def to_numpy(tensor: Any) -> Array:
    """A host copy, after the current stream's work."""
    return view(tensor).to_numpy()


@dataclass(frozen=True)
class Guarded:
    """A view into a buffer of NaN. `whole`: the buffer, one-dimensional."""

    whole: Any
    view: Any

    def assert_untouched(self) -> None:
        """Nothing but the view has been written. The view is NaN afterwards."""
        self.view.fill_(math.nan)
        touched = (~self.whole.isnan()).nonzero().flatten()
        assert not touched.numel(), f"written outside, at elements {touched[:8].tolist()} of the buffer"


def guarded(
    shape: tuple[int, ...],
    dtype: str,
    *,
    offset: int = 0,
    gap: int = 0,
    order: tuple[int, ...] | None = None,
    step: int = 1,
) -> Guarded:
    """A view of NaN with NaN around it.

    offset: elements from a 256-byte boundary. gap: unused elements at the end of each row. order: the axes from the
    outermost to the innermost in memory, by default as they are. step: elements between neighbours of the innermost.
    """
    torch: Any = sys.modules["torch"]
    axes = tuple(range(len(shape))) if order is None else order
    strides = [0] * len(shape)
    stride = step
    for position, axis in enumerate(reversed(axes)):
        strides[axis] = stride
        stride = stride * shape[axis] + (gap if position == 0 else 0)
    margin = 1024
    size = 2 * margin + offset + stride
    if element_type(dtype).bytes == 1:
        whole = torch.full((size,), NAN_BYTE, dtype=torch.uint8, device="cuda").view(torch_dtype(dtype))
    else:
        whole = torch.full((size,), math.nan, dtype=torch_dtype(dtype), device="cuda")
    return Guarded(whole, whole.as_strided(shape, strides, margin + offset))


def filled(array: Array, **layout: Any) -> Any:
    """The array as a guarded view: a kernel that reads around it finds NaN."""
    made = guarded(array.shape, element_type(array.dtype).name, **layout).view
    made.copy_(to_torch(array))
    return made


def by_tokens(form: Form) -> bool:
    """Whether the dense operand is x [N, K], and the output [N, M]."""
    return not form.startswith("matmul")


def dense_operand(form: Form, b: Array, **layout: Any) -> Any:
    """`b` [K, N] as the form takes it, in its layout: x [N, K] of tokens, else [K, N]."""
    made = filled(b, order=(0, 1) if form.endswith("n_major") else (1, 0), **layout)
    return made.T if by_tokens(form) else made


def compute(form: Form, given: Operands, dense: Any, *, bias: bool = False, **options: Any) -> Any:
    """The product; its bias only with linear."""
    if form == "linear":
        return louver.linear(dense, given.s, to_torch(given.bias) if bias else None, **options)
    return louver.matmul(*((dense, given.s.T) if by_tokens(form) else (given.s, dense)), **options)


def result(form: Form, y: Any) -> Array:
    """A host copy of the result as [M, N]."""
    host = to_numpy(y)
    return host.T if by_tokens(form) else host


def output_shape(form: Form, given: Operands) -> tuple[int, int]:
    """Of the form's output."""
    m, n, _ = given.sizes
    return (n, m) if by_tokens(form) else (m, n)
