"""Training with fixed masks: gradients of kept values alone, and products that follow every step."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import louver
import louver.torch
from support.torch_weights import PATTERNS, close, sparse_weight

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

from torch.utils.checkpoint import checkpoint  # noqa: E402

from louver.formats.pattern import Pattern  # noqa: E402
from louver.torch import columns  # noqa: E402
from louver.torch.core import cores  # noqa: E402
from louver.torch.linear import SparseLinear  # noqa: E402
from louver.torch.operators import OPS  # noqa: E402

nn = torch.nn


def model(transposable: bool, dtype: Any = torch.float32) -> Any:
    torch.manual_seed(31)
    made = nn.Sequential(nn.Linear(40, 52), nn.GELU(), nn.Linear(52, 24)).to(dtype)
    louver.torch.prune_(made, transposable=transposable)
    return made


def trained(made: Any, run: Any, optimizer: Any, steps: int = 4) -> list[Any]:
    """The outputs and gradients of x of some steps."""
    draw, seen = torch.Generator().manual_seed(3), []
    for _ in range(steps):
        x = torch.randn(2, 7, 40, generator=draw).to(next(made.parameters()).dtype).requires_grad_()
        y = run(x)
        optimizer.zero_grad()
        y.float().square().mean().backward()
        seen += [y.detach(), x.grad]
        optimizer.step()
    return seen


@pytest.mark.parametrize("transposable", [False, True])
@pytest.mark.parametrize("options", [{"foreach": True}, {"fused": True}, {"foreach": False}])
def test_steps_are_those_of_a_dense_model_with_masks(transposable: bool, options: dict[str, bool]) -> None:
    dense = model(transposable)
    sparse = copy.deepcopy(dense)
    louver.torch.compress_(sparse, force=True)
    masks = {layer: layer.weight.detach() != 0 for layer in dense if isinstance(layer, nn.Linear)}
    for layer, mask in masks.items():
        layer.weight.register_hook(lambda g, mask=mask: g * mask)
    before = [each.clone() for name, each in sparse.named_parameters() if name.endswith("indices")]
    results: list[list[Any]] = []
    for made in (dense, sparse):
        trains = [each for each in made.parameters() if each.requires_grad]
        # Not AdamW: its decay would be that of the masked places too, which are zero.
        results.append(trained(made, made, torch.optim.Adam(trains, lr=0.02, **options)))
    for wanted, mine in zip(*results, strict=True):
        close(torch, mine, wanted, 1e-4)
    assert not torch.equal(results[0][0], results[0][-2])
    after = [each for name, each in sparse.named_parameters() if name.endswith("indices")]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    louver.torch.decompress_(sparse)
    for mine, wanted, mask in zip((sparse[0], sparse[2]), (dense[0], dense[2]), masks.values(), strict=True):
        close(torch, mine.weight, wanted.weight, 1e-4)
        assert not mine.weight.detach()[~mask].any()


def test_gradients_and_optimizer_states_are_of_the_kept_values() -> None:
    made = model(True)
    louver.torch.compress_(made, force=True)
    optimizer = torch.optim.AdamW([each for each in made.parameters() if each.requires_grad])
    trained(made, made, optimizer, 1)
    for layer, size in ((made[0], 52 * 40), (made[2], 24 * 52)):
        values = layer.weight.values
        assert values.grad.shape == values.shape and values.grad.is_contiguous() and values.numel() == size // 2
        assert optimizer.state[values]["exp_avg"].shape == values.shape
        assert layer.weight.indices.grad is None and layer.weight.indices not in optimizer.state


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("how", ["checkpointed", "compiled", "compiled and checkpointed"])
def test_checkpoints_and_compilation_change_nothing(how: str, dtype: Any) -> None:
    plain = model(True, dtype)
    louver.torch.compress_(plain, force=True)
    other = copy.deepcopy(plain)
    run: Any = other
    if "checkpointed" in how:

        def run(x: Any) -> Any:
            return checkpoint(other, x, use_reentrant=False)

    if "compiled" in how:
        run = torch.compile(run, backend="aot_eager", fullgraph=True)
    results = [
        trained(made, call, torch.optim.SGD([each for each in made.parameters() if each.requires_grad], lr=0.3))
        for made, call in ((plain, plain), (other, run))
    ]
    for wanted, mine in zip(*results, strict=True):
        close(torch, mine, wanted, 1e-6 if dtype == torch.float32 else 0.02)


# --- the kept elements of a product --------------------------------------------------------------------------------------
@pytest.mark.parametrize(("pattern", "dtype"), PATTERNS)
@pytest.mark.parametrize(("rows", "size"), [(600, 48), (259, 41), (3, 16)])
def test_sampled_in_blocks_of_rows(
    pattern: str, dtype: str, rows: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "BLOCK_BYTES", 4096)
    w = sparse_weight(torch, rows, size, pattern, dtype)
    g, x = (torch.randn(5, each).to(w.values.dtype) for each in (rows, size))
    y = OPS.sampled(g, x, w.indices, pattern)
    assert y.shape == w.values.shape and y.is_contiguous() and y.dtype == g.dtype
    close(torch, y, OPS.take(g.t() @ x, w.indices, pattern), 1e-6)


def test_blocks_bound_the_dense_product(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    take = columns.taken

    def counted(dense: Any, *others: Any) -> Any:
        sizes.append(dense.numel() * dense.itemsize)
        return take(dense, *others)

    monkeypatch.setattr(columns, "taken", counted)
    monkeypatch.setattr(columns, "BLOCK_BYTES", 1 << 17)
    w = sparse_weight(torch, 2000, 64, dtype="float32")
    columns.kept_products(torch.randn(3, 2000), torch.randn(3, 64), w.indices, Pattern(2, 4))
    assert len(sizes) == 4 and max(sizes) <= 1 << 17


def test_sampled_of_nothing() -> None:
    w = sparse_weight(torch, 8, 16, dtype="float32")
    assert not OPS.sampled(torch.zeros(0, 8), torch.zeros(0, 16), w.indices).any()


@pytest.mark.parametrize("pattern", ["2:4", "4:8@4"])
def test_sampled_passes_opcheck(pattern: str) -> None:
    w = sparse_weight(torch, 24, 40, pattern, "float32")
    g, x = torch.randn(5, 24, requires_grad=True), torch.randn(5, 40, requires_grad=True)
    torch.library.opcheck(OPS.sampled.default, (g, x, w.indices, pattern))


def test_second_derivatives_of_values() -> None:
    w = sparse_weight(torch, 24, 40, dtype="float32")
    x, values = torch.randn(5, 40, requires_grad=True), w.values.clone().requires_grad_()
    dense = OPS.dense(values, w.indices, 40)
    found: list[Any] = []
    for y in (OPS.linear(x, values, w.indices), x @ dense.t()):
        (first,) = torch.autograd.grad(y.pow(3).sum(), values, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), (x, values), retain_graph=True))
    for mine, wanted in zip(*found, strict=True):
        close(torch, mine, wanted, 1e-4)


@pytest.mark.parametrize(
    ("g", "x", "message"),
    [
        (
            torch.ones(5, 24),
            torch.ones(4, 40),
            r"\[tokens, rows\] and \[tokens, size\] of one type, got torch.float32 \[5, 24\]",
        ),
        (torch.ones(5, 24).half(), torch.ones(5, 40), r"of one type, got torch.float16 \[5, 24\] and torch.float32"),
        (torch.ones(24), torch.ones(5, 40), r"\[tokens, rows\] and \[tokens, size\]"),
        (torch.ones(5, 20), torch.ones(5, 40), r"indices of 2:4 for a weight \[20, 40\] are uint8 of shape \[20, 5\]"),
        (torch.ones(5, 24), torch.ones(5, 48), r"indices of 2:4 for a weight \[24, 48\] are uint8 of shape \[24, 6\]"),
    ],
)
def test_bad_operands_of_sampled_name_the_rule(g: Any, x: Any, message: str) -> None:
    w = sparse_weight(torch, 24, 40, dtype="float32")
    with pytest.raises(ValueError, match=message):
        OPS.sampled(g, x, w.indices)
    with pytest.raises(ValueError, match=r"the dense matrix is \[rows, size\], got shape \[40\]"):
        OPS.take(torch.ones(40), w.indices)
    with pytest.raises(ValueError, match=r"for a weight \[24, 44\] are uint8 of shape \[24, 6\], got torch.uint8"):
        OPS.take(torch.ones(24, 44), w.indices)


def test_a_weight_in_a_captured_backward_pass_is_not_rewritten() -> None:
    mine, other = (SparseLinear.of(model(True)[0]).requires_grad_(False) for _ in range(2))
    with torch.no_grad():
        other.weight.values.mul_(2)
    before = mine.weight.dense()
    mine(torch.randn(3, 40))
    # As a capture on a GPU leaves it.
    cores().core(*mine.weight.tensors()[0][:2], "2:4", 40).turned.captured = True
    with pytest.raises(
        RuntimeError, match="a weight whose gradients a CUDA graph captured keeps its mask, got a write"
    ):
        mine.weight.rewrite_(other.weight)
    assert torch.equal(mine.weight.dense(), before)


def test_masks_are_read_again_when_indices_are_rewritten() -> None:
    """`rewrite_` counts no write, and the transpose's indices follow it."""
    layers = [model(both)[0] for both in (True, True, False)]
    weights = [SparseLinear.of(layer).weight for layer in layers]
    mine = SparseLinear.of(layers[0])
    mine.weight.requires_grad_(False)
    for weight, layer, both in zip(weights, layers, (True, True, False), strict=True):
        mine.weight.rewrite_(weight)
        assert mine.weight.is_transposable == both
        x = torch.randn(3, 40, requires_grad=True)
        mine(x).backward(g := torch.randn(3, 52))
        close(torch, x.grad, g @ layer.weight.detach(), 1e-5)
