"""Gate and up projection as one product: proven by a trace, equal in all that a caller sees, undone by hooks."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest

import louver.torch
from support.torch_weights import close

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

from louver.torch.blocks import JoinedBlock, separate_  # noqa: E402
from louver.torch.joined import JoinedLinear  # noqa: E402
from louver.torch.linear import SparseLinear  # noqa: E402
from louver.torch.shared import Rows  # noqa: E402

nn, functional = torch.nn, torch.nn.functional
WIDTH, INNER = 48, 72


class Mlp(nn.Module):
    """A gated layer as many models have it."""

    def __init__(self, act: Any = None, bias: bool = False) -> None:
        super().__init__()
        self.up_proj, self.gate_proj = nn.Linear(WIDTH, INNER, bias), nn.Linear(WIDTH, INNER, bias)
        self.down_proj, self.act = nn.Linear(INNER, WIDTH, bias), act or nn.SiLU()

    def forward(self, x: Any) -> Any:
        return self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))


class Other(Mlp):
    """Blocks that are no gated layers, each in its own way."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def forward(self, x: Any) -> Any:
        gate, up = self.gate_proj(x), self.up_proj(x)
        if self.what == "added":
            return self.down_proj(functional.silu(gate) + up)
        if self.what == "dropout":
            gate = functional.dropout(gate, 0.5, self.training)
        if self.what == "scaled":
            gate = 3 * gate
        if self.what == "branches" and x.sum() > 0:
            return x
        if self.what == "keeps":
            self.last = gate
        if self.what == "activation":
            return self.down_proj(torch.tanh(gate) * up)
        if self.what == "both":
            return self.down_proj(functional.silu(gate) * up), gate
        y = self.down_proj(functional.silu(gate) * up)
        return y + x if self.what == "residual" else y


def model(*blocks: Any) -> Any:
    torch.manual_seed(21)
    made = nn.Sequential(*(blocks or (Mlp(), Mlp()))).bfloat16().eval()
    louver.torch.prune_(made)
    return made


def tokens() -> Any:
    return torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(3)).bfloat16()


def fused(made: Any) -> Any:
    return louver.torch.compress_(made, force=True)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("act", [nn.SiLU(), nn.ReLU(), nn.GELU(), nn.GELU("tanh"), nn.Identity()], ids=str)
def test_one_product_of_equal_values(act: Any, bias: bool) -> None:
    made = model(Mlp(act, bias))
    dense, x = made.state_dict(), tokens()
    expected = made(x)
    report = fused(made)
    assert isinstance(made[0], JoinedBlock) and isinstance(made[0], Mlp)
    assert report["0.gate_proj"].reason.endswith("swapped without timing; one product with up_proj")
    assert report["0.up_proj"].reason.endswith("; one product with gate_proj")
    close(torch, made(x), expected, 0.03)
    louver.torch.decompress_(made)
    assert type(made[0]) is Mlp and list(made[0]._modules) == ["up_proj", "gate_proj", "down_proj", "act"]
    assert made.state_dict().keys() == dense.keys()
    assert all(torch.equal(each, dense[name]) for name, each in made.state_dict().items())
    assert torch.equal(made(x), expected)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("added", r"its forward is not down\(act\(gate\(x\)\) · up\(x\)\)"),
        ("scaled", r"its forward is not down"),
        ("both", r"its forward is not down"),
        ("residual", r"its forward is not down"),
        ("dropout", r"its forward is not down"),
        ("branches", r"its forward cannot be traced \(TraceError\)"),
        ("keeps", r"its forward changes the block"),
        ("activation", r"Louver has no activation aten.tanh"),
    ],
)
def test_a_block_that_does_anything_else_is_no_gated_product(what: str, reason: str) -> None:
    made = model(Other(what))
    x = tokens()
    expected = made(x)
    report = fused(made)
    # Its source still says that both layers get one input.
    assert isinstance(made[0].plan, Rows)
    said = report["0.up_proj"].reason
    assert re.search(f"one product with gate_proj; not a gated product: {reason}", said), said
    assert report["0.gate_proj"].reason.endswith("one product with up_proj")
    for mine, wanted in zip(_all(made(x)), _all(expected), strict=True):
        close(torch, mine, wanted, 0.03)


