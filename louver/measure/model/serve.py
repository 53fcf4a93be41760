"""`louver bench serve`: the products of a layer as a server calls them, at the numbers of tokens that vLLM captures."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from louver.choose.tile_shapes import column_class
from louver.library.execute import schedule_for
from louver.library.prepare import Preparation
from louver.measure.launches import compile_all
from louver.measure.model.run import pruned_stack
from louver.measure.model.sides import PROTOCOL as TIMES
from louver.measure.model.sides import Kept, Run
from louver.measure.model.stack import SHAPES, Stack, activated, join_by_hand_
from louver.measure.protocol import Budget, spread_out
from louver.measure.report.model import DENSE_BF16, DENSE_E4M3, SPARSE_BF16, SPARSE_E4M3
from louver.measure.report.serve import CASES, LAYER, OVER
from louver.runtime.device import device
from louver.torch.gain import Together
from louver.torch.linear import SparseLinear, SparseWeight
from louver.torch.ready import preparations

LAYERS: Final = 8
"""Layers that a graph goes through, so that no weight is read from the L2 cache."""

PROTOCOL: Final = (
    "The four products of a layer with random bf16 weights pruned to 2:4 by magnitude: q, k and v as one product; o; gate and up "
    "as one, with SiLU(gate) · up; down; and all four in this order. Dense sides: these weights with their zeros, SiLU and "
    "product compiled, e4m3 by torch._scaled_mm with a scale for each row and token. Sparse sides: SiLU and product in the "
    "kernel of gate and up. e4m3 quantizes tokens by the same kernel on both sides, in the measured time. Each call is a CUDA "
    f"graph of {LAYERS} layers with weights of their own; times are of one. Ratios: over the dense side of the same type. {TIMES}"
)


class Layer(nn.Module):
    """The products of a layer, each with its input [tokens, …]; called, all of them in the order of a server."""

    def __init__(self, qkv: nn.Module, o: nn.Module, gate_up: nn.Module, down: nn.Module) -> None:
        super().__init__()
        self.qkv, self.o, self.gate_up, self.down = qkv, o, gate_up, down

    def forward(self, x: Tensor) -> Tensor:
        self.qkv(x)
        return self.down(self.gate_up(self.o(x)))


class Gate(nn.Module):
    """SiLU(gate) · up of both side by side."""

    def forward(self, joined: Tensor) -> Tensor:
        return activated(joined)


def dense(stack: Stack, *, scaled: bool) -> Layer:
    """The first layer of a stack in its best dense form; scaled: in e4m3."""
    block: Any = join_by_hand_(copy.deepcopy(stack), scaled=scaled).blocks[0]
    attention, mlp = block.attention, block.mlp
    return Layer(attention.joined, attention.o_proj, nn.Sequential(mlp.joined, Gate()), mlp.down)


def sparse(stack: Stack) -> Layer:
    """The first layer of a pruned stack, compressed."""
    block: Any = stack.blocks[0]
    attention, mlp = block.attention, block.mlp
    qkv, gate_up = (
        [SparseLinear.of(each) for each in layers]
        for layers in ((attention.q_proj, attention.k_proj, attention.v_proj), (mlp.gate, mlp.up))
    )
    return Layer(
        Together(qkv, False, None),
        SparseLinear.of(attention.o_proj),
        Together(gate_up, True, "silu"),
        SparseLinear.of(mlp.down),
    )


def rounded(layer: Layer) -> Layer:
    """A sparse layer in e4m3."""
    made = copy.deepcopy(layer)
    for weight in made.modules():
        if isinstance(weight, SparseWeight):
            weight.quantized_(*weight.rounded(torch.float8_e4m3fn), weight.dtype)
    return made


def call(case: str, x: Tensor) -> Callable[[Layer], Any]:
    """The call of a case: a product by its name, or `LAYER`."""
    return lambda layer: (layer if case == LAYER else layer.get_submodule(case))(x)


def measure_serve(
    tokens: Sequence[int], budget: Budget, say: Callable[[str], None], keep: Kept
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The facts and the rows of a record (`louver.measure.report.serve`). The order of the numbers spreads over them."""
    torch.manual_seed(0)
    rows: list[dict[str, Any]] = []
    with torch.no_grad():
        run = _made(tokens, budget, say)
        left = [tokens[place] for place in spread_out(len(tokens))]
        while left and budget.suffices():
            n = left.pop(0)
            for case in CASES:
                on = _through(call(case, _input(run, case, n)))
                rows.append(run.row("graph", case, n, lambda on=on: on, graphs=True, repeats=LAYERS))
            run.facts["missing"] = sorted(left)
            keep(run.facts, rows)
    return run.facts, rows


def _through(one: Callable[[Layer], Any]) -> Callable[[Sequence[Layer]], None]:
    def on(layers: Sequence[Layer]) -> None:
        # An output ends before the next one is made, which takes its memory.
        for layer in layers:
            one(layer)

    return on


def _made(tokens: Sequence[int], budget: Budget, say: Callable[[str], None]) -> Run:
    shape = SHAPES["Llama 3 8B"]
    stack = pruned_stack(shape, 1, head=False)
    run = Run("Llama 3 8B", shape, budget, say, OVER)
    run.add(DENSE_BF16, lambda: dense(stack, scaled=False))
    run.add(DENSE_E4M3, lambda: dense(stack, scaled=True))
    run.add(SPARSE_BF16, lambda: sparse(stack))
    run.add(SPARSE_E4M3, lambda: rounded(run.sides[SPARSE_BF16]))
    sparse_layers = [run.sides[side] for side in (SPARSE_BF16, SPARSE_E4M3) if side in run.sides]
    wanted = [each for layer in sparse_layers for each in _preparations(layer, tokens)]
    kernels = {(each.problem, _schedule(each)): None for each in wanted}
    # The call of a kernel that is refused says why.
    compile_all(kernels, device(torch.cuda.current_device()).target)
    run.facts["kernels"] = len(kernels)
    say(f"{len(kernels)} kernels are compiled")
    # Elementwise code is compiled too: for one token, then for a number, then for any.
    for n in (1, 16, 40):
        for case in CASES[:-1]:
            on = call(case, _input(run, case, n))
            run.compare(lambda layer, on=on: _whole(on(layer)))
    run.sides = {side: [copy.deepcopy(layer) for _ in range(LAYERS)] for side, layer in run.sides.items()}
    return run


def _input(run: Run, case: str, n: int) -> Tensor:
    return torch.randn(n, run.shape.inner if case == "down" else run.shape.width, device="cuda").bfloat16()


def _whole(y: Any) -> Tensor:
    """An output of parts as one."""
    return y if isinstance(y, Tensor) else torch.cat(list(y), -1)


def _preparations(layer: Layer, tokens: Sequence[int]) -> Iterator[Preparation]:
    for part in layer.children():
        if isinstance(part, Together):
            gated = part.joint.by_turns
            yield from preparations(part.joint, tokens, bias=False, activation=part.activation, gated=gated)
        else:
            linear: Any = part
            yield from preparations(linear.weight, tokens, bias=False)


def _schedule(wanted: Preparation) -> Any:
    m, k = wanted.s.shape
    return schedule_for(wanted.problem, m, column_class(wanted.low), k, wanted.place, aligned_output=True)
