"""Contenders: a name and a call for each, over the same operands.

A ladder of schedules is more contenders of this kind: one for each `Schedule`.
"""

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
"""PyTorch's errors where a library refuses a product, or an older PyTorch does not take an option."""

SPLITS = ((-1, -1),)
"""PyTorch's `split_k` and `split_k_mode` of cuSPARSELt: segment-K, for which PyTorch passes no mode. cuSPARSELt 0.8 refuses parts of K on
compute capability 9 (`split_k` 2 and 4, modes 1 and 2: invalid value)."""

TURNED = " transposed"
"""The end of the name of a contender whose library turns its own output order."""

DENSE_CALLS: Mapping[tuple[str, str], str] = {
    ("f16", "f16"): "torch.mm",
    ("bf16", "bf16"): "torch.mm",
    ("e4m3", "f16"): "torch._scaled_mm",
    ("s8", "s32"): "torch._int_mm",
    ("f32", "f32"): "torch.mm",
}
"""PyTorch's dense product by cuBLAS, by element types of operands and result. f32: in `tf32_products`."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to compute the product.

    call: launches it with operand set `index % sets` and returns the result. order: "tokens" for a result [N, M], "rows"
    for [M, N]; more tokens may follow. details: facts for the record.
    """

    name: str
    call: Callable[[int], Any]
    order: str
    details: dict[str, Any]

    @property
    def own_order(self) -> str:
        """The name of the same in its library's own output order, of cuSPARSELt."""
        return self.name.removesuffix(TURNED)

    def result(self, index: int) -> Any:
        """The result as [N, M]."""
        y = self.call(index)
        return y if self.order == "tokens" else y.t()


def ours(operands: Operands) -> Contender:
    """`louver.linear`, writing to a given output, and accumulating as the problem says."""
    x, sparse, y = operands.x, operands.sparse, operands.y
    accumulate = cast("Accumulate", operands.problem.accumulate)

    def call(index: int) -> Any:
        return louver.linear(x, sparse[index % operands.sets], out=y, accumulate=accumulate)

    return Contender("ours", call, "tokens", {"call": "louver.linear"})


def dependent(operands: Operands) -> Contender:
    """The same by a plan for each weight, whose launches may begin while the one before ends."""
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
    """A copy that moves as many bytes as the product has to: half are read, half written. It computes nothing."""
    copies = copies_of(torch, operands.problem.moved_bytes, operands.sets)
    return Contender("copy", copies.call, "tokens", {"bytes": copies.moved_bytes})


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies by turns, of `sets` sources to as many targets. call: launches one. moved_bytes: that it reads and writes together."""

    call: Callable[[int], object]
    moved_bytes: int
    sets: int


def copies_of(torch: Any, moved_bytes: int, sets: int) -> Copies:
    """Copies that move as many bytes, half read and half written, in whole 512: those of rows that begin elsewhere are slow."""
    half = -(-moved_bytes // 1024) * 512
    source = torch.zeros(sets, half, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return Copies(lambda index: target[index % sets].copy_(source[index % sets]), 2 * half, sets)


def cublas(torch: Any, operands: Operands) -> Contender:
    """Dense `x @ w.T` with the pruned weights, zeros and all, by the call that `DENSE_CALLS` names, to a given output.

    e4m3 has scales of 1, and cuBLAS's fast accumulation unless our product's sums are promoted.
    Raises ValueError where PyTorch has no call for the problem's element types.
    """
    problem = operands.problem
    name = DENSE_CALLS.get((problem.dtype, problem.out))
    if name is None:
        raise ValueError(f"PyTorch has no dense product of {problem.dtype} that writes {problem.out}")
    multiply = _dense_product(torch, name, operands)
    transposed = [weight.t() for weight in operands.dense]
    return Contender("cublas", lambda index: multiply(transposed[index % operands.sets]), "tokens", {"call": name})


def _dense_product(torch: Any, name: str, operands: Operands) -> Callable[[Any], Any]:
    x, y = operands.x, operands.y
    match name:
        case "torch._scaled_mm":
            one = torch.ones((), device="cuda")
            scales = {"scale_a": one, "scale_b": one}
            fast = operands.problem.accumulate != "promoted"
            return lambda w: torch._scaled_mm(x, w, **scales, out_dtype=y.dtype, use_fast_accum=fast, out=y)
        case "torch._int_mm":
            return lambda w: torch._int_mm(x, w, out=y)
        case _:
            return lambda w: torch.mm(x, w, out=y)


class CuSparseLt:
    """cuSPARSELt through PyTorch. Raises RuntimeError where PyTorch has been built without it."""

    def __init__(self, torch: Any, operands: Operands) -> None:
        self._torch = torch
        self._operands = operands
        self._b = operands.padded.t()
        problem = operands.problem
        self._options = {} if problem.out == problem.dtype else {"out_dtype": operands.y.dtype}
        self._weights = [torch._cslt_compress(weight) for weight in operands.dense]

    def contender(self, algorithm: int, *, transposed: bool = False, split: tuple[int, int] | None = None) -> Contender:
        """One algorithm. transposed: the result comes as [N, M], `linear`'s layout. split: one of `SPLITS`."""
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
        """The algorithms' ids, which the library does not say: they count up to the first that is refused.

        Asked in the library's own output order: with 0.8.0 some algorithms end in an illegal instruction when asked for a
        transposed result, which takes the whole process's GPU context with it.
        """
        for algorithm in range(most):
            try:
                self.contender(algorithm).call(0)
            except RuntimeError:
                return
            # A failure inside a kernel shows here, and is no refusal.
            self._torch.cuda.synchronize()
            yield algorithm


def cusparselt_candidates(
    library: CuSparseLt, seconds: Callable[[Contender], float], protocol: Protocol
) -> tuple[list[Contender], int]:
    """The contenders that are worth ranking, and the number of algorithms. seconds: a short timing of a contender.

    `SPLITS` come in the library's own output order only, as `CuSparseLt.algorithms` says. The other order comes for as many
    algorithms as there are finalists: each launch in it takes cuSPARSELt 0.3 s of host time.
    """
    if protocol.most_algorithms == 1:
        return [library.contender(0, transposed=t) for t in (True, False)], 1
    known = library.algorithms(protocol.most_algorithms)
    timed = {a: seconds(library.contender(a)) for a in known}
    fastest = sorted(timed, key=lambda algorithm: timed[algorithm])[: protocol.algorithms]
    own = [library.contender(a) for a in dict.fromkeys([*fastest, 0])]
    turned = [library.contender(a, transposed=True) for a in fastest[: protocol.finalists]]
    return own + turned + [library.contender(a, split=split) for a in fastest[:1] for split in SPLITS], len(timed)