class Ranks:
    """Ranks whose parts are summed. One rank alone has nothing to add."""

    def __init__(self) -> None:
        self.factor = 1

    def reduce(self, y: Any) -> Any:
        return y if self.factor == 1 else self.factor * y


class Reduce(nn.Module):
    """The same as a module without parameters."""

    def __init__(self, ranks: Ranks) -> None:
        super().__init__()
        self.ranks = ranks

    def forward(self, y: Any) -> Any:
        return y if self.ranks.factor == 1 else self.ranks.factor * y


class Reduced(Mlp):
    """A gated layer whose output is reduced by a method, a function, or a module."""

    def __init__(self, ranks: Ranks, by: str) -> None:
        super().__init__()
        self.ranks, self.by, self.sum = ranks, by, Reduce(ranks)

    def forward(self, x: Any) -> Any:
        y = self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))
        if self.by == "module":
            return self.sum(y)
        return self.ranks.reduce(y) if self.by == "method" else _reduced(y, self.ranks)


def _reduced(y: Any, ranks: Ranks) -> Any:
    return y if ranks.factor == 1 else ranks.factor * y


@pytest.mark.parametrize(
    ("by", "reason"),
    [
        ("method", r"its forward calls Ranks.reduce, which may do something else later"),
        ("function", r"its forward calls _reduced, which may"),
        ("module", r"its sum returns its argument, and may"),
    ],
)
def test_code_that_may_change_is_no_part_of_a_proof(by: str, reason: str) -> None:
    ranks = Ranks()
    made = model(Reduced(ranks, by))
    x = tokens()
    expected = made(x)
    report = fused(made)
    assert re.search(reason, report["0.up_proj"].reason)
    close(torch, made(x), expected, 0.03)
    ranks.factor = 2
    close(torch, made(x), 2 * expected, 0.03)


def test_a_write_to_the_input_stays() -> None:
    class Writes(Mlp):
        def forward(self, x: Any) -> Any:
            x.add_(1)
            return self.down_proj(self.gate_proj(x) * self.up_proj(x))

    made = model(Writes())
    x, before = tokens(), tokens()
    expected = made(tokens())
    fused(made)
    close(torch, made(x), expected, 0.03)
    assert torch.equal(x, before + 1)


def test_layers_of_different_inputs_stay_without_a_word() -> None:
    class Apart(Mlp):
        def forward(self, x: Any) -> Any:
            return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(2 * x))

    made = model(Apart())
    x = tokens()
    expected = made(x)
    report = fused(made)
    assert type(made[0]) is Apart and all(row.reason.endswith("without timing") for row in report)
    close(torch, made(x), expected, 0.03)


def _all(y: Any) -> tuple[Any, ...]:
    return y if isinstance(y, tuple) else (y,)


def test_a_state_dict_is_that_of_separate_weights() -> None:
    made = model()
    plain = copy.deepcopy(made)
    fused(made)
    for block in plain:
        for name in ("up_proj", "gate_proj", "down_proj"):
            setattr(block, name, SparseLinear.of(getattr(block, name)))
    mine, theirs = made.state_dict(), plain.state_dict()
    assert list(mine) == list(theirs)
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    torch.manual_seed(22)
    other = nn.Sequential(Mlp(), Mlp()).bfloat16().eval()
    louver.torch.prune_(other)
    expected = other(tokens())
    fused(other)
    before = made(tokens())
    made.load_state_dict(other.state_dict())
    close(torch, made(tokens()), expected, 0.03)
    assert not torch.equal(made(tokens()), before)
    separate_(other)
    plain.load_state_dict(other.state_dict())
    assert torch.equal(plain(tokens()), other(tokens()))


