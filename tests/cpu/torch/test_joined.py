"""Layers with one input as one product: proven from the source of the block, equal in all that a caller sees."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

import louver.torch
from support.torch_weights import close

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

from louver.torch import blocks  # noqa: E402
from louver.torch.blocks import JoinedBlock  # noqa: E402
from louver.torch.linear import SparseLinear  # noqa: E402
from support.attention import WIDTH, Attention, apart, joined, model, shaped, tokens  # noqa: E402

nn, functional = torch.nn, torch.nn.functional


def products(run: Callable[[], Any]) -> int:
    """The number of products with sparse weights that a call makes, as operators see them."""

    class Count(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
        count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.count += func.namespace == "louver"
            return func(*args, **(kwargs or {}))

    with Count() as counter:
        run()
    return counter.count


@pytest.mark.parametrize("bias", [False, True])
def test_one_product_of_equal_values(bias: bool) -> None:
    made = model(Attention(bias))
    dense, x = made.state_dict(), tokens()
    expected = made(x)
    report = joined(made)
    assert isinstance(made[0], JoinedBlock) and isinstance(made[0], Attention) and type(made[0]).__name__ == "Attention"
    assert report["0.q"].reason.endswith("swapped without timing; one product with k and v")
    assert report["0.o"].reason.endswith("swapped without timing")
    close(torch, made(x), expected, 0.03)
    with torch.no_grad():
        assert products(lambda: made(x)) == 2
        assert torch.equal(made(x), apart(made)(x))
    louver.torch.decompress_(made)
    assert type(made[0]) is Attention and made.state_dict().keys() == dense.keys()
    assert all(torch.equal(each, dense[name]) for name, each in made.state_dict().items())
    assert torch.equal(made(x), expected)


@pytest.mark.parametrize("missing", ["k", "q"])
def test_unequal_layers(missing: str) -> None:
    block = Attention(bias=True)
    getattr(block, missing).bias = None
    made = model(block)
    expected = made(tokens())
    report = joined(made)
    assert report["0.q"].reason.endswith("one product with k and v")
    close(torch, made(tokens()), expected, 0.03)
    for change in ("type", "pattern", "training", "bias"):
        block = Attention(bias=True)
        made = model(block)
        if change == "type":
            block.v.half()
        elif change == "pattern":
            louver.torch.prune_(made, "2:8", skip=("0.[!v]",))
        elif change == "training":
            block.v.weight.requires_grad_(False)
        else:
            block.v.bias = nn.Parameter(block.v.bias.detach().float())
        report = louver.torch.compress_(
            made, patterns=("2:4", "2:8") if change != "pattern" else ("2:8", "2:4"), force=True
        )
        assert block.plan.groups == (("k", "q"),), change
        assert report["0.v"].reason.endswith("not joined: it differs in type, device, pattern or training"), change


def test_windows_of_rows() -> None:
    made = model(Attention())
    louver.torch.prune_(made, "4:8@16")
    expected = made(tokens())
    report = louver.torch.compress_(made, patterns=("4:8@16",), force=True)
    assert report["0.k"].reason.endswith("not joined: its rows are no multiple of 16")
    assert made[0].plan.groups == (("q", "v"),)
    close(torch, made(tokens()), expected, 0.03)
    x = tokens()
    close(torch, made[0].v(x), x @ made[0].v.weight.dense().t(), 0.03)


def test_state_dicts_copies_and_pickles() -> None:
    made = model()
    expected = [name for name in made.state_dict() if "norm" not in name]
    joined(made)
    plain = apart(made)
    mine, theirs = made.state_dict(), plain.state_dict()
    assert list(mine) == list(theirs) and all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert {name.replace(".values", "").replace(".indices", "") for name in mine if "norm" not in name} == set(expected)
    x = tokens()
    y = made(x)
    for copied in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert type(copied[0]) is type(made[0]) is type(made[1])
        assert torch.equal(copied(x), y)
        with torch.no_grad():
            copied[0].v.weight.values.mul_(2)
        assert not torch.equal(copied(x), y) and torch.equal(made(x), y)
        copied.load_state_dict(mine)
        assert torch.equal(copied(x), y) and torch.equal(copied[0].v(x), made[0].v(x))
        louver.torch.decompress_(copied)
        assert type(copied[0]) is Attention
    state = made.state_dict()
    with pytest.raises(RuntimeError, match=r"0.v.weight.values has shape \[24, 24\], got \[8, 24\]"):
        made.load_state_dict({**state, "0.v.weight.values": state["0.v.weight.values"][:8]})


def test_a_pickle_of_another_source() -> None:
    made = model(Attention())
    joined(made)
    text = pickle.dumps(made)
    before = Attention.forward
    blocks._class.cache_clear()
    try:
        Attention.forward = Attention.attend
        with pytest.raises(Exception, match=r"the source of Attention.forward is not that of the joined block"):
            pickle.loads(text)
    finally:
        Attention.forward = before


def test_members_alone_and_writes() -> None:
    made = model(Attention(bias=True))
    x = tokens()
    expected = [getattr(made[0], name)(x) for name in "qkv"]
    joined(made)
    for name, wanted in zip("qkv", expected, strict=True):
        close(torch, getattr(made[0], name)(x), wanted, 0.03)
    before = made(x)
    for name in "qkv":
        weight = getattr(made[0], name).weight
        weight.values.data.mul_(2)
        weight.refresh_()
        close(torch, getattr(made[0], name)(x) - getattr(made[0], name).bias, x @ weight.dense().t(), 0.03)
    assert louver.torch.verify(made) == {}
    assert not torch.equal(made(x), before) and torch.equal(made(x), apart(made)(x))


def test_hooks_and_adapters_afterwards() -> None:
    class Adapter(nn.Module):
        def __init__(self, base: Any) -> None:
            super().__init__()
            self.base, self.added = base, nn.Linear(WIDTH, base.out_features, bias=False).bfloat16()

        def forward(self, x: Any) -> Any:
            return self.base(x) + self.added(x)

    made = model(Attention())
    joined(made)
    x, seen = tokens(), []
    expected = made(x)
    for name in ("q", "k_norm"):
        handle = getattr(made[0], name).register_forward_hook(lambda _, given, y: seen.append(y.shape))
        close(torch, made(x), expected, 0.03)
        handle.remove()
    made(x)
    assert len(seen) == 2
    plain = apart(made)
    for each in (made, plain):
        each[0].q = Adapter(each[0].q)
    plain[0].q.added = made[0].q.added
    assert torch.equal(made(x), plain(x))
    for each in (made, plain):
        each[0].k_norm = nn.Identity()
    assert torch.equal(made(x), plain(x))
    louver.torch.decompress_(made)
    assert type(made[0]) is Attention and type(made[0].q.base) is nn.Linear


def test_members_of_another_block() -> None:
    made = model()
    joined(made)
    plain = apart(made)
    for each in (made, plain):
        each[0].q = each[1].q
    assert torch.equal(made(tokens()), plain(tokens()))


def test_hooks_before() -> None:
    made = model(Attention())
    made[0].k_norm.register_forward_hook(lambda *_: None)
    said = joined(made)["0.v"].reason
    assert said.endswith("not joined: self.k_norm is called between them, and has hooks or is no child"), said


def test_gradients_and_an_optimizer() -> None:
    made = model(Attention(bias=True), dtype=torch.float32)
    joined(made)
    plain = apart(made)
    x = tokens().float()
    for each in (made, plain):
        optimizer = torch.optim.SGD([p for p in each.parameters() if p.requires_grad], lr=0.1)
        each(x).square().sum().backward()
        optimizer.step()
    for name, wanted in plain.state_dict().items():
        torch.testing.assert_close(made.state_dict()[name], wanted, msg=name)
    close(torch, made(x), plain(x), 1e-4)


class Rotated(Attention):
    """Writes to the outputs of its layers, as rotations in place do."""

    def forward(self, x: Any, mask: Any = None) -> Any:
        q, k, v = self.q(x), self.k(x), self.v(x)
        y = v.exp()
        q.mul_(2)
        k[..., :4] = 0
        return self.attend(x, shaped(q), shaped(k), shaped(v + y))


class Merged(Attention):
    """Views that only contiguous outputs have."""

    def forward(self, x: Any, mask: Any = None) -> Any:
        q = self.q(x)
        k = self.k(x).view(-1)
        v = self.v(x)  # A view behind the last call.
        q = q.view(-1)
        v = v.view(-1).view(torch.int16).view(v.dtype)
        return self.attend(x, *(shaped(each.reshape(*x.shape[:-1], -1)) for each in (q, k, v)))


@pytest.mark.parametrize("kind", [Rotated, Merged])
def test_outputs_are_as_those_of_layers(kind: Any) -> None:
    made = model(kind(), dtype=torch.float32 if kind is Rotated else torch.bfloat16)
    x = tokens().to(made[0].o.weight.dtype)
    joined(made)
    plain = apart(made)
    for each in (made, plain):
        each(x).sum().backward()
    assert made[0].plan.groups == (("k", "q", "v"),)
    assert torch.equal(made(x), plain(x))
    torch.testing.assert_close(made[0].o.weight.values.grad, plain[0].o.weight.values.grad)


def test_threads() -> None:
    made = model(Attention())
    joined(made)
    inputs = [tokens() * (number + 1) for number in range(4)]
    expected = [made(x) for x in inputs]
    wrong: list[int] = []

    def run(number: int) -> None:
        with torch.inference_mode():
            for _ in range(20):
                if not torch.equal(made(inputs[number]), expected[number]):
                    wrong.append(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(inputs))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


@pytest.mark.parametrize("to", ["e4m3", "int8"])
def test_quantized(to: Any) -> None:
    made = model(Attention(bias=True))
    joined(made)
    plain = apart(made)
    for each in (made, plain):
        louver.torch.quantize_(each, to)
    x = tokens()
    assert torch.equal(made(x), plain(x)) and torch.equal(made[0].k(x), plain[0].k(x))
    mine, theirs = made.state_dict(), plain.state_dict()
    assert list(mine) == list(theirs) and all(torch.equal(mine[name], theirs[name]) for name in theirs)
    for each in (made, plain):
        louver.torch.decompress_(each)
    assert torch.equal(made(x), plain(x))


def test_types_autocast_and_meta() -> None:
    made = model()
    joined(made)
    with torch.autocast("cpu", torch.float16):
        y = made(tokens().float())
        assert torch.equal(y, apart(made)(tokens().float())) and y.dtype == torch.float16
    made.half()
    assert made(tokens().half()).dtype == torch.float16 and made[0].k.weight.dtype == torch.float16
    assert all(each.is_meta for each in copy.deepcopy(made).to("meta").state_dict().values())


def graphs(made: Any, inputs: list[Any], **options: Any) -> list[int]:
    """The number of products in each graph that a compiler gets."""
    from torch._functorch.aot_autograd import aot_module_simplified

    counts: list[int] = []

    def compiler(graph: Any, _: Any) -> Any:
        counts.append(sum("louver" in str(node.target) for node in graph.graph.nodes))
        return graph.forward

    def backend(module: Any, sample: Any) -> Any:
        return aot_module_simplified(module, sample, fw_compiler=compiler)

    torch._dynamo.reset()
    if isinstance(made, nn.Sequential):
        for block in made:
            block.compile(fullgraph=True, backend=backend, **options)
    with torch.no_grad():
        for x in inputs:
            made(x)
    return counts


def test_compiled_is_one_product_and_one_graph_for_equal_blocks() -> None:
    made = model(Attention(), Attention(), Attention())
    joined(made)
    made.requires_grad_(False)
    x = tokens()
    expected = made(x)
    assert graphs(made, [x]) == [2]
    close(torch, made(x), expected, 0.01)
    assert graphs(made, [x, x[:, :3].contiguous(), x[:, :4].contiguous()]) == [2, 2]


def test_exported() -> None:
    made = model(Attention(bias=True))
    joined(made)
    x = tokens()
    assert torch.equal(torch.export.export(made, (x,)).module()(x), made(x))


def test_a_layer_of_its_own_is_sparse_too() -> None:
    made = model()
    joined(made)
    assert isinstance(made[0].o, SparseLinear) and made[0].o.weight.owner is made[0].o.weight
