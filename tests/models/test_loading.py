"""A dense checkpoint with zeros: each weight is compressed before the next one is read."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import pytest

import louver.torch

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path", "ignore::DeprecationWarning")

from louver.torch import gain, swap  # noqa: E402
from louver.torch.linear import SparseLinear  # noqa: E402
from louver.torch.transformers import (  # noqa: E402
    Loading,
    LouverConfig,
)

WEIGHTS = 14


def model() -> Any:
    torch.manual_seed(21)
    config = transformers.LlamaConfig(
        vocab_size=99, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, attention_bias=True, tie_word_embeddings=True,
    )  # fmt: skip
    made = transformers.LlamaForCausalLM(config).bfloat16().eval()
    for name, parameter in made.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    return made


@pytest.fixture
def dense(tmp_path: Path) -> tuple[Any, Path]:
    made = model()
    louver.torch.prune_(made)
    made.save_pretrained(tmp_path, max_shard_size="60KB")
    return made, tmp_path


def load(path: Path, **options: Any) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(path, quantization_config=LouverConfig(**options))


def swapped(made: Any) -> list[str]:
    return [name for name, module in made.named_modules() if isinstance(module, SparseLinear)]


def test_one_dense_weight_is_alive_at_a_time(dense: tuple[Any, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    before, path = dense
    alive: list[weakref.ref[Any]] = []
    most = []
    convert = Loading.convert

    def counted(self: Any, input_dict: Any, **options: Any) -> Any:
        alive.extend(weakref.ref(each[0]) for each in input_dict.values())
        most.append(sum(each() is not None for each in alive))
        return convert(self, input_dict, **options)

    monkeypatch.setattr(Loading, "convert", counted)
    loaded = load(path, force=True)
    assert most == [1] * WEIGHTS and len(swapped(loaded)) == WEIGHTS
    louver.torch.decompress_(loaded)
    expected = before.state_dict()
    assert all(torch.equal(each, expected[name]) for name, each in loaded.state_dict().items())


def test_weights_that_keep_no_pattern_stay_dense(tmp_path: Path) -> None:
    made = model()
    louver.torch.prune_(made, skip=("*.mlp.*",))
    made.save_pretrained(tmp_path)
    loaded = load(tmp_path, force=True)
    assert len(swapped(loaded)) == 8 and not any("mlp" in name for name in swapped(loaded))
    assert torch.equal(loaded.model.layers[0].mlp.up_proj.weight, made.model.layers[0].mlp.up_proj.weight)
    assert not any(parameter.is_meta for parameter in loaded.parameters())


def test_a_dense_checkpoint_without_zeros_is_an_error(tmp_path: Path) -> None:
    model().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"(?s)no weight keeps 2:4 or 1:2.*layers.0.mlp.up_proj: .* groups have more"):
        load(tmp_path, force=True)


def test_layers_are_skipped_and_types_are_the_callers(dense: tuple[Any, Path]) -> None:
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        dense[1], quantization_config=LouverConfig(force=True, skip=("*.self_attn.*",)), dtype=torch.float32
    )
    assert len(swapped(loaded)) == 6
    assert {each.dtype for each in loaded.parameters() if each.is_floating_point()} == {torch.float32}


def test_a_weight_that_the_files_lack_stays_dense_and_is_named(dense: tuple[Any, Path]) -> None:
    state = dense[0].state_dict()
    del state["model.layers.1.mlp.up_proj.weight"]
    dense[0].save_pretrained(dense[1], state_dict=state)
    loaded, info = transformers.AutoModelForCausalLM.from_pretrained(
        dense[1], quantization_config=LouverConfig(force=True), output_loading_info=True
    )
    assert info["missing_keys"] == {"model.layers.1.mlp.up_proj.weight"} and len(swapped(loaded)) == WEIGHTS - 1
    assert bool(loaded.model.layers[1].mlp.up_proj.weight.isfinite().all())


def test_a_weight_of_another_shape_is_refused_by_transformers(dense: tuple[Any, Path]) -> None:
    state = dense[0].state_dict()
    name = "model.layers.1.mlp.up_proj.weight"
    state[name] = state[name][:-8].clone()
    dense[0].save_pretrained(dense[1], state_dict=state)
    with pytest.raises(RuntimeError, match="(?i)mismatch|size"):
        load(dense[1], force=True)(torch.arange(6).reshape(1, 6))


def test_layers_are_swapped_where_they_are_measured_faster(
    dense: tuple[Any, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With times as a GPU would give: the rows of the MLP's first products gain, all others lose."""
    measured = []

    def times(layer: Any, sparse: Any, tokens: Any) -> Any:
        assert not any(each.is_meta for each in (*layer.parameters(), *sparse.parameters()))
        measured.append(tuple(sparse.weight.shape))
        return gain.Gain({1: 3.0}, {1: 2.0 if sparse.weight.shape[0] == 96 else 4.0})

    monkeypatch.setattr(swap, "measure", times)
    monkeypatch.setattr(swap, "_multiplies_fast", lambda weight: True)
    loaded = load(dense[1], tokens=1)
    assert {name.rpartition(".")[2] for name in swapped(loaded)} == {"gate_proj", "up_proj"}
    assert len(measured) == len(set(measured)) == 4


def test_one_module_in_two_places(tmp_path: Path) -> None:
    """The second name of a weight finds the sparse layer of the first one."""

    class Twice(transformers.LlamaForCausalLM):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.model.layers[1].mlp.up_proj = self.model.layers[0].mlp.up_proj
            self.post_init()

    made = Twice(model().config).bfloat16()
    louver.torch.prune_(made)
    expected = made.model.layers[0].mlp.up_proj.weight
    # A file may hold the weight under both names.
    state = {name: each.clone() for name, each in made.state_dict().items() if name != "lm_head.weight"}
    made.save_pretrained(tmp_path, state_dict=state)
    loaded = Twice.from_pretrained(tmp_path, quantization_config=LouverConfig(force=True))
    layers = loaded.model.layers
    assert layers[0].mlp.up_proj is layers[1].mlp.up_proj and type(layers[0].mlp.up_proj) is SparseLinear
    assert torch.equal(layers[1].mlp.up_proj.weight.dense(), expected)


def test_the_plan_of_memory_counts_sparse_weights() -> None:
    quantizer = transformers.quantizers.auto.AutoHfQuantizer.from_config(LouverConfig(), pre_quantized=False)
    with torch.device("meta"):
        made = model()
    quantizer.preprocess_model(made)
    sizes = {name: quantizer.param_element_size(made, name, each) for name, each in made.named_parameters()}
    assert sizes["model.layers.0.mlp.up_proj.weight"] == 1.125 and sizes["model.embed_tokens.weight"] == 2