def test_a_bad_state_dict_names_the_key() -> None:
    made = model(Mlp())
    fused(made)
    state = made.state_dict()
    missing = {name: each for name, each in state.items() if name != "0.up_proj.weight.values"}
    with pytest.raises(RuntimeError, match=r"Missing key.*0.up_proj.weight.values"):
        made.load_state_dict(missing)
    with pytest.raises(RuntimeError, match=r"Unexpected key.*0.up_proj.weight.zero"):
        made.load_state_dict({**state, "0.up_proj.weight.zero": torch.zeros(1)})
    with pytest.raises(RuntimeError, match=r"0.up_proj.weight.values has shape \[72, 24\], got \[8, 24\]"):
        made.load_state_dict({**state, "0.up_proj.weight.values": state["0.up_proj.weight.values"][:8]})
    empty = copy.deepcopy(made).to("meta")
    with pytest.raises(
        RuntimeError, match=r"up_proj.weight.values is a part of a joined weight on the meta device.*to_empty"
    ):
        empty.load_state_dict(state, assign=True)
    empty = empty.to_empty(device="cpu")
    empty.load_state_dict(state)
    assert torch.equal(empty(tokens()), made(tokens()))


def test_copies_and_pickles() -> None:
    made = model()
    fused(made)
    x = tokens()
    expected = made(x)
    for copied in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert type(copied[0]) is type(made[0]) is type(made[1])
        assert torch.equal(copied(x), expected)
        with torch.no_grad():
            copied[0].gate_proj.weight.values.mul_(2)
        assert not torch.equal(copied(x), expected) and torch.equal(made(x), expected)
        louver.torch.decompress_(copied)
        assert type(copied[0]) is Mlp


def test_writes_to_a_member_change_the_product() -> None:
    made = model(Mlp(nn.Identity()))
    fused(made)
    x = tokens()
    expected = made(x)
    with torch.no_grad():
        made[0].up_proj.weight.values.mul_(2)
    assert torch.equal(made(x), 2 * expected)
    made[0].up_proj.weight.values.data.mul_(0.5)
    made[0].up_proj.weight.refresh_()
    assert torch.equal(made(x), expected) and louver.torch.verify(made) == {}
    weight = SparseLinear.of(nn.Linear(WIDTH, INNER).bfloat16(), prune=True).weight
    made[0].gate_proj.weight.copy_(weight)
    assert torch.equal(made[0].gate_proj.weight.dense(), weight.dense())


def test_types_and_devices() -> None:
    made = model()
    fused(made)
    made.half()
    assert made(tokens().half()).dtype == torch.float16
    assert made[0].gate_proj.weight.dtype == torch.float16
    assert all(each.is_meta for each in copy.deepcopy(made).to("meta").state_dict().values())


def test_a_member_that_is_called_alone_gives_its_own_outputs() -> None:
    made = model(Mlp(bias=True))
    x = tokens()
    expected = made[0].gate_proj(x), made[0].up_proj(x)
    fused(made)
    for mine, wanted in zip((made[0].gate_proj(x), made[0].up_proj(x)), expected, strict=True):
        close(torch, mine, wanted, 0.03)


def test_a_hook_before_the_swap_turns_fusion_off() -> None:
    made = model(Mlp())
    made[0].act.register_forward_hook(lambda *_: None)
    report = fused(made)
    assert report["0.up_proj"].reason.endswith("not a gated product: act has hooks")
    made = model(Mlp())
    made[0].gate_proj.register_forward_hook(lambda *_: None)
    assert fused(made)["0.gate_proj"].done == "dense" and type(made[0]) is Mlp


