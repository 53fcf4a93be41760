"""Products of few tokens in e4m3 beside torchao's kernel of 2:4 weights in 8 bits, where torchao is installed."""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

import louver
from louver.measure.model.stack import Shape
from louver.measure.model.turns import captured, in_turns
from louver.measure.report.model import SPARSE_E4M3, TORCHAO
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
