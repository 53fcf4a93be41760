"""The sides of a run, its cases, and the rows of its record.

Protocol: see `PROTOCOL`.
"""

# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

import copy
import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

import louver
import louver.torch
from louver.library.state import TensorState
from louver.measure.model.sides import PROTOCOL as TIMES
from louver.measure.model.sides import Kept, Run, captured, in_turns
from louver.measure.model.stack import SHAPES, Shape, Stack, angles_of, join_by_hand_
from louver.measure.protocol import Budget
from louver.measure.report.model import DENSE_BF16, DENSE_E4M3, SPARSE_BF16, SPARSE_E4M3, TORCHAO
from louver.torch.core import cores
from louver.torch.linear import SparseWeight
from louver.torch.tokens import quantized_tokens

TOKENS: Final = 32


def few_tokens(shape: Shape, say: Callable[[str], None]) -> dict[str, Any] | str:
    """The row of the products of a block's four weights, joined, with tokens that are quantized already; or why there
    is none.
    """
    case = f"four products, {TOKENS} tokens"
    try:
        theirs: Any = importlib.import_module("torchao.ops")
        packed: Any = theirs.to_sparse_semi_structured_cutlass_sm9x_f8
        product: Any = theirs.rowwise_scaled_linear_sparse_cutlass_f8f8
        calls = _calls(shape, packed, product)
        graphs = {side: captured(lambda each=each: [call() for call in each]) for side, each in calls.items()}
        ms = {side: round(each, 5) for side, each in in_turns(graphs, graphs=True).items()}
    # torchao's kernel raises errors of many kinds where it was built without it.
    except Exception as error:
        reason = f"{TORCHAO}: {type(error).__name__}: {error}"[:300]
        say(f"{case}: left out, {reason}")
        return reason
    say(f"{case}: {ms}")
    return {"model": "Llama 3 8B", "case": case, "mode": "kernels", "tokens": TOKENS, "ms": ms, "reasons": {}}


def _calls(shape: Shape, packed: Any, product: Any) -> dict[str, Sequence[Callable[[], Tensor]]]:
    """The products of both sides. Raises ArithmeticError if their results differ."""
    heads = (shape.heads + 2 * shape.key_heads) * shape.head
    sizes = (
        (heads, shape.width),
        (shape.width, shape.heads * shape.head),
        (2 * shape.inner, shape.width),
        (shape.width, shape.inner),
    )
    mine: list[Callable[[], Tensor]] = []
    theirs: list[Callable[[], Tensor]] = []
    for rows, columns in sizes:
        w = louver.prune(torch.randn(rows, columns, device="cuda").bfloat16(), "2:4")
        x, tokens = quantized_tokens(torch.randn(TOKENS, columns, device="cuda").bfloat16(), torch.float8_e4m3fn)
        w, scale = quantized_tokens(w, torch.float8_e4m3fn)
        s, (values, metadata) = louver.compress(w, "2:4"), packed(w)

        def ours(x: Any = x, s: Any = s, scale: Any = scale, tokens: Any = tokens) -> Tensor:
            return louver.linear(x, s, scale=scale, dense_scale=tokens, out_dtype=torch.bfloat16)

        def other(x: Any = x, tokens: Any = tokens, w: Any = values, m: Any = metadata, scale: Any = scale) -> Tensor:
            return product(x, tokens, w, m, scale, None, torch.bfloat16)

        a, b = ours().float(), other().float()
        if float((a - b).norm()) > 0.01 * float(b.norm()):
            raise ArithmeticError(f"the results of {rows} × {columns} differ by more than 0.01 of their norm")
        mine.append(ours)
        theirs.append(other)
    return {SPARSE_E4M3: mine, TORCHAO: theirs}


CACHED: Final = 1024
"""Tokens of a sequence that is decoded."""

