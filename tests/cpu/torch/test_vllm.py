"""Layers of a stand-in for vLLM, served with sparse weights: divided, merged, reloaded, rounded and refused."""

# ruff: noqa: E402

from __future__ import annotations

import gc
import logging
import pickle
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
pytest.importorskip("transformers")

import louver
from louver.formats.pattern import Pattern
from louver.torch.linear import SparseWeight
from louver.torch.tokens import quantized_rows
from louver.torch.vllm import register
from louver.torch.vllm.stream import Stored
from support import vllm_stub
from support.vllm_stub import Mapper, VllmConfig

K, ROWS = 48, (24, 8, 8)


class Vllm:
    """The stand-in, with Louver registered."""

    def __init__(self, modules: dict[str, Any]) -> None:
        register()
        self.modules = modules
        self.Config: Any = modules["vllm.model_executor.layers.quantization"].registered["louver"]
        self.Linear: Any = modules["vllm.model_executor.layers.linear"].LinearBase
        self.Loader: Any = modules["vllm.model_executor.model_loader"].registered["louver"]

    @property
    def vllm_config(self) -> VllmConfig:
        return self.modules["vllm.config"].current

    def config(self, **options: Any) -> Any:
        made = self.Config.from_config({"quant_method": "louver", "force": True, **options})
        made.packed_modules_mapping = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}
        return made


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Vllm]:
    for modules in vllm_stub.installed(monkeypatch):
        yield Vllm(modules)


def pruned(rows: int, columns: int = K, pattern: str = "2:4", seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed + rows)
    w = torch.randn(rows, columns, generator=generator).bfloat16()
    return louver.prune(w, pattern)


def close(y: Any, x: Any, w: Any, bias: Any = None) -> None:
    exact = torch.nn.functional.linear(x.double(), w.double(), None if bias is None else bias.double())
    torch.testing.assert_close(y.double(), exact, rtol=2e-2, atol=2e-2)


def tokens(columns: int = K) -> Any:
    return torch.randn(5, columns, generator=torch.Generator().manual_seed(9)).bfloat16()


@pytest.mark.parametrize("rank", [0, 1])
def test_merged_rows_of_a_rank(vllm: Vllm, rank: int) -> None:
    config, parts, x = vllm.config(), [pruned(rows) for rows in ROWS], tokens()
    layer = vllm.Linear(K, list(ROWS), config, "a.qkv_proj", bias=True, tp=(rank, 2)).load(*parts).process()
    own = torch.cat([part.chunk(2)[rank] for part in parts])
    close(layer(x)[0], x, own, layer.bias)
    (row,) = config.report
    assert (row.name, row.done, row.pattern, row.shape) == ("a.qkv_proj", "sparse", "2:4", (sum(ROWS) // 2, K))
    assert torch.equal(layer.louver.weight.dense(), own)
    # What vLLM and adapters ask of a weight.
    assert (layer.weight.dtype, layer.weight.device.type, layer.weight.numel()) == (torch.bfloat16, "cpu", 0)
    assert layer.input_size_per_partition == K


@pytest.mark.parametrize("rank", [0, 1])
def test_columns_of_a_rank(vllm: Vllm, rank: int) -> None:
    w, x = pruned(8), tokens(K // 2)
    layer = vllm.Linear(K, [8], vllm.config(), "o_proj", divides=1, tp=(rank, 2)).load(w).process()
    close(layer(x)[0], x, w.chunk(2, 1)[rank])


def test_weights_without_a_pattern_stay_vllms(vllm: Vllm) -> None:
    config, w, x = vllm.config(), torch.randn(8, K).bfloat16(), tokens()
    layer = vllm.Linear(K, [8], config, "o_proj").load(w).process()
    assert torch.equal(layer(x)[0], torch.nn.functional.linear(x, w))
    assert layer.processed and layer.louver.weight is None
    (row,) = config.report
    assert row.done == "dense" and "groups have more non-zeros than 2:4 keeps" in row.reason


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"force": False}, "only a GPU multiplies sparse weights fast"),
        ({"skip": ["o_*"]}, "skipped by 'o_*'"),
        ({"patterns": ["1:2"]}, "groups have more non-zeros than 1:2 keeps"),
    ],
    ids=["cpu", "skip", "patterns"],
)
def test_layers_that_stay_vllms_say_why(vllm: Vllm, options: dict[str, Any], reason: str) -> None:
    config, w = vllm.config(**options), pruned(8)
    layer = vllm.Linear(K, [8], config, "o_proj").load(w).process()
    assert reason in config.report["o_proj"].reason
    assert torch.equal(layer(tokens())[0], torch.nn.functional.linear(tokens(), w))