def test_a_hook_after_the_swap_is_called() -> None:
    made = model(Mlp())
    x = tokens()
    expected = made(x)
    fused(made)
    seen = []
    handle = made[0].up_proj.register_forward_hook(lambda _, given, y: seen.append(y.shape))
    close(torch, made(x), expected, 0.03)
    handle.remove()
    made(x)
    everywhere = nn.modules.module.register_module_forward_hook(
        lambda module, *_: seen.append(1) if type(module) is JoinedLinear else None
    )
    made(x)
    everywhere.remove()
    assert seen == [(2, 5, INNER), 1, 1]


def test_an_adapter_in_the_place_of_a_member() -> None:
    class Adapter(nn.Module):
        def __init__(self, base: Any) -> None:
            super().__init__()
            self.base, self.added = base, nn.Linear(WIDTH, INNER, bias=False).bfloat16()

        def forward(self, x: Any) -> Any:
            return self.base(x) + self.added(x)

    made = model(Mlp())
    plain = copy.deepcopy(made)
    fused(made)
    made[0].gate_proj = Adapter(made[0].gate_proj)
    plain[0].gate_proj = Adapter(plain[0].gate_proj)
    plain[0].gate_proj.added = made[0].gate_proj.added
    close(torch, made(tokens()), plain(tokens()), 0.03)
    dense = plain[0].gate_proj.base.weight
    louver.torch.decompress_(made)
    assert type(made[0]) is Mlp and torch.equal(made[0].gate_proj.base.weight, dense)


def test_gradients_and_an_optimizer() -> None:
    made = model(Mlp(bias=True)).float()
    plain = copy.deepcopy(made)
    fused(made)
    for name in ("up_proj", "gate_proj", "down_proj"):
        setattr(plain[0], name, SparseLinear.of(getattr(plain[0], name)))
    x = tokens().float()
    for each in (made, plain):
        optimizer = torch.optim.SGD([p for p in each.parameters() if p.requires_grad], lr=0.5)
        each(x).square().sum().backward()
        optimizer.step()
    for name, wanted in plain.state_dict().items():
        torch.testing.assert_close(made.state_dict()[name], wanted, msg=name)
    close(torch, made(x), plain(x), 1e-4)


def test_compiled_in_one_graph() -> None:
    made = model()
    fused(made)
    torch._dynamo.reset()
    compiled = torch.compile(made, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        x = tokens()
        assert torch.equal(compiled(x), made(x))
        assert torch.equal(compiled(x[:, :3]), made(x[:, :3]))


def test_exported_and_called_with_other_parameters() -> None:
    made = model(Mlp(bias=True))
    fused(made)
    x = tokens()
    assert torch.equal(torch.export.export(made, (x,)).module()(x), made(x))
    others = {name: each.detach().clone() for name, each in made.named_parameters()}
    others["0.louver_joined_0.values"] *= 2
    once, twice = made(x), torch.func.functional_call(made, others, (x,))
    with torch.no_grad():
        made[0].gate_proj.weight.values.mul_(2)
        made[0].up_proj.weight.values.mul_(2)
    assert torch.equal(twice, made(x)) and not torch.equal(twice, once)


def test_layers_in_two_places_or_of_odd_sizes_stay() -> None:
    made = model(Mlp())
    made.again = made[0].up_proj
    assert fused(made)["0.up_proj"].reason.endswith("not a gated product: up_proj is in 2 places")
    block = Mlp()
    block.up_proj, block.gate_proj = nn.Linear(WIDTH, 36), nn.Linear(WIDTH, 36)
    block.down_proj = nn.Linear(36, WIDTH)
    said = fused(model(block))["0.up_proj"].reason
    assert said.endswith("one product with gate_proj; not a gated product: 36 rows are no multiple of 8")
    made = model(Mlp())
    louver.torch.prune_(made, "2:8@V16")
    report = louver.torch.compress_(made, patterns=("2:8@V16",), force=True)
    assert "not a gated product: there is no gated product of 2:8@V16" in report["0.up_proj"].reason
