"""Gradients of x: a sparse product where the mask keeps its pattern along the rows too, else a dense one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver
from support.torch_weights import close, sparse_weight

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

from louver.torch import turned  # noqa: E402
from louver.torch.core import compressed  # noqa: E402
from louver.torch.joined import JoinedWeight, MemberRows  # noqa: E402
from louver.torch.linear import SparseLinear, SparseWeight  # noqa: E402
from louver.torch.operators import OPS  # noqa: E402
from louver.torch.stacks import SparseStack  # noqa: E402

ROWS, SIZE = 24, 40


def transposable(rows: int = ROWS, size: int = SIZE, dtype: Any = torch.float32) -> Any:
    """A dense weight whose mask keeps 2:4 along both axes."""
    w = torch.from_numpy(louver.prune(torch.randn(rows, size).numpy(), "2:4", transposable=True)).to(dtype)
    assert (w != 0).sum() == rows * size // 2
    return w


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the transposed weights of sparse products."""
    seen: list[tuple[int, ...]] = []
    made = turned.borrowed

    def counted(*arrays: Any) -> Any:
        s = made(*arrays)
        seen.append(s.shape)
        return s

    monkeypatch.setattr(turned, "borrowed", counted)
    return seen


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_transposable_mask_has_a_sparse_gradient(dtype: Any, products: list[tuple[int, ...]]) -> None:
    w = transposable(dtype=dtype)
    layer = torch.nn.Linear(SIZE, ROWS, dtype=dtype)
    layer.weight = torch.nn.Parameter(w)
    sparse = SparseLinear.of(layer)
    assert sparse.weight.is_transposable
    grads: list[Any] = []
    for each in (layer, sparse):
        x = torch.randn(2, 3, SIZE, generator=torch.Generator().manual_seed(2)).to(dtype).requires_grad_()
        each(x).float().square().sum().backward()
        grads.append(x.grad)
    close(torch, grads[1], grads[0], 1e-5 if dtype == torch.float32 else 0.02)
    assert products == [(SIZE, ROWS)]


@pytest.mark.parametrize("zeros", [1, 60])
@pytest.mark.parametrize(("rows", "size"), [(24, 40), (23, 44)])
def test_zeros_among_the_kept_values_leave_a_mask_transposable(rows: int, size: int, zeros: int) -> None:
    torch.manual_seed(zeros)
    w = torch.from_numpy(np.array(louver.prune(torch.randn(rows, size).numpy(), "2:4", transposable=True)))
    for row, column in w.nonzero()[torch.randperm(len(w.nonzero()))[:zeros]].tolist():
        w[row, column] = 0
    w[tuple((w == 0).nonzero().t())] = torch.where(torch.rand(int((w == 0).sum())) < 0.3, -0.0, 0.0)
    weight = SparseWeight.of(w, "2:4")
    assert weight.is_transposable and torch.equal(weight.dense().detach(), w)
    # Each -0.0 is kept or counted.
    minus = torch.signbit(w) & (w == 0)
    kept = torch.signbit(weight.dense().detach()) & (w == 0)
    assert int(minus.sum()) - int(kept.sum()) == weight.negative_zeros_dropped > 0


