"""What real runs say about a model's parameters, independent of Louver: the graph of gradients of a tiny real model.

A product's operand that comes from parameters alone is probed with one-hot gradients: each arrives at one element of the
parameter. Two elements along the contracted axis of the operand arrive at two places along the parameter's axis.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.autograd.graph import GradientEdge

# Positions of the operands in the node's edges, and their contracted axes.
PRODUCTS = {
    "MmBackward0": ((0, 1), (1, 0)),
    "AddmmBackward0": ((1, 1), (2, 0)),
    "BmmBackward0": ((0, 2), (1, 1)),
    "BaddbmmBackward0": ((1, 2), (2, 1)),
    "MvBackward0": ((0, 1), (1, 0)),
    "GroupedMmBackward0": ((0, 1), (1, 1)),
    "LinearBackward0": ((0, -1), (1, 1)),
}
ENDS = ("EmbeddingBackward0", "ConvolutionBackward0", *PRODUCTS)


def nodes_of(outputs: list[torch.Tensor]) -> list[Any]:
    seen: dict[Any, None] = {}
    stack = [out.grad_fn for out in outputs if out.grad_fn is not None]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen[node] = None
        stack += [each for each, _ in node.next_functions if each is not None]
    return list(seen)


def leaves_of(node: Any) -> list[torch.Tensor] | None:
    """The parameters that an operand is made of; None if a product, a convolution or a table is on the way."""
    found: list[torch.Tensor] = []
    seen = set()
    stack = [node]
    while stack:
        each = stack.pop()
        if each in seen:
            continue
        seen.add(each)
        if each.name() in ENDS or len(seen) > 200:
            return None
        if hasattr(each, "variable"):
            found.append(each.variable)
        stack += [parent for parent, _ in each.next_functions if parent is not None]
    return found


def shape_of(node: Any, index: int) -> tuple[int, ...]:
    return tuple(node._input_metadata[index].shape)


def probed(node: Any, index: int, axis: int, leaves: list[torch.Tensor]) -> dict[int, set[int]]:
    """By id of a parameter, its axes that the operand's axis runs along."""
    shape = shape_of(node, index)
    rng = np.random.default_rng(0)
    axes: dict[int, set[int]] = {}
    if shape[axis] < 2:
        return axes
    for _ in range(3):
        first = [int(rng.integers(size)) for size in shape]
        second = list(first)
        first[axis], second[axis] = (int(at) for at in rng.choice(shape[axis], 2, replace=False))
        places = []
        for at in (first, second):
            seed = torch.zeros(shape)
            seed[tuple(at)] = 1
            grads = torch.autograd.grad(
                [GradientEdge(node, index)], leaves, [seed], retain_graph=True, allow_unused=True
            )
            places.append([None if grad is None else grad.nonzero().tolist() for grad in grads])
        for leaf, a, b in zip(leaves, *places, strict=True):
            if a and b and len(a) == len(b) == 1:
                moved = {place for place, (x, y) in enumerate(zip(a[0], b[0], strict=True)) if x != y}
                axes.setdefault(id(leaf), set()).update(moved)
    return axes


def measured(outputs: list[torch.Tensor]) -> tuple[dict[int, set[int]], dict[int, str]]:
    """By id of a parameter: its contracted axes; and other uses, "lookup" or "convolution"."""
    contracted: dict[int, set[int]] = {}
    other: dict[int, str] = {}
    for node in nodes_of(outputs):
        name = node.name()
        if hasattr(node, "variable"):
            other.setdefault(id(node.variable), "read")
        edges = node.next_functions
        if name == "EmbeddingBackward0" and edges[0][0] is not None:
            for leaf in leaves_of(edges[0][0]) or []:
                other[id(leaf)] = "lookup"
        if name in ("IndexBackward0", "IndexSelectBackward0") and edges[0][0] is not None:
            for leaf in leaves_of(edges[0][0]) or []:
                if leaf.dim() == 2:
                    other[id(leaf)] = "lookup"
        if name == "ConvolutionBackward0" and edges[1][0] is not None:
            for leaf in leaves_of(edges[1][0]) or []:
                other[id(leaf)] = "convolution"
        if name in PRODUCTS:
            operands = []
            for place, axis in PRODUCTS[name]:
                edge = edges[place]
                leaves = leaves_of(edge[0]) if edge[0] is not None else None
                operands.append((edge, axis, leaves))
            (a, b) = operands
            chosen = b if b[2] else a
            if chosen[2]:
                for leaf, axes in probed(chosen[0][0], chosen[0][1], chosen[1], chosen[2]).items():
                    contracted.setdefault(leaf, set()).update(axes)
    return contracted, other


def known_modules(model: Any) -> tuple[dict[int, set[int]], dict[int, str]]:
    """The same for parameters of torch's own modules, by what those modules are documented to do."""
    contracted: dict[int, set[int]] = {}
    other: dict[int, str] = {}
    for module in model.modules():
        if isinstance(module, nn.Linear):
            contracted[id(module.weight)] = {1}
        elif isinstance(module, nn.RNNBase):
            contracted |= {id(weight): {1} for weight in module.parameters() if weight.dim() == 2}
        elif type(module).__name__ == "Conv1D":
            contracted[id(module.weight)] = {0}
        elif isinstance(module, nn.modules.conv._ConvNd):
            other[id(module.weight)] = "convolution"
        elif isinstance(module, nn.Embedding):
            other[id(module.weight)] = "lookup"
    return contracted, other
