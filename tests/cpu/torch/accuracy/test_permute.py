"""Orders of channels: they keep more, leave the function of a block, and are found free only where they are."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from louver.formats.pattern import Pattern

torch: Any = pytest.importorskip("torch")

from louver.torch.accuracy.free import Channels, order_of  # noqa: E402
from louver.torch.accuracy.masks import keep  # noqa: E402

nn = torch.nn


def seeded(seed: int) -> Any:
    return torch.Generator().manual_seed(seed)


class Gated(nn.Module):
    """down(silu(gate(x)) · up(x)), with gate and up in one weight."""

    def __init__(self, size: int, hidden: int) -> None:
        super().__init__()
        self.both, self.down = nn.Linear(size, 2 * hidden), nn.Linear(hidden, size)

    def forward(self, x: Any) -> Any:
        gate, up = self.both(x).chunk(2, -1)
        return self.down(nn.functional.silu(gate) * up)

    def channels(self) -> Channels:
        weights, biases = self.both.weight.chunk(2), self.both.bias.chunk(2)
        return Channels((*weights, *biases), self.down.weight)


class Attention(nn.Module):
    """Grouped-query attention: four query heads of 8 channels on two key heads."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(a, b) for a, b in ((size, 32), (size, 16), (size, 16), (32, size)))

    def forward(self, x: Any) -> Any:
        q, k, v = (layer(x).unflatten(-1, (-1, 8)).transpose(-2, -3) for layer in (self.q, self.k, self.v))
        k, v = (t.repeat_interleave(2, -3) for t in (k, v))
        return self.o(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(-2, -3).flatten(-2))

    def channels(self) -> Channels:
        return Channels((self.v.weight, self.v.bias), self.o.weight, parts=2, repeats=2)


