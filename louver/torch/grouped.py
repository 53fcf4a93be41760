"""`torch.ops.louver.grouped`: products of rows with one weight of a stack each, as layers of experts need.

A stack of weights [entries, out, K] is `values` [entries, out, kept] and `indices` [entries, windows, bytes], each entry
as in Louver's files. The rows of x are sorted by entry, and `ends` says where the rows of each entry end.

Each entry with rows is one product: the host reads `ends`, which may lie on the host already. A CUDA graph captures a
batch of all entries instead, which fills each up to the most rows that one can have.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

import torch
from torch import Tensor

import louver
from louver.formats.gated import GATE_ROWS
from louver.formats.pattern import Pattern
from louver.torch.columns import check_arrays, expanded, taken
from louver.torch.core import core_of
from louver.torch.operators import ACTIVATIONS, library
from louver.torch.tokens import quantized_tokens


def grouped(
    x: Tensor,
    values: Tensor,
    indices: Tensor,
    ends: Tensor,
    most: int,
    scale: Tensor | None = None,
    pattern: str = "2:4",
    gated: bool = False,
    activation: str | None = None,
) -> Tensor:
    """The products below autograd: x [rows, K], sorted by entry -> [rows, out] in the type of x. Rows past the last end
    give 0.

    ends: int64 [entries], ascending. most: rows that one entry has at most.
    scale: f32 [entries, out] of quantized weights; x is then quantized too, with a scale for each row.
    gated: whether each weight is a pair of `louver.gated`, by turns, with this activation. `scale` has the gate's
        elements, then those of the up projection. Such products have no gradients.
    """
    _check(x, values, indices, ends)
    x, values, indices = x.detach(), values.detach(), indices.detach()
    operand, tokens = (x, None) if scale is None else quantized_tokens(x, values.dtype)
    if captured(x):
        turned = by_turns(scale) if gated and scale is not None else scale
        y = _batch(operand, values, indices, ends, most, turned, pattern, x.dtype)
        y = y if tokens is None else y * tokens[:, None]
        if gated:
            gate, up = in_order(y).chunk(2, -1)
            y = ACTIVATIONS[activation](gate) * up
        return y.to(x.dtype)
    y = x.new_empty(len(x), values.shape[1] // (2 if gated else 1))
    last = 0
    for entry, rows in filled(ends):
        last = rows.stop
        louver.linear(
            operand[rows],
            core_of(values[entry], indices[entry], pattern, x.shape[1], gated=gated),
            out=y[rows],
            activation=cast("Any", activation),
            scale=None if scale is None else scale[entry].detach(),
            dense_scale=None if tokens is None else tokens[rows],
        )
    if last < len(x):
        y[last:] = 0
    return y


def captured(x: Tensor) -> bool:
    """Whether a CUDA graph captures what is done with a tensor."""
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def by_turns(x: Tensor) -> Tensor:
    """Along axis 1, the rows of the gate, then those of the up projection, in the order of a pair's rows."""
    return x.unflatten(1, (2, -1, GATE_ROWS)).transpose(1, 2).flatten(1, 3)


def in_order(x: Tensor) -> Tensor:
    """The inverse of `by_turns`."""
    return x.unflatten(1, (-1, 2, GATE_ROWS)).transpose(1, 2).flatten(1, 3)


def filled(ends: Tensor) -> Iterator[tuple[int, slice]]:
    """The entries that have rows, each with its rows. Waits for `ends` on a GPU."""
    start = 0
    for entry, end in enumerate(ends.tolist()):
        if end > start:
            yield entry, slice(start, end)
        start = end


def _batch(
    operand: Tensor,
    values: Tensor,
    indices: Tensor,
    ends: Tensor,
    most: int,
    scale: Tensor | None,
    pattern: str,
    dtype: torch.dtype,
) -> Tensor:
    """All products as one batch; with the weights' scales in f32."""
    entries, rows = len(ends), torch.arange(len(operand), device=ends.device)
    starts = torch.cat([ends.new_zeros(1), ends[:-1]])
    # Places past the rows of an entry multiply rows of others, which nothing reads.
    places = (starts[:, None] + torch.arange(most, device=ends.device)).clamp_(max=len(operand) - 1)
    x = operand[places] if operand.itemsize > 1 else operand.view(torch.uint8)[places].view(operand.dtype)
    s = core_of(values.flatten(0, 1), indices.flatten(0, 1), pattern, operand.shape[1], entries=entries)
    y = louver.linear(x, s, out_dtype=dtype if scale is None else torch.float32)
    entry = torch.searchsorted(ends, rows, right=True)
    own = entry.clamp(max=entries - 1)
    y = y[own, rows - starts[own]]
    if scale is not None:
        y = y * scale[own]
    return torch.where((entry < entries)[:, None], y, 0)