def test_batch_invariant_products_stay_vllms(vllm: Vllm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["vllm.envs"], "VLLM_BATCH_INVARIANT", True)
    config = vllm.config()
    vllm.Linear(K, [8], config, "o_proj").load(pruned(8)).process()
    assert config.report["o_proj"].reason == "VLLM_BATCH_INVARIANT asks for vLLM's own products"


def test_the_report_comes_once_with_what_stays_vllms(vllm: Vllm, caplog: pytest.LogCaptureFixture) -> None:
    config = vllm.config()
    experts = torch.nn.Module()
    experts.register_parameter("w13_weight", torch.nn.Parameter(torch.zeros(2, 8, K), False))
    attention = torch.nn.Module()
    attention.register_parameter("k_scale", torch.nn.Parameter(torch.ones(()), False))
    layers = [vllm.Linear(K, [8], config, f"{name}.o_proj").load(pruned(8)) for name in "ab"]
    assert config.get_quant_method(experts, "a.experts") is None
    assert config.get_quant_method(attention, "a.attn") is None
    with caplog.at_level(logging.INFO, "vllm.louver"):
        layers[0].process()
        assert not caplog.text
        layers[1].process()
    assert caplog.text.count("2 of 3 layers changed") == 1
    assert [row.name for row in config.report] == ["a.o_proj", "b.o_proj", "a.experts"]
    assert config.report["a.experts"].reason == "a Module stays vLLM's: Louver serves linear layers"


def test_rounded_weights(vllm: Vllm) -> None:
    config, w, x = vllm.config(to="e4m3"), pruned(16), tokens()
    layer = vllm.Linear(K, [16], config, "o_proj").load(w).process()
    values, scale = quantized_rows(SparseWeight.of(w, "2:4").values.detach(), torch.float8_e4m3fn)
    held = layer.louver.weight
    assert torch.equal(held.values.view(torch.uint8), values.view(torch.uint8)) and torch.equal(held.scale, scale)
    y, _ = layer(x)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), torch.nn.functional.linear(x, w).float(), rtol=0.1, atol=0.5)
    assert config.report["o_proj"].reason.endswith("e4m3, with a scale for each row and token")


def test_a_weight_to_round_is_finite(vllm: Vllm) -> None:
    w = pruned(8)
    w[w != 0] *= torch.inf
    layer = vllm.Linear(K, [8], vllm.config(to="e4m3"), "a.o_proj").load(w)
    with pytest.raises(ValueError, match=r"is finite, got NaN or infinity in a\.o_proj"):
        layer.process()


@pytest.mark.parametrize("to", [None, "e4m3"])
def test_reloaded_weights_are_written_in_place(vllm: Vllm, to: str | None) -> None:
    layer = vllm.Linear(K, [8], vllm.config(to=to), "o_proj").load(pruned(8)).process()
    x = tokens()
    layer(x)
    held = layer.louver.weight
    places = [each.data_ptr() for each in held.parameters()]
    new = pruned(8, seed=1)
    assert not torch.equal(held.indices, SparseWeight.of(new, "2:4").indices)
    layer.reload(new)
    assert layer.louver.weight is held and [each.data_ptr() for each in held.parameters()] == places
    fresh = vllm.Linear(K, [8], vllm.config(to=to), "o_proj").load(new).process()
    assert torch.equal(layer(x)[0], fresh(x)[0])
    assert torch.equal(held.dense(), fresh.louver.weight.dense())


