"""Operands of a problem: random data, the same for every contender."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from louver.formats.dtypes import element_type
from louver.formats.pattern import Pattern
from louver.formats.tensor import SparseTensor
from louver.library.forms import Operand, pitched
from louver.library.rows import Rows
from louver.measure.problems import GemmProblem
from louver.runtime.memory import DeviceBuffer

INT8_SCALE, INT8_MOST = 30.0, 127
"""Normal numbers times the scale, cut to the range and to whole numbers, are the integers that are multiplied."""

PATTERN = Pattern(2, 4)

NEVER = -(2**31)
"""An s32 that no sum of products of 8-bit integers reaches before K = 133,144."""


@dataclass(frozen=True, slots=True)
class Operands:
    """x: [N, K] and y: [N, M] torch tensors on the GPU. padded: x with tokens of zeros, as many as cuSPARSELt needs.

    dense: pruned weights, torch tensors [M, K] on the GPU. sparse: the same weights, compressed. One a set.
    """

    problem: GemmProblem
    x: Any
    padded: Any
    y: Any
    dense: tuple[Any, ...]
    sparse: tuple[SparseTensor, ...]

    @property
    def sets(self) -> int:
        """Weights to rotate over."""
        return len(self.dense)

    def poison(self) -> None:
        """Fill y with what no product of the operands gives, so that a result that is not written shows."""
        floating = element_type(self.problem.out).floating
        self.y.fill_(math.nan if floating else NEVER)


def make_operands(torch: Any, problem: GemmProblem, sets: int) -> Operands:
    """Draw activations and `sets` weights; prune the weights to 2:4 by magnitude, and compress them."""
    generator = torch.Generator(device="cuda").manual_seed(0)

    def draw(rows: int) -> Any:
        return converted(torch, torch.randn(rows, problem.k, generator=generator, device="cuda"), problem.dtype)

    x = draw(problem.n)
    padded = x
    if problem.padded_n > problem.n:
        # Copied as raw bytes: PyTorch joins no 8-bit floats.
        zeros = torch.zeros(
            problem.padded_n - problem.n, x.shape[1] * x.element_size(), dtype=torch.uint8, device="cuda"
        )
        padded = torch.cat((x.view(torch.uint8), zeros)).view(x.dtype)
    y = torch.empty(problem.n, problem.m, dtype=torch_dtype(torch, problem.out), device="cuda")
    weights = [prune24(torch, draw(problem.m)) for _ in range(sets)]
    sparse = tuple(weight.compressed(torch, problem.dtype) for weight in weights)
    return Operands(problem, x, padded, y, tuple(weight.dense for weight in weights), sparse)


def placed(values: NDArray[Any], positions: NDArray[Any], ordinal: int) -> Operand:
    """A left operand that is no tensor's, on a device: values [rows, kept], and metadata or lists."""
    whole = pitched(values)
    held = [DeviceBuffer(each.nbytes, ordinal=ordinal) for each in (whole, positions)]
    for buffer, each in zip(held, (whole, positions), strict=True):
        buffer.write(each)
    (rows, kept), pitch = values.shape, whole.shape[1] * whole.itemsize
    return Operand(Rows(held[0].address, kept, rows, pitch, whole.itemsize, held), held[1].address)


def torch_dtype(torch: Any, name: str) -> Any:
    """PyTorch's dtype of an element type."""
    return getattr(torch, element_type(name).numpy.name)


def converted(torch: Any, normal: Any, dtype: str) -> Any:
    """Normal f32 numbers as data of an element type; integers are scaled first."""
    if not element_type(dtype).floating:
        normal = (normal * INT8_SCALE).clamp(-INT8_MOST, INT8_MOST)
    return normal.to(torch_dtype(torch, dtype))


@dataclass(frozen=True, slots=True)
class Pruned:
    """A pruned weight as torch tensors on one device, K a multiple of 8.

    dense: [M, K] with zeros. values: [M, K / 2], those kept. indices: uint8 [M, K / 8], see `louver.formats.codes`.
    """

    dense: Any
    values: Any
    indices: Any

    def compressed(self, torch: Any, dtype: str) -> SparseTensor:
        """The same weight on the host, as Louver takes it."""
        element = element_type(dtype)
        # NumPy has neither bfloat16 nor 8-bit floats of its own: the bytes go over as integers.
        values = self.values.cpu().view(torch.uint8).numpy().view(element.numpy)
        return SparseTensor(PATTERN, element, tuple(self.dense.shape), 1, values, self.indices.cpu().numpy())


def prune24(torch: Any, weight: Any) -> Pruned:
    """Keep the two greatest magnitudes of every four neighbours along a row [M, K], of equal ones the first.

    As `louver.prune` and `louver.compress` do, but on the weight's device: on the host a benchmark's hundreds of millions
    of elements take minutes.
    """
    rows, size = weight.shape
    bits = weight.view(torch.int16 if weight.element_size() == 2 else torch.uint8).reshape(-1, 4)
    # PyTorch compares no 8-bit floats. f32 holds every type here exactly.
    kept = _two_greatest(weight.float().reshape(-1, 4).abs().unbind(1))
    first = torch.where(kept[0], 0, torch.where(kept[1], 1, 2))
    second = torch.where(kept[3], 3, torch.where(kept[2], 2, 1))
    values = bits.gather(1, torch.stack([first, second], 1))
    codes = (first | second << 2).to(torch.uint8).reshape(rows, size // 4)
    dense = bits * torch.stack(kept, 1)
    return Pruned(
        dense.view(weight.dtype).reshape(rows, size),
        values.view(weight.dtype).reshape(rows, size // 2),
        codes[:, 0::2] | codes[:, 1::2] << 4,
    )


def _two_greatest(planes: Any) -> list[Any]:
    """The numbers, of four, that have fewer than two greater or earlier equal ones: four masks."""

    def before(i: int, j: int) -> Any:
        return planes[j] >= planes[i] if j < i else planes[j] > planes[i]

    return [sum(before(i, j).int() for j in range(4) if j != i) < 2 for i in range(4)]
