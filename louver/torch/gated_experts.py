"""Gate, up projection and activation of all experts of a layer as one product.

Transformers keeps both in one stack [experts, 2·F, K]. A trace of the layer's `_apply_gate` proves that it is
act(gate) · up. The rows of the stack then lie in turns of 8, as gated products read them; a state_dict has them in order.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from louver.formats.dtypes import element_type
from louver.formats.gated import GATE_ROWS
from louver.formats.pattern import Pattern, has_kernels
from louver.torch.gated_proof import _name_of
from louver.torch.grouped import by_turns
from louver.torch.layers import is_hooked
from louver.torch.source import NotJoinedError
from louver.torch.stacks import GatedStack, SparseExperts, SparseStack


def fuse_stacks_(model: nn.Module) -> dict[str, str]:
    """Let each layer of sparse experts, whose gate a trace proves, run it in its product.

    Returns what became of each stack of gates: the text for its row of a report.
    """
    said: dict[str, str] = {}
    for prefix, layer in model.named_modules():
        stack: Any = getattr(layer, "gate_up_proj", None)
        if not isinstance(layer, SparseExperts) or type(stack) is not SparseStack:
            continue
        name = f"{prefix}.gate_up_proj" if prefix else "gate_up_proj"
        try:
            activation = _proved(layer, stack)
        except NotJoinedError as error:
            said[name] = f"not a gated product: {error}"
            continue
        with torch.inference_mode(False), torch.no_grad():
            for part in ("values", "indices"):
                array = getattr(stack, part)
                setattr(stack, part, nn.Parameter(by_turns(array.detach()), array.requires_grad))
        made: Any = stack
        made.__class__, made.activation = GatedStack, activation
        said[name] = "one product with its activation"
    return said


def _proved(layer: Any, stack: SparseStack) -> str | None:
    """The activation of the gates. Raises NotJoinedError if the layer does something else, or no kernel does it."""
    if is_hooked(layer) or is_hooked(stack):
        raise NotJoinedError("it has hooks")
    if layer.has_bias or not getattr(layer, "is_concatenated", True):
        raise NotJoinedError("its experts have biases, or gate and up projection by turns")
    if stack.shape[1] % (2 * GATE_ROWS) or Pattern.parse(stack.pattern).length > 1:
        raise NotJoinedError(f"{stack.shape[1] // 2} rows of a gate are no multiple of {GATE_ROWS}, or lie in vectors")
    if not has_kernels("gated products", stack.pattern, element_type(stack.dtype).name):
        raise NotJoinedError(f"there is no gated product of {stack.pattern} for {stack.dtype}")
    kind = stack.dense_dtype or stack.dtype

    # `make_fx` counts `self` as an argument of a method.
    def gate(y: Tensor) -> Tensor:
        return layer._apply_gate(y)

    try:
        graph = make_fx(gate)(torch.empty(3, 2 * GATE_ROWS, dtype=kind, device="meta")).graph
    # A gate may raise anything when it gets a tensor without data.
    except Exception as error:
        raise NotJoinedError(f"its gate cannot be traced ({type(error).__name__})") from error
    nodes = list(graph.nodes)
    work = [node for node in nodes if node.op == "call_function"]
    if len(work) == 5 and nodes[-1].args[0] is work[4]:
        halves, first, up, acting, product = work
        parts = [each.target is operator.getitem and each.args == (halves, i) for i, each in enumerate((first, up))]
        split = halves.target is torch.ops.aten.split.Tensor and halves.args[:2] == (nodes[0], GATE_ROWS)
        multiplied = product.target is torch.ops.aten.mul.Tensor and set(product.args) == {acting, up}
        if split and all(parts) and multiplied and acting.args == (first,):
            return _name_of(acting)
    raise NotJoinedError("its gate is not act(gate) · up")
