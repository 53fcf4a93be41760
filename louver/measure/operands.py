"""Operands of a problem: random data, equal for every contender. Samples of results beside float64."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import louver
from louver.formats.dtypes import ElementType, element_type
from louver.formats.pattern import lifted_pattern
from louver.formats.tensor import SparseTensor
from louver.library.forms import Operand, pitched
from louver.library.numerics import Agreement, accumulation, compare
from louver.library.rows import Rows
from louver.measure.problems import GemmProblem
from louver.runtime.memory import DeviceBuffer

SAMPLE = 32
"""Number of random tokens whose results are compared, with all their outputs."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The float64 product of tokens, given by a torch tensor of indices. values, magnitude: product and Σ|x||w|,
    [tokens, M].
    """

    tokens: Any
    values: NDArray[np.float64]
    magnitude: NDArray[np.float64]
    k: int

    def agrees(self, y: Any, out: str, accumulate: str) -> Agreement:
        """Compare with rows of y [N, M], see `beside_float64`."""
        # PyTorch cannot index 8-bit floats.
        y = y if y.element_size() > 1 else y.float()
        got, wanted = y[self.tokens].double().cpu().numpy(), self.values
        if out == "f16":
            got, wanted = in_f16_range(got), in_f16_range(wanted)
        return compare(got, wanted, self.magnitude, self.k, out, accumulate)


def sampled(torch: Any, count: int) -> Any:
    """Indices of `SAMPLE` random tokens below `count`."""
    generator = torch.Generator(device="cuda").manual_seed(0)
    return torch.randint(count, (SAMPLE,), generator=generator, device="cuda")


def beside_float64(x: Any, weight: Any, y: Any, tokens: Any, out: str, accumulate: str, bias: Any = None) -> Agreement:
    """Compare rows `tokens` of y [N, M], written as type `out`, with x [N, K] · weightᵀ, by the library's error bound.

    All arrays are torch tensors. weight: [M, K]. bias: [M]. accumulate: as in `numerics.compare`. Beyond the range of
    f16, both infinity and the greatest number are right, because libraries differ.
    """
    return reference_of(x, weight, tokens, bias).agrees(y, out, accumulate)


def reference_of(x: Any, weight: Any, tokens: Any, bias: Any = None) -> Reference:
    """The float64 product of rows `tokens` of x [N, K] and a weight [M, K], plus a bias [M]."""
    x = x if x.element_size() > 1 else x.float()
    x, weight = x[tokens].double(), weight.double()
    reference, magnitude = x @ weight.t(), x.abs() @ weight.abs().t()
    if bias is not None:
        reference, magnitude = reference + bias.double(), magnitude + bias.double().abs()
    return Reference(tokens, reference.cpu().numpy(), magnitude.cpu().numpy(), x.shape[1])


def in_f16_range(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values clipped to the range of f16. NaN stays NaN."""
    greatest = float(np.finfo(np.float16).max)
    return np.clip(values, -greatest, greatest)


INT8_SCALE, INT8_MOST = 30.0, 127
"""Integer operands are normal numbers times the scale, clamped to this range and truncated to integers."""

NEVER = -(2**31)
"""An s32 value that sums of products of 8-bit integers cannot reach below K = 133,144."""


@dataclass(frozen=True, slots=True)
class Operands:
    """Operands on the GPU. x: [N, K], y: [N, M], torch tensors. padded: x with the zero tokens that cuSPARSELt needs.

    dense: pruned weights, torch tensors [M, K]. sparse: the same, compressed. Both have one weight for each set.
    references: float64 products so far, by weight. Operands changed by `replace` start without references.
    """

    problem: GemmProblem
    x: Any
    padded: Any
    y: Any
    dense: tuple[Any, ...]
    sparse: tuple[SparseTensor, ...]
    references: dict[int, Reference] = field(
        default_factory=dict[int, Reference], init=False, repr=False, compare=False
    )

    @property
    def sets(self) -> int:
        return len(self.dense)

    def poison(self) -> None:
        """Fill y with a value that is no result, so that unwritten results are found."""
        self.y.fill_(poison(element_type(self.problem.out)))


def poison(element: ElementType) -> float:
    """A value that no product gives, or that is rare for 8-bit integers."""
    if element.floating:
        return math.nan
    return NEVER if element.name == "s32" else -128


def make_operands(torch: Any, problem: GemmProblem, sets: int) -> Operands:
    """Draw activations and `sets` weights on the GPU. Prune the weights by magnitude and compress them."""
    generator = torch.Generator(device="cuda").manual_seed(0)

    def draw(rows: int) -> Any:
        return converted(torch, torch.randn(rows, problem.k, generator=generator, device="cuda"), problem.dtype)

    x = draw(problem.n)
    padded = x
    if problem.padded_n > problem.n:
        # Copied as raw bytes: PyTorch cannot concatenate 8-bit floats.
        zeros = torch.zeros(
            problem.padded_n - problem.n, x.shape[1] * x.element_size(), dtype=torch.uint8, device="cuda"
        )
        padded = torch.cat((x.view(torch.uint8), zeros)).view(x.dtype)
    y = torch.empty(problem.n, problem.m, dtype=torch_dtype(torch, problem.out), device="cuda")
    dense, sparse = zip(*(pruned(draw(problem.m), problem.dtype) for _ in range(sets)), strict=True)
    return Operands(problem, x, padded, y, dense, sparse)


def pruned(weight: Any, dtype: str) -> tuple[Any, SparseTensor]:
    """A torch weight [M, K] pruned to the pattern that tensor cores lift, dense and compressed, on its device."""
    pattern = lifted_pattern(dtype)
    dense = louver.prune(weight, pattern)
    return dense, louver.compress(dense, pattern)


def placed(values: NDArray[Any], positions: NDArray[Any], ordinal: int) -> Operand:
    """Copy a left operand that belongs to no tensor to a device: values [rows, kept], and picks or lists."""
    whole = pitched(values)
    held = [DeviceBuffer(each.nbytes, ordinal=ordinal) for each in (whole, positions)]
    for buffer, each in zip(held, (whole, positions), strict=True):
        buffer.write(each)
    (rows, kept), pitch = values.shape, whole.shape[1] * whole.itemsize
    address = held[1].address
    return Operand(Rows(held[0].address, kept, rows, pitch, whole.itemsize, held), kept, address, address)


def torch_dtype(torch: Any, name: str) -> Any:
    """PyTorch's dtype of an element type."""
    return getattr(torch, element_type(name).numpy.name)


def as_torch(torch: Any, array: NDArray[Any]) -> Any:
    """A NumPy array as a torch tensor on the host: a view of its bytes, since PyTorch lacks NumPy's bf16 and 8-bit floats."""
    return torch.from_numpy(array.view(f"i{array.itemsize}")).view(getattr(torch, array.dtype.name))


def converted(torch: Any, normal: Any, dtype: str) -> Any:
    """Convert normal f32 numbers to an element type. Integers are scaled first."""
    if not element_type(dtype).floating:
        normal = (normal * INT8_SCALE).clamp(-INT8_MOST, INT8_MOST)
    return normal.to(torch_dtype(torch, dtype))


def verify(torch: Any, operands: Operands, index: int, y: Any) -> Agreement:
    """Compare a sample of `y` [N, M] with the float64 product of weight `index`. The operands keep that product."""
    problem, known = operands.problem, operands.references
    if index not in known:
        known[index] = reference_of(operands.x, operands.dense[index], sampled(torch, problem.n))
    return known[index].agrees(y, problem.out, accumulation(problem.dtype, problem.accumulate))
