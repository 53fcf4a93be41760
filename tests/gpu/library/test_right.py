"""The sparse operand on the right, under capture and beside its transpose. `support.device_products.FORMS` has its products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from support.device_products import Form, dense_operand, to_numpy, to_torch
from support.products import assert_exact, operands


@pytest.mark.parametrize(("form", "layout"), [("right k_major", "k_major"), ("right n_major", "n_major")])
def test_a_graph_replays_it(rng: np.random.Generator, torch: Any, form: Form, layout: Any) -> None:
    given = operands(rng, 264, 40, 136)
    s, x, bias = given.s.T, dense_operand(form, given.b), to_torch(given.bias)
    y = torch.empty(40, 264, dtype=torch.float16, device="cuda")
    louver.prepare(s, n=40, bias=True, layout=layout)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        louver.matmul(x, s, y, bias=bias)
    for _ in range(3):
        y.fill_(float("nan"))
        graph.replay()
        assert_exact(to_numpy(y).T, given, bias=True)


def test_operators_and_options(rng: np.random.Generator, torch: Any) -> None:
    given = operands(rng, 264, 40, 136)
    s, x = given.s.T, to_torch(given.b.T)
    for _ in range(3):
        assert_exact(to_numpy(x @ s).T, given)
        y = louver.matmul(x, s, bias=to_torch(given.bias), activation="relu", out_dtype="f32")
        torch.testing.assert_close(y, torch.relu(x.float() @ to_torch(s.dense()).float() + to_torch(given.bias)))
    y = louver.matmul(x.reshape(2, 4, 5, 136), s)
    assert tuple(y.shape) == (2, 4, 5, 264)
    assert tuple(louver.matmul(x[:0], s).shape) == (0, 264)


def test_a_square_weight_is_not_taken_for_its_transpose(rng: np.random.Generator) -> None:
    given = operands(rng, 128, 128, 128)
    x = to_torch(given.b.T)
    for _ in range(2):
        assert_exact(to_numpy(louver.matmul(x, given.s.T)).T, given)
        assert_exact(to_numpy(louver.matmul(given.s, x.T)), given)
        for wrong in (lambda: louver.matmul(x, given.s), lambda: louver.linear(x, given.s.T)):
            with pytest.raises(ValueError, match="sparse along K"):
                wrong()