@pytest.fixture(params=[lambda: Gated(12, 40), lambda: Attention(12)], ids=["gated", "attention"])
def block(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(4)
    return request.param().double().requires_grad_(False)


def test_the_block_computes_the_same(block: Any) -> None:
    x, channels, before = torch.randn(3, 7, 12).double(), block.channels(), copy.deepcopy(block)
    order = channels.order_of(torch.rand(channels.consumer.shape), Pattern(2, 4), 20, seeded(0))
    channels.apply_(order)
    assert not torch.equal(channels.consumer, before.channels().consumer)
    assert torch.allclose(block(x), before(x), rtol=1e-12, atol=1e-13)
    channels.apply_(order.argsort(1))
    assert all(torch.equal(a, b) for a, b in zip(block.parameters(), before.parameters(), strict=True))


def test_integers_are_equal_bit_for_bit(rng: np.random.Generator) -> None:
    gate, up, down = (torch.from_numpy(rng.integers(-4, 5, s)).float() for s in ((24, 6), (24, 6), (9, 24)))
    x = torch.from_numpy(rng.integers(-4, 5, (5, 6))).float()

    def run() -> Any:
        return (torch.relu(x @ gate.T) * (x @ up.T)) @ down.T

    before = run()
    channels = Channels((gate, up), down)
    channels.apply_(channels.order_of(down.square(), Pattern(2, 4), 30, seeded(1)))
    assert torch.equal(run(), before)


@pytest.mark.parametrize("text", ["2:4", "1:2", "4:8", "3:5", "2:4@3", "2:8@V4"])
def test_an_order_keeps_more(text: str, rng: np.random.Generator) -> None:
    pattern = Pattern.parse(text)
    # Channels differ in worth, so that groups of good ones lose much.
    score = torch.from_numpy((rng.standard_normal((24, 59)) * np.exp(rng.standard_normal(59))).astype(np.float32)) ** 2
    channels = Channels((), torch.zeros(24, 59))
    order = channels.order_of(score, pattern, 25, seeded(2))
    assert torch.equal(order, channels.order_of(score, pattern, 25, seeded(2)))
    assert torch.equal(order.sort().values, torch.arange(59)[None])
    at = 59 // pattern.m * pattern.m
    assert torch.equal(order[0, at:], torch.arange(at, 59))
    before, after = ((s * ~keep(s, pattern)).sum() for s in (score, score[:, channels.columns(order)]))
    assert after < 0.97 * before


def test_orders_stay_in_their_parts(rng: np.random.Generator) -> None:
    consumer = torch.from_numpy(rng.standard_normal((10, 2 * 3 * 8), np.float32))
    channels = Channels((), consumer, parts=2, repeats=3)
    order = channels.order_of(consumer.square(), Pattern(2, 4), 20, seeded(3))
    assert order.shape == (2, 8) and not torch.equal(order[0], order[1])
    columns = channels.columns(order).view(2, 3, 8)
    starts = 8 * torch.arange(6).view(2, 3, 1)
    assert torch.equal(columns - starts, order[:, None].expand(2, 3, 8))
    assert torch.equal(channels.rows(order), torch.cat([order[0], 8 + order[1]]))


def test_nothing_to_pair_keeps_the_order() -> None:
    assert torch.equal(order_of(torch.rand(2, 5, 1, 7), Pattern(2, 4), 10, seeded(0)), torch.arange(7).repeat(2, 1))


def test_free_channels_are_found(block: Any) -> None:
    x, before = torch.randn(3, 7, 12).double(), copy.deepcopy(block)
    assert block.channels().are_free(lambda: block(x), block(x), seeded(0))
    assert all(torch.equal(a, b) for a, b in zip(block.parameters(), before.parameters(), strict=True))


def test_channels_that_are_not_free(block: Any) -> None:
    x, channels, before = torch.randn(3, 7, 12).double(), block.channels(), copy.deepcopy(block)
    # A forgotten bias, other parts, and a weight between producers and consumer.
    forgotten = Channels(channels.producers[:-1], channels.consumer, channels.parts, channels.repeats)
    assert not forgotten.are_free(lambda: block(x), block(x), seeded(0))
    if channels.parts > 1:
        assert not Channels(channels.producers, channels.consumer, 1, 2).are_free(lambda: block(x), block(x), seeded(0))
    assert not Channels((), channels.consumer).are_free(lambda: block(x), block(x), seeded(0))
    # A consumer that is not read proves nothing.
    assert not Channels((), channels.consumer.clone()).are_free(lambda: block(x), block(x), seeded(0))
    assert all(torch.equal(a, b) for a, b in zip(block.parameters(), before.parameters(), strict=True))


def test_a_run_that_fails_leaves_the_order(block: Any) -> None:
    before, calls = copy.deepcopy(block), []

    def run() -> Any:
        calls.append(0)
        if len(calls) == 2:
            raise RuntimeError("out of memory")
        return torch.ones(1)

    with pytest.raises(RuntimeError, match="out of memory"):
        block.channels().are_free(run, torch.ones(1), seeded(0))
    assert all(torch.equal(a, b) for a, b in zip(block.parameters(), before.parameters(), strict=True))


@pytest.mark.parametrize(("rows", "columns", "parts", "repeats"), [(7, 8, 1, 1), (8, 8, 3, 1), (4, 9, 1, 2)])
def test_shapes_that_do_not_fit(rows: int, columns: int, parts: int, repeats: int) -> None:
    message = (
        f"producers have as many rows .* got \\[{rows}\\] rows, {columns} columns, {repeats} repeats and {parts} parts"
    )
    with pytest.raises(ValueError, match=message):
        Channels((torch.ones(rows, 2),), torch.ones(3, columns), parts, repeats)


def test_parts_that_are_no_whole_groups() -> None:
    channels = Channels((), torch.ones(3, 12), parts=2)
    with pytest.raises(ValueError, match="an order within parts needs whole groups of 2:4, got parts of 6 channels"):
        channels.order_of(torch.ones(3, 12), Pattern(2, 4), 1, seeded(0))
