"""Contenders: calls that compute the same product on the same operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import louver
from louver.measure.operands import Operands
from louver.measure.protocol import Protocol

if TYPE_CHECKING:
    from louver.library.request import Accumulate

REFUSALS = (RuntimeError, ValueError, TypeError)
"""Errors of PyTorch when a library refuses a product, or when an older PyTorch does not know an option."""

SPLITS = ((-1, -1),)
"""Segment-K: cuSPARSELt's `split_k` and `split_k_mode` in PyTorch. On compute capability 9, cuSPARSELt 0.8 refuses
`split_k` 2 and 4 with modes 1 and 2 (invalid value).
"""

TURNED = " transposed"
"""Suffix of a contender whose library transposes its own output order."""

DENSE_CALLS: Mapping[tuple[str, str], str] = {
    ("f16", "f16"): "torch.mm",
    ("bf16", "bf16"): "torch.mm",
    ("e4m3", "f16"): "torch._scaled_mm",
    ("e4m3", "bf16"): "torch._scaled_mm",
    ("s8", "s32"): "torch._int_mm",
    ("f32", "f32"): "torch.mm",
}
"""PyTorch's dense product by cuBLAS, by element types of operands and result. f32 needs `tf32_products`."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to compute the product.

    call: launches it with operand set `index % sets` and returns the result. details: facts for the record.
    order: "tokens" for a result [N, M], "rows" for [M, N]. The result may have padding tokens at the end.
    """

    name: str
    call: Callable[[int], Any]
    order: str
    details: dict[str, Any]

    @property
    def own_order(self) -> str:
        """The name of this cuSPARSELt contender without the transposed output."""
        return self.name.removesuffix(TURNED)

    def result(self, index: int) -> Any:
        """The result as [N, M]."""
        y = self.call(index)
        return y if self.order == "tokens" else y.t()


def ours(operands: Operands) -> Contender:
    """`louver.linear` with a given output, accumulating as the problem says."""
    x, sparse, y = operands.x, operands.sparse, operands.y
    accumulate = cast("Accumulate", operands.problem.accumulate)

    def call(index: int) -> Any:
        return louver.linear(x, sparse[index % operands.sets], out=y, accumulate=accumulate)

    return Contender("ours", call, "tokens", {"call": "louver.linear"})


def dependent(operands: Operands) -> Contender:
    """The same with one plan for each weight. A launch may begin before the previous one ends."""
    x, y, problem = operands.x, operands.y, operands.problem
    accumulate = cast("Accumulate", problem.accumulate)
    plans = [
        louver.plan("linear", s, problem.n, like=x, out_dtype=problem.out, accumulate=accumulate, dependent=True)
        for s in operands.sparse
    ]

    def call(index: int) -> Any:
        return plans[index % len(plans)](x, out=y)

    return Contender("dependent", call, "tokens", {"call": "louver.plan(…, dependent=True)"})


def copied(torch: Any, operands: Operands) -> Contender:
    """A copy that moves as many bytes as the product must move: it reads one half and writes the other."""
    copies = copies_of(torch, operands.problem.moved_bytes, operands.sets)
    return Contender("copy", copies.call, "tokens", {"bytes": copies.moved_bytes})


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies from `sets` sources to `sets` targets in turns. call: launches one. moved_bytes: read plus written."""

    call: Callable[[int], object]
    moved_bytes: int
    sets: int