def test_a_joined_block_has_another_hash(vllm: Vllm) -> None:
    hashes: set[str] = set()
    for act in (None, Limited()):
        for to in (None, "e4m3"):
            vllm.modules["vllm.config"].current = VllmConfig()
            Block(vllm, vllm.config(to=to), act).process()
            hashes.add(vllm.vllm_config.compute_hash())
    assert len(hashes) == 4


class Act(torch.nn.Module):
    """vLLM's own activation of gate and up."""

    def forward(self, x: Any) -> Any:
        gate, up = x.chunk(2, -1)
        return torch.nn.functional.silu(gate) * up


class Picky(Act):
    def forward(self, x: Any) -> Any:
        return super().forward(x) if x.shape[-1] == 32 else x.unflatten(-1, (3, 5))


class Limited(Act):
    def forward(self, x: Any) -> Any:
        return super().forward(x.clamp(-100, 100))


class Block(torch.nn.Module):
    def __init__(self, vllm: Vllm, config: Any, act: Any = None, rows: int = 16, bias: bool = False) -> None:
        super().__init__()
        self.gate_up_proj = vllm.Linear(K, [rows, rows], config, "mlp.gate_up_proj", bias=bias)
        self.down_proj = vllm.Linear(rows, [K], config, "mlp.down_proj")
        self.act_fn = act or Act()
        self.parts = [pruned(rows, seed=seed) for seed in (0, 7)]
        self.gate_up_proj.load(*self.parts)
        self.down_proj.load(pruned(K, rows))

    def forward(self, x: Any) -> Any:
        x, _ = self.gate_up_proj(x)
        x, _ = self.down_proj(self.act_fn(x))
        return x

    def process(self, *, pair_last: bool = False) -> Any:
        layers = [self.gate_up_proj, self.down_proj]
        for layer in reversed(layers) if pair_last else layers:
            layer.process()
        return self

    def gated(self) -> bool:
        return self.gate_up_proj.louver.gated is not None

    def exact(self, x: Any, parts: Any = None) -> Any:
        gate, up = (torch.nn.functional.linear(x.double(), w.double()) for w in parts or self.parts)
        return (torch.nn.functional.silu(gate) * up) @ self.down_proj.louver.weight.dense().double().t()


@pytest.mark.parametrize("to", [None, "e4m3"])
def test_gate_up_and_activation_are_one_product(vllm: Vllm, to: str | None) -> None:
    config, x = vllm.config(to=to, skip=["mlp.down*"] if to else []), tokens()
    block = Block(vllm, config).process(pair_last=to is None)
    assert block.gated() and type(block.act_fn) is torch.nn.Identity and block.gate_up_proj(x)[0].shape == (5, 16)
    assert config.report["mlp.gate_up_proj"].reason.endswith("; one product with its activation")
    if to is None:
        torch.testing.assert_close(block(x).double(), block.exact(x), rtol=2e-2, atol=0.1)
        new = [pruned(16, seed=seed) for seed in (3, 4)]
        block.gate_up_proj.reload(*new)
        torch.testing.assert_close(block(x).double(), block.exact(x, new), rtol=2e-2, atol=0.1)
    else:
        apart = Block(vllm, vllm.config(to=to, skip=["mlp.down*"]), Limited()).process()
        expected = Act()(apart.gate_up_proj(x)[0])
        torch.testing.assert_close(block.gate_up_proj(x)[0], expected, rtol=2e-2, atol=2e-2)


def test_a_bias_of_gate_and_up(vllm: Vllm) -> None:
    block = Block(vllm, vllm.config(), bias=True).process()
    x = tokens()
    gate, up = (
        torch.nn.functional.linear(x.double(), w.double(), b.double())
        for w, b in zip(block.parts, block.gate_up_proj.bias.chunk(2), strict=True)
    )
    torch.testing.assert_close(
        block.gate_up_proj(x)[0].double(), torch.nn.functional.silu(gate) * up, rtol=2e-2, atol=0.1
    )


