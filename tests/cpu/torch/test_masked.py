"""`mask_`: gradients straight through masks that are chosen anew."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import louver
import louver.torch
from support.torch_weights import close

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

from louver.torch.linear import SparseLinear  # noqa: E402

nn = torch.nn


def model() -> Any:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(40, 52), nn.GELU(), nn.Linear(52, 24, bias=False))


def pruned(w: Any, transposable: bool) -> Any:
    return torch.from_numpy(np.array(louver.prune(w.detach().numpy(), "2:4", transposable=transposable)))


class Straight(torch.autograd.Function):
    """The definition: SR-STE of a dense weight, equation 6."""

    @staticmethod
    def forward(ctx: Any, w: Any, mask: Any, decay: float) -> Any:
        ctx.save_for_backward(w, mask)
        ctx.decay = decay
        return w * mask

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        w, mask = ctx.saved_tensors
        return g + ctx.decay * ~mask * w, None, None


@pytest.mark.parametrize("transposable", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.03])
@pytest.mark.parametrize("compiled", [False, True])
def test_training_is_that_of_the_definition(transposable: bool, decay: float, compiled: bool) -> None:
    plain, made = model(), model()
    optimizer = torch.optim.AdamW(made.parameters(), lr=0.01, fused=True)
    masks = louver.torch.mask_(made, every=2, transposable=transposable, decay=decay)
    assert list(masks.layers) == ["0", "2"] and list(made.state_dict()) == [
        "0.weight",
        "0.bias",
        "0.indices",
        "2.weight",
        "2.indices",
    ]
    run = torch.compile(made, backend="aot_eager", fullgraph=True) if compiled else made
    other = torch.optim.AdamW(plain.parameters(), lr=0.01)
    chosen = [pruned(layer.weight, transposable) != 0 for layer in (plain[0], plain[2])]
    start, draw = [each.clone() for each in chosen], torch.Generator().manual_seed(8)
    for step in range(1, 7):
        x = torch.randn(2, 9, 40, generator=draw)
        mine, theirs = (x.clone().requires_grad_() for _ in range(2))
        first, second = (
            Straight.apply(layer.weight, mask, decay) for layer, mask in zip((plain[0], plain[2]), chosen, strict=True)
        )
        wanted = nn.functional.gelu(theirs @ first.t() + plain[0].bias) @ second.t()
        y = run(mine)
        close(torch, y, wanted, 1e-4)
        for each, result in ((optimizer, y), (other, wanted)):
            each.zero_grad()
            result.square().mean().backward()
            each.step()
        close(torch, mine.grad, theirs.grad, 1e-4)
        assert masks.step() == (step % 2 == 0)
        if step % 2 == 0:
            chosen = [pruned(layer.weight, transposable) != 0 for layer in (plain[0], plain[2])]
    for name, each in plain.named_parameters():
        close(torch, made.get_parameter(name), each, 1e-3)
    assert any(not torch.equal(old, new) for old, new in zip(start, chosen, strict=True))


@pytest.mark.parametrize("transposable", [False, True])
def test_settled_layers_are_sparse_and_equal(transposable: bool) -> None:
    made = model()
    with torch.no_grad():
        made[0].weight[::3, ::5] = 0
    masks = louver.torch.mask_(made, every=1, transposable=transposable)
    x = torch.randn(5, 40)
    before = made(x)
    masks.settle_()
    assert isinstance(made[0], SparseLinear) and isinstance(made[2], SparseLinear) and not masks.layers
    close(torch, made(x), before, 1e-6)
    assert made[0].weight.values.requires_grad and made[0].bias is not None and made[2].bias is None
    assert all(made[place].weight.is_transposable == transposable for place in (0, 2))
    louver.torch.decompress_(made)
    assert type(made[0]) is nn.Linear
    close(torch, made(x), before, 1e-6)


def test_it_learns_and_a_run_goes_on(tmp_path: Any) -> None:
    made = model()
    masks = louver.torch.mask_(made, every=3, transposable=True)
    optimizer = torch.optim.AdamW(made.parameters(), lr=0.01)
    teacher, draw = torch.randn(40, 24), torch.Generator().manual_seed(8)
    losses: list[float] = []
    for _ in range(60):
        x = torch.randn(64, 40, generator=draw)
        loss = (made(x) - x @ teacher).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        masks.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0] and masks.steps == 60
    torch.save(made.state_dict(), tmp_path / "state.pt")
    again = model()
    louver.torch.mask_(again, every=3, transposable=True).steps = 60
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    x = torch.randn(5, 40)
    assert torch.equal(again(x), made(x))
    assert torch.equal(copy.deepcopy(made)(x), made(x))


def test_autocast_multiplies_in_16_bits_and_trains_f32() -> None:
    made, x = model(), torch.randn(5, 40, requires_grad=True)
    louver.torch.mask_(made, every=1)
    whole = made(x)
    with torch.autocast("cpu", torch.bfloat16):
        y = made(x)
    assert y.dtype == torch.bfloat16
    close(torch, y, whole, 0.05)
    y.float().square().mean().backward()
    assert all(each.grad.dtype == torch.float32 for each in (x, *made.parameters()))
    close(torch, made(x), whole, 1e-6)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"every": 0}, ValueError, "every is a number of steps, 1 or more, got 0"),
        ({"every": 2.0}, ValueError, "every is a number of steps, 1 or more, got 2.0"),
        ({"every": 1, "decay": -1.0}, ValueError, "decay is 0 or more, got -1.0"),
        ({"every": 1, "transposable": True, "pattern": "4:8"}, ValueError, "transposable masks are 2:4, got 4:8"),
        ({"every": 1, "transposable": 1}, TypeError, "transposable is True or False, got an object of type int"),
        ({"every": 1, "pattern": "2:3:4"}, ValueError, "2:3:4"),
        (
            {"every": 1, "skip": ("*",)},
            ValueError,
            r"(?s)no linear layer is left to mask by 2:4, got.*0: skipped by '\*'",
        ),
    ],
)
def test_bad_arguments_change_nothing(options: dict[str, Any], error: type[Exception], message: str) -> None:
    made = model()
    with pytest.raises(error, match=message):
        louver.torch.mask_(made, **options)
    assert type(made[0]) is nn.Linear


def test_layers_that_stay_say_why() -> None:
    made = nn.Sequential(nn.Linear(8, 8).half())
    made[0].weight = nn.Parameter(made[0].weight.detach().to(torch.float8_e4m3fn), False)
    with pytest.raises(ValueError, match="its weight is of torch.float8_e4m3fn: train it in 16 or 32 bits"):
        louver.torch.mask_(made, every=1)
    louver.torch.mask_(made := model(), every=1)
    with pytest.raises(ValueError, match="it is a MaskedLinear, not a torch.nn.Linear"):
        louver.torch.mask_(made, every=1)


def test_a_layer_in_two_places_stays_one_when_it_settles() -> None:
    made = model()
    made.append(nn.Linear(24, 24))
    made.append(made[3])
    masks = louver.torch.mask_(made, every=1)
    assert made[3] is made[4]
    x = torch.randn(5, 40)
    before = made(x)
    masks.settle_()
    assert isinstance(made[3], SparseLinear) and made[3] is made[4]
    close(torch, made(x), before, 1e-6)


def test_a_first_product_in_inference_mode_leaves_the_layer_to_train() -> None:
    made, x = model(), torch.randn(5, 40)
    masks = louver.torch.mask_(made, every=1)
    with torch.autocast("cpu", torch.bfloat16):
        with torch.inference_mode():
            before = made(x)
        y = made(x)
    assert torch.equal(y, before)
    y.float().square().mean().backward()
    assert all(each.grad is not None for each in made.parameters())
    with torch.no_grad():
        made[0].weight.copy_(torch.randn(52, 40))
        masks.step()
    with torch.inference_mode():
        got = made[0](x)
    close(torch, got, x @ pruned(made[0].weight, False).t() + made[0].bias, 1e-6)


def test_masks_of_weights_that_were_divided_since_are_refused() -> None:
    from torch.distributed.tensor import DTensor, Replicate

    made = model()
    masks = louver.torch.mask_(made, every=1)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = torch.distributed.init_device_mesh("cpu", (1,))
        placed = DTensor.from_local(made[2].weight.detach(), mesh, [Replicate()])
        made[2].weight = nn.Parameter(placed)
        for call in (masks.step, masks.settle_):
            with pytest.raises(TypeError, match=r"masks are chosen of whole weights, got 2 with a DTensor: take DDP"):
                call()
    finally:
        torch.distributed.destroy_process_group()
    assert masks.steps == 0 and not isinstance(made[0], SparseLinear)


def test_a_layer_with_hooks_does_not_settle() -> None:
    made = model()
    masks = louver.torch.mask_(made, every=1)
    hook = made[2].register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="a layer with hooks is not exchanged, got 2: remove them"):
        masks.settle_()
    hook.remove()
    masks.settle_()
    assert isinstance(made[2], SparseLinear)
