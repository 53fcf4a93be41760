"""Chains of blocks: found by structure, called with what the model gives them, checked against the model's own run."""

from __future__ import annotations

from typing import Any

import pytest

from support.tiny_models import ids, tiny

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")

from louver.torch.accuracy.blocks import (  # noqa: E402
    Capture,
    Resident,
    call_model,
    chains_of,
    check_chain,
    find_chains,
    outputs,
    run,
)

nn = torch.nn
CPU = torch.device("cpu")


class Residual(nn.Module):
    def __init__(self, features: int = 8) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(features, 2 * features), nn.Linear(2 * features, features)

    def forward(self, x: Any) -> Any:
        return x + self.down(torch.relu(self.up(x)))


def calls(model: Any, chain: Any, batch: Any) -> Any:
    return Capture(model, chain, Resident(model, chain), CPU).calls(batch)


@pytest.mark.parametrize(
    ("kind", "chains"),
    [
        ("llama", ["model.layers"]),
        ("qwen2_moe", ["model.layers"]),
        ("gemma3", ["model.layers"]),
        ("gpt2", ["transformer.h"]),
        ("bert", ["encoder.layer"]),
        ("t5", ["encoder.block", "decoder.block"]),
    ],
)
def test_blocks_run_one_by_one_as_the_model_runs_them(kind: str, chains: list[str]) -> None:
    model = tiny(torch, transformers, kind)
    found = find_chains(model)
    assert [chain.name for chain in found] == chains
    batch = ids(torch, 3, 9)
    for chain in found:
        kept: list[Any] = []
        last = model.get_submodule(chain.names[-1])
        handle = last.register_forward_hook(lambda module, args, out, kept=kept: kept.append(outputs(out)[0]))
        with torch.no_grad():
            call_model(model, batch)
        handle.remove()
        state: list[Any] = []
        for name, call in zip(chain.names, calls(model, chain, batch), strict=True):
            with torch.no_grad():
                state = outputs(run(model.get_submodule(name), {}, call.arguments(state, CPU)))
        assert torch.equal(state[0], kept[0])
        check_chain(model, chain, Resident(model, chain), batch)


def test_each_block_gets_its_own_arguments() -> None:
    """Gemma 3 has other masks and tables of positions for sliding windows than for full attention."""
    model = tiny(torch, transformers, "gemma3")
    first, second = calls(model, find_chains(model)[0], ids(torch, 2, 9))
    tables = [
        [leaf for leaf in call.leaves if torch.is_tensor(leaf) and leaf.shape[-1] == 8] for call in (first, second)
    ]
    assert tables[0] and not torch.equal(tables[0][0], tables[1][0])
    assert first.carried == set() and second.carried == {0}


def test_equal_arguments_of_batches_are_kept_once() -> None:
    model = tiny(torch, transformers, "llama")
    chain = find_chains(model)[0]
    capture = Capture(model, chain, Resident(model, chain), CPU)
    one, two = (capture.calls(ids(torch, 2, 9, seed=seed)) for seed in (1, 2))
    shared = [a is b for a, b in zip(one[1].leaves, two[1].leaves, strict=True) if torch.is_tensor(a)]
    assert shared == [True, True, True] and one[0].leaves[0] is not two[0].leaves[0]


def test_a_sequential_of_blocks_and_the_root_itself() -> None:
    assert find_chains(nn.Sequential(Residual(), Residual()))[0].names == ("0", "1")
    mixed = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    chain = find_chains(mixed, "")[0]
    assert chain.names == ("0", "1", "2")
    check_chain(mixed, chain, Resident(mixed, chain), torch.randn(3, 8))