def copies_of(torch: Any, moved_bytes: int, sets: int) -> Copies:
    """Copies that move this number of bytes, in halves of whole 512 bytes: copies of unaligned rows are slow."""
    half = -(-moved_bytes // 1024) * 512
    source = torch.zeros(sets, half, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return Copies(lambda index: target[index % sets].copy_(source[index % sets]), 2 * half, sets)


def cublas(torch: Any, operands: Operands) -> Contender:
    """Dense `x @ w.T` with the pruned weights, zeros included, to a given output, by the call in `DENSE_CALLS`.

    e4m3 has scales of 1, and cuBLAS's fast accumulation unless Louver's sums are promoted. Raises ValueError if PyTorch
    has no call for these types.
    """
    problem = operands.problem
    name = DENSE_CALLS.get((problem.dtype, problem.out))
    if name is None:
        raise ValueError(f"PyTorch has no dense product of {problem.dtype} that writes {problem.out}")
    multiply = dense_product(torch, name, operands.y, fast=problem.accumulate != "promoted")
    x, transposed = operands.x, [weight.t() for weight in operands.dense]
    return Contender("cublas", lambda index: multiply(x, transposed[index % operands.sets]), "tokens", {"call": name})


def dense_product(torch: Any, name: str, y: Any, *, fast: bool = True) -> Callable[[Any, Any], Any]:
    """A function that multiplies two matrices to y, by a call of `DENSE_CALLS`. fast: how cuBLAS accumulates e4m3."""
    match name:
        case "torch._scaled_mm":
            one = torch.ones((), device="cuda")
            scales = {"scale_a": one, "scale_b": one}
            return lambda a, b: torch._scaled_mm(a, b, **scales, out_dtype=y.dtype, use_fast_accum=fast, out=y)
        case "torch._int_mm":
            return lambda a, b: torch._int_mm(a, b, out=y)
        case _:
            return lambda a, b: torch.mm(a, b, out=y)


class CuSparseLt:
    """cuSPARSELt through PyTorch. Raises RuntimeError if PyTorch was built without it."""

    def __init__(self, torch: Any, operands: Operands) -> None:
        self._torch = torch
        self._operands = operands
        self._b = operands.padded.t()
        problem = operands.problem
        self._options = {} if problem.out == problem.dtype else {"out_dtype": operands.y.dtype}
        self._weights = [torch._cslt_compress(weight) for weight in operands.dense]

    def contender(self, algorithm: int, *, transposed: bool = False, split: tuple[int, int] | None = None) -> Contender:
        """One algorithm. transposed: return [N, M], the layout of `linear`. split: one of `SPLITS`."""
        options = self._options if split is None else {**self._options, "split_k": split[0], "split_k_mode": split[1]}

        def call(index: int) -> Any:
            weight = self._weights[index % len(self._weights)]
            return self._torch._cslt_sparse_mm(
                weight, self._b, alg_id=algorithm, transpose_result=transposed, **options
            )

        way = f" split-K {split[0]} mode {split[1]}" if split else ""
        name = f"cusparselt {algorithm}{way}{TURNED if transposed else ''}"
        details = {"algorithm": algorithm, "transposed": transposed, "tokens": self._operands.problem.padded_n}
        if split:
            details |= {"split_k": split[0], "split_k_mode": split[1]}
        return Contender(name, call, "tokens" if transposed else "rows", details)

    def algorithms(self, most: int) -> Iterator[int]:
        """The ids of the algorithms. cuSPARSELt does not report their number; the first refused id ends the list.

        They run in the library's own output order. Some transposed results of 0.8.0 end in an illegal instruction, and
        the process loses its GPU context.
        """
        for algorithm in range(most):
            try:
                self.contender(algorithm).call(0)
            except RuntimeError:
                return
            # An error inside a kernel appears here; it is no refusal.
            self._torch.cuda.synchronize()
            yield algorithm


def cusparselt_candidates(
    library: CuSparseLt, seconds: Callable[[Contender], float], protocol: Protocol
) -> tuple[list[Contender], int]:
    """The contenders to rank, and the number of algorithms. seconds: a short timing of a contender.

    - `protocol.algorithms` fastest algorithms and algorithm 0, in the library's own output order.
    - The fastest algorithm with `SPLITS`, in that order only; see `CuSparseLt.algorithms`.
    - `protocol.finalists` fastest algorithms with transposed output. A launch of those takes 0.3 s of host time.
    """
    if protocol.most_algorithms == 1:
        return [library.contender(0, transposed=t) for t in (True, False)], 1
    known = library.algorithms(protocol.most_algorithms)
    timed = {a: seconds(library.contender(a)) for a in known}
    fastest = sorted(timed, key=lambda algorithm: timed[algorithm])[: protocol.algorithms]
    own = [library.contender(a) for a in dict.fromkeys([*fastest, 0])]
    turned = [library.contender(a, transposed=True) for a in fastest[: protocol.finalists]]
    return own + turned + [library.contender(a, split=split) for a in fastest[:1] for split in SPLITS], len(timed)