class ReadsItself(Block):
    def forward(self, x: Any) -> Any:
        x, _ = self.gate_up_proj(x)
        gate, up = x.chunk(2, -1)
        return self.down_proj(torch.nn.functional.silu(gate) * up)[0]


class Twice(Block):
    def forward(self, x: Any) -> Any:
        x, _ = self.gate_up_proj(x)
        return self.down_proj(self.act_fn(x) + self.act_fn(x))[0]


class OtherwiseWithManyTokens(Block):
    def forward(self, x: Any) -> Any:
        y, _ = self.gate_up_proj(x)
        return self.down_proj(self.act_fn(y) if len(x) < 500 else y.tanh()[:, :16])[0]


@pytest.mark.parametrize("kind", [ReadsItself, Twice, OtherwiseWithManyTokens])
def test_what_a_trial_does_not_prove_stays_apart(vllm: Vllm, kind: Any) -> None:
    block = kind(vllm, vllm.config()).process()
    assert not block.gated() and type(block.act_fn) is Act
    assert block.gate_up_proj.louver.weight is not None
    assert block(tokens()).shape == (5, K)


@pytest.mark.parametrize("why", ["activation", "raises", "rows", "lora", "dense"])
def test_pairs_that_stay_apart(vllm: Vllm, why: str) -> None:
    if why == "lora":
        vllm.vllm_config.lora_config = object()
    config = vllm.config(force=why != "dense")
    act = {"activation": Limited(), "raises": Picky()}.get(why)
    block = Block(vllm, config, act, 20 if why == "rows" else 16).process()
    assert not block.gated() and type(block.act_fn) is not torch.nn.Identity
    gc.collect()
    hooks = torch.nn.modules.module._global_module_registration_hooks
    before = len(hooks)
    made = vllm.Linear(K, [8], config, "o_proj")
    assert len(hooks) == before + 1
    del config, block, made
    gc.collect()
    assert len(hooks) == before


def test_reloaded_weights_of_a_layer_that_stayed_vllms(vllm: Vllm) -> None:
    layer = vllm.Linear(K, [8], vllm.config(force=False), "o_proj").load(pruned(8)).process()
    new = pruned(8, seed=1)
    assert torch.equal(layer.reload(new)(tokens())[0], torch.nn.functional.linear(tokens(), new))


def test_reloaded_weights_keep_the_pattern(vllm: Vllm) -> None:
    w = pruned(8)
    layer = vllm.Linear(K, [8], vllm.config(), "a.o_proj").load(w).process()
    with pytest.raises(
        ValueError, match=r"keeps the pattern .* another one for a\.o_proj: .* Prune the new weights, or start"
    ):
        layer.reload(torch.randn(8, K).bfloat16())
    assert torch.equal(layer.louver.weight.dense(), w)


def test_choices_are_a_part_of_the_hash_of_compiled_graphs(vllm: Vllm) -> None:
    hashes: set[str] = set()
    for options in ({}, {"force": False}, {"to": "e4m3"}):
        vllm.modules["vllm.config"].current = VllmConfig(additional_config={"mine": 1})
        vllm.Linear(K, [8], vllm.config(**options), "o_proj").load(pruned(8)).process()
        assert vllm.vllm_config.additional_config["mine"] == 1
        hashes.add(vllm.vllm_config.compute_hash())
    assert len(hashes) == 3


def test_a_hash_without_choices_is_an_error(vllm: Vllm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VllmConfig, "compute_hash", lambda self: "same")
    layer = vllm.Linear(K, [8], vllm.config(), "o_proj").load(pruned(8))
    with pytest.raises(RuntimeError, match="could run a graph of other layers: serve with --enforce-eager"):
        layer.process()