def test_no_chain_says_what_was_looked_for() -> None:
    with pytest.raises(
        ValueError,
        match=r'ModuleList or Sequential of blocks of one class with linear layers, got Linear without one: pass blocks="NAME"',
    ):
        find_chains(nn.Linear(8, 8))
    model = tiny(torch, transformers, "llama")
    with pytest.raises(ValueError, match=r"got 'model\.layer': no module of this name"):
        find_chains(model, "model.layer")
    with pytest.raises(ValueError, match=r"got 'model\.norm': a LlamaRMSNorm"):
        find_chains(model, "model.norm")


class Loop(nn.Module):
    """Runs its blocks in a way that is no chain."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.blocks, self.how = nn.ModuleList(Residual() for _ in range(3)), how

    def forward(self, x: Any) -> Any:
        one, two, three = self.blocks
        if self.how == "branches":
            return one(x) + two(x) + three(x)
        if self.how == "backwards":
            return one(three(two(x)))
        if self.how == "twice":
            return three(two(one(x))) if x.requires_grad else two(three(two(one(x))))
        if self.how == "partly":
            return two(one(x))
        hidden = two(one(x))
        return three(hidden) if self.how == "changed" and hidden.mul_(2) is None else three(2 * hidden)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("branches", "each block reads the output of the one before, as it is, got blocks.1 that does not"),
        ("changed", "each block reads the output of the one before, as it is, got blocks.2 that does not"),
        ("backwards", "blocks run in their order, got blocks.1 before blocks.0"),
        ("twice", "a block runs once in a pass, got a second call of blocks.1"),
        ("partly", "all blocks of 'blocks' run, got no call of blocks.2"),
    ],
)
def test_modules_that_are_no_chain_are_refused(how: str, message: str) -> None:
    model = Loop(how)
    with pytest.raises(ValueError, match=message):
        calls(model, find_chains(model)[0], torch.randn(2, 8))
    assert not any("forward" in vars(block) for block in model.blocks)


def test_a_module_that_repeats_is_refused() -> None:
    model = tiny(torch, transformers, "albert")
    with pytest.raises(
        ValueError, match="a block runs once in a pass, got a second call of encoder.albert_layer_groups.0"
    ):
        calls(model, find_chains(model)[0], ids(torch, 2, 9))
    block = Residual()
    shared = nn.Sequential(block, block)
    with pytest.raises(ValueError, match="got a second call of 0"):
        calls(shared, find_chains(shared)[0], torch.randn(2, 8))


class Headed(nn.Module):
    """A chain, and a list of heads that is none."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Residual() for _ in range(3))
        self.heads = nn.ModuleList(nn.Linear(8, width) for _ in range(2))

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return sum(head(x) for head in self.heads)


def test_a_list_that_is_no_chain_is_left_beside_a_larger_chain() -> None:
    model = Headed(8)
    assert [chain.name for chain in find_chains(model)] == ["blocks", "heads"]
    assert [chain.name for chain in chains_of(model, None, torch.randn(2, 8))] == ["blocks"]
    with pytest.raises(ValueError, match=r"each block reads the output of the one before, as it is, got heads\.1"):
        chains_of(Headed(999), None, torch.randn(2, 8))


def test_no_cache_is_used_also_behind_a_wrapper() -> None:
    class Wrapper(nn.Module):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.inner = model

        def forward(self, *args: Any) -> Any:
            return self.inner(*args)

    model = Wrapper(tiny(torch, transformers, "llama"))
    call = calls(model, find_chains(model)[0], ids(torch, 2, 9))[1]
    assert {type(leaf) for leaf in call.leaves if not torch.is_tensor(leaf)} <= {type(None), bool, type(call.leaves[0])}
    assert model.inner.config.use_cache is True


class Hidden(nn.Module):
    """Blocks that hand something on beside their outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, x: Any) -> Any:
        first = self.blocks[0](x)
        first.data = first.data + 1
        return self.blocks[1](first)


def test_what_blocks_hand_on_in_secret_is_found() -> None:
    model = Hidden()
    with pytest.raises(
        ValueError, match="got 'blocks' whose blocks, run one by one, give another result than the model"
    ):
        chains_of(model, None, torch.randn(2, 8))