@pytest.mark.parametrize("corner", [0, 1])
def test_no_value_is_lost_where_no_mask_with_two_places_a_row_has_all(corner: int) -> None:
    """Six non-zeros in a cycle fill three rows and columns, so the fourth ones have one common place for two."""
    cycle = torch.tensor([[0, 1, 1, 0], [1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 0, corner]])
    w = (cycle * (1 + torch.rand(4, 4))).repeat(ROWS // 4, SIZE // 4)
    w[4:8] = 0
    for given in (w, w.t().contiguous()):
        assert all(louver.check(given.numpy(), "2:4", axis=axis).ok for axis in (0, 1))
        assert torch.equal(SparseWeight.of(given, "2:4").dense(), given)


def test_another_mask_has_a_dense_gradient(products: list[tuple[int, ...]]) -> None:
    layer = SparseLinear(SIZE, ROWS)
    assert not layer.weight.is_transposable
    x = torch.randn(3, SIZE, requires_grad=True)
    y = layer(x)
    y.backward(g := torch.randn_like(y))
    close(torch, x.grad, g @ layer.weight.dense(), 1e-5)
    assert products == []


@pytest.mark.parametrize("by_turns", [False, True])
@pytest.mark.parametrize("both", [False, True])
def test_members_say_what_the_gradient_of_their_product_is(by_turns: bool, both: bool) -> None:
    other = transposable() if both else torch.from_numpy(np.array(louver.prune(torch.randn(ROWS, SIZE).numpy(), "2:4")))
    parts = [SparseWeight.of(each, "2:4") for each in (transposable(), other)]
    joint = JoinedWeight.joined(parts, by_turns=by_turns)
    assert [MemberRows(joint, part).is_transposable for part in (0, 1)] == [both, both]
    stack = SparseStack.of(torch.stack([each.dense().detach() for each in parts]), "2:4")
    assert not stack.is_transposable


def test_the_choice_is_of_the_places_not_of_the_values(products: list[tuple[int, ...]]) -> None:
    """Zeros among the kept values are no places that the mask leaves free: training may fill them."""
    w = sparse_weight(torch, ROWS, SIZE, dtype="float32")
    assert not turned.is_transposable(torch.zeros_like(w.values), w.indices, "2:4", SIZE)
    values, indices, _ = compressed(transposable(), "2:4")
    values[::2] = 0
    assert turned.is_transposable(values, indices, "2:4", SIZE)
    g = torch.randn(5, ROWS)
    close(torch, OPS.transposed(g, values, indices, SIZE), g @ OPS.dense(values, indices, SIZE), 1e-5)
    assert len(products) == 1


def test_gradients_follow_the_values_and_the_indices(products: list[tuple[int, ...]]) -> None:
    layer = SparseLinear(SIZE, ROWS)
    weights = [SparseWeight.of(transposable(), "2:4"), SparseWeight.of(transposable(), "2:4")]
    plain = SparseLinear(SIZE, ROWS).weight
    optimizer = torch.optim.SGD([layer.weight.values], lr=0.1)
    for weight, steps in ((weights[0], 2), (weights[1], 1), (plain, 1)):
        layer.weight.copy_(weight)
        for _ in range(steps):
            x = torch.randn(3, SIZE, requires_grad=True)
            y = layer(x)
            wanted = 2 * y.detach() @ layer.weight.dense().detach()
            optimizer.zero_grad()
            y.square().sum().backward()
            close(torch, x.grad, wanted, 1e-5)
            optimizer.step()
    assert len(products) == 3


@pytest.mark.parametrize(("rows", "size"), [(26, 40), (24, 42), (2, 40)])
def test_sizes_that_end_in_a_part_of_a_group(rows: int, size: int) -> None:
    w = sparse_weight(torch, rows, size, dtype="float32")
    g = torch.randn(5, rows)
    close(torch, OPS.transposed(g, *w.arrays, size), g @ w.dense, 1e-5)


@pytest.mark.parametrize("kind", ["e4m3", "int8"])
def test_quantized_weights(kind: str) -> None:
    from louver.torch.quantized import quantize_

    layer = torch.nn.Linear(SIZE, ROWS, dtype=torch.bfloat16)
    layer.weight = torch.nn.Parameter(transposable(dtype=torch.bfloat16))
    model = torch.nn.Sequential(SparseLinear.of(layer))
    quantize_(model, kind)
    assert model[0].weight.is_transposable
    x = torch.randn(3, SIZE).bfloat16().requires_grad_()
    y = model(x)
    y.backward(g := torch.randn_like(y))
    close(torch, x.grad, g @ model[0].weight.dense(), 0.03)


@pytest.mark.parametrize("both", [False, True])
def test_opcheck_and_second_derivatives(both: bool) -> None:
    values, indices, _ = compressed(transposable() if both else sparse_weight(torch, ROWS, SIZE).dense.float(), "2:4")
    g, values = torch.randn(5, ROWS, requires_grad=True), values.requires_grad_()
    torch.library.opcheck(OPS.transposed.default, (g, values, indices, SIZE, "2:4"))
    x = torch.randn(5, SIZE, requires_grad=True)
    (first,) = torch.autograd.grad(OPS.linear(x, values, indices).pow(3).sum(), x, create_graph=True)
    mine = torch.autograd.grad(first.square().sum(), (x, values))
    w = OPS.dense(values, indices, SIZE)
    (first,) = torch.autograd.grad((x @ w.t()).pow(3).sum(), x, create_graph=True)
    wanted = torch.autograd.grad(first.square().sum(), (x, values))
    for one, other in zip(mine, wanted, strict=True):
        close(torch, one, other, 1e-4)