def test_what_louver_takes(vllm: Vllm) -> None:
    def taken(**config: Any) -> str | None:
        return vllm.Config.override_quantization_method(config, None, hf_config=None)

    assert taken(quant_method="louver") == "louver"
    for kind in ("dense", "sparse-24-bitmask", "sparse-bitmask"):
        sparsity = {"format": kind, "sparsity_structure": "2:4"}
        assert taken(quant_method="compressed-tensors", sparsity_config=sparsity) == "louver"
    assert taken(quant_method="compressed-tensors", sparsity_config={}) is None
    assert taken(quant_method="compressed-tensors", sparsity_config=sparsity, config_groups={"group_0": {}}) is None
    assert taken(quant_method="fp8") is None
    assert vllm.Config.override_quantization_method(None, None) is None
    assert vllm.Config.from_config({"quant_method": "compressed-tensors"}).stored == {}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"version": 2}, "reads configurations of version 1, got version 2: use the Louver that saved the model"),
        ({"toknes": [1]}, "options of quantization 'louver' are layers, tokens, .*, to, got 'toknes'"),
        ({"to": "int8"}, "rounded to \"e4m3\", got to='int8'"),
        ({"tokens": [0]}, "tokens are positive numbers"),
        ({"patterns": ["4:2"]}, "4:2"),
        ({"layers": {"a": {"dtype": "bfloat16"}}}, "a"),
        (
            {"layers": {"a": {"pattern": "2:4", "dtype": "int8", "scale": "row"}}},
            "quantized weights of e4m3, got a of int8",
        ),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_a_configuration_checks_itself(vllm: Vllm, config: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        vllm.Config.from_config({"quant_method": "louver", **config})


def test_the_configuration_reaches_other_processes(vllm: Vllm) -> None:
    layers = {"a.o_proj": {"pattern": "2:4", "dtype": "bfloat16"}}
    config = pickle.loads(pickle.dumps(vllm.config(layers=layers, to="e4m3")))
    config.apply_vllm_mapper(Mapper("a.", "model.a."))
    assert [each.pattern for each in config.stored_of("model.a.o_proj")] and config.stored_of("a.o_proj") == []
    assert config.get_name() == "louver" and config.get_min_capability() == 80 and config.get_config_filenames() == []
    assert torch.bfloat16 in config.get_supported_act_dtypes()


def layers_of(pattern: str, *names: str, **more: str) -> dict[str, Any]:
    dtype = "float8_e4m3fn" if "scale" in more else "bfloat16"
    return {name: {"pattern": pattern, "dtype": dtype, **more} for name in names}


def test_a_division_that_cuts_a_group_is_refused(vllm: Vllm) -> None:
    vllm.vllm_config.load_config.load_format = "louver"
    config = vllm.config(layers=layers_of("2:4", "o_proj"))
    message = r"tensor_parallel_size 8 divides the 48 input features of o_proj into parts of 6, which cut groups of 2:4: use 1 or 2 or 3 or 4 or 6"
    with pytest.raises(ValueError, match=message):
        vllm.Linear(K, [8], config, "o_proj", divides=1, tp=(0, 8))
    vllm.Linear(K, [8], config, "o_proj", divides=1, tp=(0, 4))


def test_a_weight_of_no_whole_groups_has_no_division(vllm: Vllm) -> None:
    message = (
        "input features of o into parts of 9, which cut groups of 2:4: serve the dense weights that `louver decompress`"
    )
    with pytest.raises(ValueError, match=message):
        Stored(Pattern(2, 4)).check_division("o", 18, 9, [64])


def test_a_division_that_cuts_a_window_is_refused(vllm: Vllm) -> None:
    vllm.vllm_config.load_config.load_format = "louver"
    config = vllm.config(layers=layers_of("2:8@16", "q_proj", "k_proj", "v_proj"))
    with pytest.raises(
        ValueError, match=r"qkv_proj has a part of 8 rows, which cuts windows of 16 rows of 2:8@16: use a smaller"
    ):
        vllm.Linear(K, [32, 16, 16], config, "qkv_proj", tp=(0, 2))
    vllm.Linear(K, [32, 16, 16], config, "qkv_proj")


def test_a_merged_weight_has_8_bits_as_a_whole(vllm: Vllm) -> None:
    vllm.vllm_config.load_config.load_format = "louver"
    layers = layers_of("2:4", "a.q_proj", "a.v_proj", scale="row") | layers_of("2:4", "a.k_proj")
    with pytest.raises(
        ValueError, match=r"a\.qkv_proj of q_proj, k_proj, v_proj, .* a\.q_proj with and a\.k_proj without"
    ):
        vllm.Linear(K, list(ROWS), vllm.config(layers=layers), "a.qkv_proj")


def test_sparse_files_need_their_load_format(vllm: Vllm) -> None:
    with pytest.raises(ValueError, match=r"such as 'o_proj\.weight', are read by --load-format louver, got 'auto'"):
        vllm.Linear(K, [8], vllm.config(layers=layers_of("2:4", "o_proj")), "o_proj")


def test_bitmasks_are_in_a_local_folder(vllm: Vllm) -> None:
    sparsity = {"format": "sparse-24-bitmask", "sparsity_structure": "2:4"}
    config = vllm.Config.from_config({"quant_method": "compressed-tensors", "sparsity_config": sparsity})
    with pytest.raises(
        ValueError, match="from a local folder with their safetensors files, got 'someone/model': download the"
    ):
        config.maybe_update_config("someone/model")


def test_the_load_format_gives_vllm_dense_weights(vllm: Vllm) -> None:
    load_config = vllm.vllm_config.load_config
    load_config.load_format = "louver"
    config, w = vllm.config(layers=layers_of("2:4", "o_proj")), pruned(8)
    model = torch.nn.Module()
    model.add_module("o_proj", vllm.Linear(K, [8], config, "o_proj"))
    sparse, norm = SparseWeight.of(w, "2:4"), torch.ones(3)
    arrays = [("norm", norm), ("o_proj.weight.values", sparse.values), ("o_proj.weight.indices", sparse.indices)]
    found = dict(vllm.Loader(load_config).get_all_weights(vllm_stub.ModelConfig(arrays), model))
    assert list(found) == ["norm", "o_proj.weight"] and torch.equal(found["o_proj.weight"], w)
    assert load_config.load_format == "louver"


@pytest.mark.parametrize("force", [True, False])
def test_weights_that_are_stored_in_8_bits(vllm: Vllm, force: bool) -> None:
    """A layer that stays vLLM's multiplies by the same weight in 16 bits."""
    vllm.vllm_config.load_config.load_format = "louver"
    layers = layers_of("2:4", "q_proj", "k_proj", "v_proj", scale="row")
    made = vllm.Linear(K, list(ROWS), vllm.config(layers=layers, force=force), "qkv_proj", tp=(1, 2))
    codes = [pruned(rows).float().to(torch.float8_e4m3fn) for rows in ROWS]
    scales = [torch.rand(rows, 1) + 0.5 for rows in ROWS]
    made.load(*codes).load(*scales, name="weight_scale").process()
    w = torch.cat([(c.float() * s).bfloat16().chunk(2)[1] for c, s in zip(codes, scales, strict=True)])
    x = tokens()
    if not force:
        assert torch.equal(made(x)[0], torch.nn.functional.linear(x, w))
        return
    held = made.louver.weight
    assert held.dtype == torch.float8_e4m3fn and torch.equal(held.dense(), w)
    assert torch.equal(held.scale, torch.cat([s.chunk(2)[1][:, 0] for s in scales]))
    assert "weight_scale" not in dict(made.named_parameters())
    torch.testing.assert_close(made(x)[0].float(), torch.nn.functional.linear(x, w).float(), rtol=0.1, atol=0.6)


def test_the_load_format_is_for_louvers_models(vllm: Vllm) -> None:
    model = torch.nn.Linear(2, 2)
    with pytest.raises(
        ValueError, match="--load-format louver reads models of --quantization louver, got a model without"
    ):
        list(vllm.Loader(SimpleNamespace(load_format="louver")).get_all_weights(vllm_stub.ModelConfig([]), model))