def _check(x: Tensor, values: Tensor, indices: Tensor, ends: Tensor) -> None:
    """Raises ValueError for arrays of other axes. `core_of` checks the rest when it first sees them."""
    if x.dim() != 2:
        raise ValueError(f"x must be [rows, K], sorted by entry, got shape {list(x.shape)}")
    if values.dim() != 3 or indices.dim() != 3 or ends.dim() != 1:
        raise ValueError(
            "a stack has values [entries, out, kept], indices [entries, windows, bytes] and ends [entries], got shapes "
            f"{list(values.shape)}, {list(indices.shape)} and {list(ends.shape)}"
        )
    if not len(values) == len(indices) == len(ends) > 0:
        raise ValueError(
            f"values, indices and ends are those of the same entries, got {len(values)}, {len(indices)} and {len(ends)}"
        )


def _fake(
    x: Tensor,
    values: Tensor,
    indices: Tensor,
    ends: Tensor,
    most: int,
    scale: Tensor | None = None,
    pattern: str = "2:4",
    gated: bool = False,
    activation: str | None = None,
) -> Tensor:
    _check(x, values, indices, ends)
    check_arrays(values[0], indices[0], Pattern.parse(pattern), x.shape[1])
    return x.new_empty((x.shape[0], values.shape[1] // (2 if gated else 1)))


# --- gradients -----------------------------------------------------------------------------------------------------------
def backward(
    g: Tensor, x: Tensor, values: Tensor, indices: Tensor, ends: Tensor, scale: Tensor | None, pattern: str
) -> tuple[Tensor, Tensor]:
    """The gradients of x, and of values in the type of g. One dense weight is alive at a time."""
    found = Pattern.parse(pattern)
    g_x, g_values = torch.zeros_like(x), g.new_zeros(values.shape)
    for entry, rows in filled(ends):
        mine = g[rows] if scale is None else (g[rows] * scale[entry]).to(g.dtype)
        g_x[rows] = (mine @ expanded(values[entry], indices[entry], found, x.shape[1]).to(g.dtype)).to(x.dtype)
        if scale is None:
            g_values[entry] = taken(mine.t() @ x[rows].to(g.dtype), indices[entry], found)
    return g_x, g_values


def _fake_backward(
    g: Tensor, x: Tensor, values: Tensor, indices: Tensor, ends: Tensor, scale: Tensor | None, pattern: str
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), g.new_empty(values.shape)


_DEFAULTS: Final[tuple[Any, ...]] = (None, "2:4", False, None)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    # PyTorch leaves out trailing arguments that the caller leaves out.
    filled_up: tuple[Any, ...] = *inputs, *_DEFAULTS[len(inputs) - 5 :]
    x, values, indices, ends, _, scale, pattern, gated, _ = filled_up
    if gated and (x.requires_grad or values.requires_grad):
        raise RuntimeError(
            "gated products of a stack have no gradients, got operands that require grad: multiply without"
        )
    ctx.pattern = pattern
    ctx.needs = x.requires_grad, values.requires_grad
    ctx.save_for_backward(x, values, indices, ends, scale)


def _backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    x, values, indices, ends, scale = ctx.saved_tensors
    g_x, g_values = torch.ops.louver.grouped_backward(g.contiguous(), x, values, indices, ends, scale, ctx.pattern)
    needs_x, needs_values = ctx.needs
    return g_x if needs_x else None, g_values.to(values.dtype) if needs_values else None, *[None] * 7


def _register() -> None:
    made, tags = library(), (torch.Tag.pt2_compliant_tag,)
    arrays = "Tensor values, Tensor indices, Tensor ends"
    made.define(
        f'grouped(Tensor x, {arrays}, SymInt most, Tensor? scale=None, str pattern="2:4", bool gated=False, '
        "str? activation=None) -> Tensor",
        tags=tags,
    )
    made.define(
        f"grouped_backward(Tensor g, Tensor x, {arrays}, Tensor? scale, str pattern) -> (Tensor, Tensor)", tags=tags
    )
    made.impl("grouped", grouped, "CompositeExplicitAutograd")
    made.impl("grouped_backward", backward, "CompositeExplicitAutograd")
    torch.library.register_fake("louver::grouped", _fake, lib=made)
    torch.library.register_fake("louver::grouped_backward", _fake_backward, lib=made)
    torch.library.register_autograd("louver::grouped", _backward, setup_context=_setup, lib=made)


_register()
GROUPED = cast("Any", torch.ops.louver.grouped)
