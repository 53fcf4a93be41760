"""Products of a block that runs: found by their weights' memory, with the order in which they depend on each other."""

from __future__ import annotations

from typing import Any

import pytest

from support.tiny_models import ids, tiny

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")

from louver.torch.accuracy.blocks import Capture, Resident, find_chains, outputs, run, stream  # noqa: E402
from louver.torch.accuracy.products import Collect, Part, Stop, Trace, Weights  # noqa: E402

nn = torch.nn
functional = nn.functional


def traced(block: Any, arguments: Any, names: list[str] | None = None) -> Any:
    parameters = dict(block.named_parameters())
    chosen = names or [name for name, p in parameters.items() if p.dim() > 1]
    trace = Trace(Weights({name: parameters[name] for name in chosen}))
    given = [leaf for leaf in outputs(arguments) if torch.is_tensor(leaf)]
    trace.begin(stream(given).shape, (given, list(parameters.values()), list(block.buffers())))
    with torch.no_grad(), trace:
        run(block, {}, arguments)
    trace.end()
    return trace


def block_of(kind: str, chain: int = 0) -> Any:
    model = tiny(torch, transformers, kind)
    found = find_chains(model)[chain]
    call = Capture(model, found, Resident(model, found), torch.device("cpu")).calls(ids(torch, 2, 7))[0]
    return model.get_submodule(found.names[0]), call.arguments([], torch.device("cpu"))


def short(levels: dict[str, int]) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for name, level in levels.items():
        found.setdefault(level, set()).add(name.removesuffix(".weight").split(".")[-1])
    return found


@pytest.mark.parametrize(
    ("kind", "chain", "levels", "parts"),
    [
        ("llama", 0, {1: "q_proj k_proj v_proj", 2: "o_proj", 3: "gate_proj up_proj", 4: "down_proj"}, [2, 4]),
        ("gpt2", 0, {1: "c_attn", 2: "c_proj", 3: "c_fc", 4: "c_proj"}, [2, 4]),
        ("bert", 0, {1: "query key value", 2: "dense", 3: "dense", 4: "dense"}, [2, 4]),
        ("t5", 1, {1: "q k v", 2: "o", 3: "q", 4: "o", 5: "wi", 6: "wo"}, [2, 4, 6]),
    ],
)
def test_levels_follow_from_the_flow_of_data(kind: str, chain: int, levels: dict[int, str], parts: list[int]) -> None:
    trace = traced(*block_of(kind, chain))
    assert short(trace.levels) == {level: set(names.split()) for level, names in levels.items()}
    assert [part.level for part in trace.parts] == parts and [part.add for part in trace.parts] == list(
        range(len(parts))
    )
    assert set(trace.counts.values()) == {1} and not trace.selected
    assert set(trace.turned.values()) == {kind == "gpt2"}


def test_weights_of_one_input_share_a_source() -> None:
    sources = traced(*block_of("llama")).sources
    shared = {source: sorted(n.split(".")[1] for n in sources if sources[n] == source) for source in sources.values()}
    assert sorted(shared.values()) == [
        ["down_proj"],
        ["gate_proj", "up_proj"],
        ["k_proj", "q_proj", "v_proj"],
        ["o_proj"],
    ]


@pytest.mark.parametrize("implementation", ["grouped_mm", "eager"])
def test_experts_in_stacks_are_seen_one_by_one(implementation: str) -> None:
    block, arguments = block_of("qwen2_moe")
    block.mlp.experts.config._experts_implementation = implementation
    names = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj", "mlp.shared_expert.down_proj.weight"]
    trace = traced(block, arguments, names)
    assert [trace.levels[name] for name in names] == [1, 2, 1]
    assert trace.selected == set(names[:2])
    seen: dict[tuple[str, int | None], Any] = {}
    weights = Weights({name: dict(block.named_parameters())[name] for name in names})
    inputs: list[Any] = []
    handle = block.mlp.experts.register_forward_pre_hook(lambda module, args: inputs.extend(args))
    with torch.no_grad(), Collect(weights, dict.fromkeys(names), lambda p: seen.setdefault((p.name, p.expert), p.x)):
        run(block, {}, arguments)
    handle.remove()
    hidden, chosen, _ = inputs
    for expert in range(4):
        tokens = hidden[(chosen == expert).any(1)]
        assert torch.equal(seen[names[0], expert].sort(0).values, tokens.sort(0).values)
        gate, up = functional.linear(tokens, block.mlp.experts.gate_up_proj[expert]).chunk(2, -1)
        torch.testing.assert_close(seen[names[1], expert].sort(0).values, (functional.silu(gate) * up).sort(0).values)


class Forms(nn.Module):
    """Products in all forms that PyTorch has, on one weight each."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.turned = nn.Parameter(torch.randn(6, 5)), nn.Parameter(torch.randn(5, 6))
        self.stack = nn.Parameter(torch.randn(3, 5, 6))

    def forward(self, x: Any) -> Any:
        batched = torch.bmm(x.expand(3, *x.shape), self.stack)
        one = functional.linear(x, self.linear) + x @ self.linear.t() + torch.mm(x, self.turned)
        return one + torch.addmm(one, x, self.turned) + batched.sum(0) + x @ self.stack[1]


def test_all_forms_of_products() -> None:
    module, x = Forms(), torch.randn(4, 5)
    seen: list[Any] = []
    names = ("linear", "turned", "stack")
    with Collect(Weights({name: getattr(module, name) for name in names}), dict.fromkeys(names), seen.append):
        module(x)
    assert [(p.name, p.expert, p.turned) for p in seen] == [
        *(("stack", expert, True) for expert in range(3)),
        *(("linear", None, False),) * 2,
        *(("turned", None, True),) * 2,
        ("stack", 1, True),
    ]
    assert all(torch.equal(p.x, x) for p in seen)


def test_a_pass_ends_behind_the_last_wanted_product() -> None:
    block, arguments = block_of("llama")
    seen: list[str] = []
    weights = Weights({name: p for name, p in block.named_parameters() if p.dim() > 1})
    ran: list[str] = []
    for name, module in block.named_modules():
        module.register_forward_hook(lambda module, args, out, name=name: ran.append(name))
    wanted = {"self_attn.q_proj.weight": 1, "self_attn.v_proj.weight": 1}
    with pytest.raises(Stop), torch.no_grad(), Collect(weights, wanted, lambda p: seen.append(p.name)):
        run(block, {}, arguments)
    assert seen == list(wanted) and ran == ["input_layernorm", "self_attn.q_proj", "self_attn.k_proj"]


class Unknown(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return torch.from_numpy(x.detach().numpy() * 2)


class Opaque(nn.Module):
    """Its second product depends on the first by a step that PyTorch does not show; the third one writes in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Any) -> Any:
        hidden = self.second(Unknown.apply(self.first(x)))
        kept = torch.zeros_like(x)
        kept.view(-1)[:] = hidden.flatten()
        return x + self.third(kept)


def test_what_comes_by_unknown_ways_depends_on_all_before() -> None:
    trace = traced(Opaque(), ((torch.randn(2, 4),), {}))
    assert short(trace.levels) == {1: {"first"}, 2: {"second"}, 3: {"third"}} and trace.parts == [Part(0, 3)]