PROTOCOL: Final = (
    "Blocks with random bf16 weights pruned to 2:4 by magnitude. Dense sides: these weights with their zeros, q, k and v and "
    "gate and up joined by hand, e4m3 by torch._scaled_mm with a scale for each row and token. Sparse sides: the model with "
    "q, k, v, gate and up apart after louver.torch.compress_, and after quantize_. Elementwise code is compiled on all sides; "
    'mode "compiled" compiles whole blocks. Prefill: no graph. Decoding: one token a sequence with 1,024 cached tokens, a CUDA '
    "graph. Speedups: over the fastest dense side of the same or more bits. SmolLM2: the model before compress_, not joined by "
    f"hand, and after. {TIMES} Joules: of 2 s of the same prefill."
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a run measures. prefill: sequences and tokens of each; decode: numbers of sequences; modes: "eager" and
    "compiled".
    """

    blocks: int
    head: bool
    prefill: tuple[int, int]
    decode: tuple[int, ...]
    modes: tuple[str, ...]

    def __post_init__(self) -> None:
        if unknown := set(self.modes) - {"eager", "compiled"}:
            raise ValueError(f'modes are "eager" and "compiled", got {", ".join(sorted(unknown))}')
        if min(self.blocks, *self.prefill, *self.decode) < 1:
            raise ValueError(f"numbers of blocks, sequences and tokens are positive, got {self}")


def measure_model(
    wanted: Wanted, budget: Budget, say: Callable[[str], None], keep: Kept
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The facts and the rows of a record (`louver.measure.report.model`), the most important ones first."""
    torch.manual_seed(0)
    # Each side and case has a graph of its own; beyond the limit PyTorch would run the rest without compiling it.
    torch._dynamo.config.cache_size_limit = 64
    rows: list[dict[str, Any]] = []
    with torch.no_grad():
        run = _main(wanted, budget, say)
        for number, mode in enumerate(wanted.modes):
            for row in _rows(run, mode, wanted):
                rows.append(row)
                keep(run.facts, rows)
            if not number:
                run.joules(prefill(run.shape, *wanted.prefill), wanted.prefill[0] * wanted.prefill[1])
                run.facts["held_bytes"] = {
                    side: held_bytes(run.sides[side]) for side in (SPARSE_BF16, SPARSE_E4M3) if side in run.sides
                }
                for row in _small_rows(budget, say):
                    rows.append(row)
                    keep(run.facts, rows)
        found = few_tokens(run.shape, say)
        if isinstance(found, str):
            run.facts["torchao_reason"] = found
        else:
            rows.append(found)
        keep(run.facts, rows)
    return run.facts, rows


def _rows(run: Run, mode: str, wanted: Wanted) -> Iterator[dict[str, Any]]:
    _set_mode(run, mode)
    sequences, count = wanted.prefill
    name = f"prefill {sequences}×{count}"
    yield run.row(mode, name, sequences * count, lambda: prefill(run.shape, sequences, count), graphs=False)
    for each in wanted.decode:
        make = lambda each=each: decode(run.shape, each, wanted.blocks)  # noqa: E731
        yield run.row(mode, f"decode {each}", each, make, graphs=True)


def _small_rows(budget: Budget, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    run = _small(budget, say)
    _set_mode(run, "compiled")
    yield run.row("compiled", "prefill 1×2048", 2048, lambda: prefill(run.shape, 1, 2048), graphs=False)
    yield run.row("compiled", "decode 1", 1, lambda: decode(run.shape, 1, run.shape.blocks), graphs=True)


def _set_mode(run: Run, mode: str) -> None:
    for model in run.sides.values():
        for each in model.blocks:
            block: Any = each
            if mode == "compiled":
                block.compile(dynamic=False)
            else:
                block._compiled_call_impl = None


def pruned_stack(shape: Shape, blocks: int, *, head: bool) -> Stack:
    """Blocks of random weights on the GPU, pruned to 2:4 but for the head."""
    with torch.device("cuda"):
        made = Stack(shape, blocks, head=head).bfloat16().eval().requires_grad_(False)
    louver.torch.prune_(made, skip=("head",))
    return made


def _main(wanted: Wanted, budget: Budget, say: Callable[[str], None]) -> Run:
    stack = pruned_stack(SHAPES["Llama 3 8B"], wanted.blocks, head=wanted.head)
    run = Run("Llama 3 8B", stack.shape, budget, say)
    tokens = (*wanted.decode, wanted.prefill[0] * wanted.prefill[1])

    def compressed(name: str, model: Stack) -> Stack:
        begin = time.perf_counter()
        report = louver.torch.compress_(model, tokens=tokens)
        torch.cuda.synchronize()
        run.facts[f"compress_seconds_{name}"] = round(time.perf_counter() - begin, 3)
        run.facts["dense_bytes"] = sum(row.bytes[0] for row in report if row.done == "sparse")
        run.facts["swapped"] = f"{sum(row.done == 'sparse' for row in report)} of {len(report)}"
        run.facts["reasons"] = sorted({f"{row.name.rpartition('.')[2]}: {row.reason}" for row in report})
        return model

    def rounded() -> Stack:
        made = copy.deepcopy(run.sides[SPARSE_BF16])
        louver.torch.quantize_(made, "e4m3")
        return made

    compressed("cold", copy.deepcopy(stack))
    torch.cuda.empty_cache()
    # The pruned model itself becomes the sparse side, so the dense sides are made first.
    run.add(DENSE_BF16, lambda: join_by_hand_(copy.deepcopy(stack), scaled=False))
    run.add(DENSE_E4M3, lambda: join_by_hand_(copy.deepcopy(stack), scaled=True))
    run.add(SPARSE_BF16, lambda: compressed("cached", stack))
    run.add(SPARSE_E4M3, rounded)
    run.compare(prefill(run.shape, 1, 64))
    return run


def _small(budget: Budget, say: Callable[[str], None]) -> Run:
    """SmolLM2, whose K = 576 gains nothing: compress_ must not make it slower."""
    shape = SHAPES["SmolLM2 135M"]
    stack = pruned_stack(shape, shape.blocks, head=False)
    run = Run("SmolLM2 135M", shape, budget, say)

    def compressed() -> Stack:
        louver.torch.compress_(stack, tokens=(1, 2048))
        return stack

    run.add(DENSE_BF16, lambda: copy.deepcopy(stack))
    run.add(SPARSE_BF16, compressed)
    run.compare(prefill(run.shape, 1, 64))
    return run


def prefill(shape: Shape, sequences: int, count: int) -> Callable[[Stack], Any]:
    """The call with sequences of `count` tokens."""
    x = torch.randn(sequences, count, shape.width, device="cuda").bfloat16()
    angles = angles_of(torch.arange(count, device="cuda"), shape.head)
    return lambda model: model(x, angles, [None] * len(model.blocks))


def decode(shape: Shape, sequences: int, blocks: int) -> Callable[[Stack], Any]:
    """The call with one token of each sequence, after `CACHED` - 1 earlier ones."""
    x = torch.randn(sequences, 1, shape.width, device="cuda").bfloat16()
    angles = angles_of(torch.tensor([CACHED - 1], device="cuda"), shape.head)
    sizes = (sequences, shape.key_heads, CACHED, shape.head)
    caches: list[tuple[Tensor, ...]] = [
        tuple(torch.randn(sizes, device="cuda").bfloat16() for _ in range(2)) for _ in range(blocks)
    ]
    return lambda model: model(x, angles, caches)


def held_bytes(model: Stack) -> int:
    """Bytes of the sparse weights of a model, with all that products keep of them on the GPU."""
    total = 0
    for weight in model.modules():
        if isinstance(weight, SparseWeight) and dict(weight.named_parameters()):
            total += sum(each.nbytes for each in weight.parameters())
            found = [kept for values, indices, _ in weight.tensors() for kept in cores().find(values, indices)]
            # Products read values, and packed indices, in place.
            places = {each.data_ptr() for each in weight.parameters()}
            for kept in {id(each): each for each in found}.values():
                forms = kept.derived.of(TensorState).forms()
                total += sum(form.nbytes for form in forms if form.address not in places)
    return total
