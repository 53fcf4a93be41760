"""Models of Transformers with sparse weights: compressed, saved, loaded, and equal to the dense model with zeros."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import louver.torch
from support.torch_weights import close

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path", "ignore::DeprecationWarning")

from louver.torch.blocks import JoinedBlock  # noqa: E402
from louver.torch.linear import SparseLinear  # noqa: E402
from louver.torch.stacks import SparseStack  # noqa: E402
from louver.torch.transformers import LouverConfig  # noqa: E402

WIDTH = 64
COMMON = {"vocab_size": 99}


def llama() -> Any:
    config = transformers.LlamaConfig(
        **COMMON,
        hidden_size=WIDTH,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return transformers.LlamaForCausalLM(config)


def qwen_moe() -> Any:
    config = transformers.Qwen2MoeConfig(
        **COMMON, hidden_size=WIDTH, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48, shared_expert_intermediate_size=48,
    )  # fmt: skip
    return transformers.Qwen2MoeForCausalLM(config)


def gpt2() -> Any:
    config = transformers.GPT2Config(**COMMON, n_embd=WIDTH, n_layer=2, n_head=4, n_positions=64)
    return transformers.GPT2LMHeadModel(config)


def bert() -> Any:
    config = transformers.BertConfig(
        **COMMON,
        hidden_size=WIDTH,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=WIDTH,
    )
    return transformers.BertForMaskedLM(config)


def t5() -> Any:
    config = transformers.T5Config(
        **COMMON, d_model=WIDTH, d_kv=16, d_ff=96, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    return transformers.T5ForConditionalGeneration(config)


MODELS = {"llama": (llama, 14), "qwen_moe": (qwen_moe, 18), "gpt2": (gpt2, 8), "bert": (bert, 13), "t5": (t5, 32)}
"""Models with the number of their swapped layers."""


def logits(model: Any) -> Any:
    ids = torch.arange(18).reshape(2, 9) * 5 % 99
    extra = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        return model(input_ids=ids, **extra).logits


def swapped(model: Any) -> int:
    return sum(isinstance(module, SparseLinear | SparseStack) for module in model.modules())


@pytest.fixture(params=MODELS)
def case(request: pytest.FixtureRequest) -> tuple[Any, int]:
    """A pruned model with zeros, and the number of its layers that a swap takes."""
    torch.manual_seed(11)
    make, count = MODELS[request.param]
    model = make().eval()
    louver.torch.prune_(model)
    return model, count


def test_logits_are_those_of_the_dense_model_with_zeros(case: tuple[Any, int]) -> None:
    model, count = case
    expected = logits(model)
    report = louver.torch.compress_(model, force=True)
    assert swapped(model) == len(report.changed) == count
    torch.testing.assert_close(logits(model), expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
    louver.torch.decompress_(model)
    assert swapped(model) == 0 and torch.equal(logits(model), expected)
    assert not hasattr(model.config, "quantization_config")


def assert_same_bits(model: Any, loaded: Any) -> None:
    ours, theirs = model.state_dict(), loaded.state_dict()
    assert set(ours) == set(theirs) and all(torch.equal(each, theirs[name]) for name, each in ours.items())


def test_saved_in_shards_and_loaded(case: tuple[Any, int], tmp_path: Path) -> None:
    model, count = case
    louver.torch.compress_(model, force=True)
    expected = logits(model)
    model.save_pretrained(tmp_path, max_shard_size="60KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    kept = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    assert sorted(kept) == ["layers", "quant_method", "version"] and len(kept["layers"]) == count
    loaded = type(model).from_pretrained(tmp_path)
    assert swapped(loaded) == count
    assert_same_bits(model, loaded)
    # Parameters are equal, but a model may add in another order.
    torch.testing.assert_close(logits(loaded), expected, rtol=0, atol=1e-6 * float(expected.abs().max()))
    assert louver.torch.verify(loaded) == {}
    loaded.save_pretrained(tmp_path / "again")
    again = type(model).from_pretrained(tmp_path / "again")
    assert_same_bits(model, again)
    torch.testing.assert_close(logits(again), expected, rtol=0, atol=1e-6 * float(expected.abs().max()))
    assert loaded.half().dtype == torch.float16


def test_a_dense_checkpoint_is_compressed_while_it_is_loaded(case: tuple[Any, int], tmp_path: Path) -> None:
    model, count = case
    expected = logits(model)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, quantization_config=LouverConfig(force=True))
    assert swapped(loaded) == count
    torch.testing.assert_close(logits(loaded), expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("to", ["e4m3", "int8"])
def test_quantized_models_are_saved_and_loaded(tmp_path: Path, to: str) -> None:
    torch.manual_seed(13)
    model = llama().bfloat16().eval()
    louver.torch.prune_(model)
    louver.torch.compress_(model, force=True)
    louver.torch.quantize_(model, to)
    expected = logits(model)
    model.save_pretrained(tmp_path, max_shard_size="60KB")
    for dtype in (torch.bfloat16, torch.float16):
        loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=dtype)
        mlp = loaded.model.layers[1].mlp
        assert (
            isinstance(mlp, JoinedBlock) and mlp.up_proj.weight.dtype == model.model.layers[0].mlp.up_proj.weight.dtype
        )
        state = model.state_dict()
        for name, each in loaded.state_dict().items():
            if name.endswith((".values", ".scale", ".indices")):
                assert each.dtype == state[name].dtype and torch.equal(each, state[name]), name
        close(torch, logits(loaded), expected, 0.05)
        louver.torch.decompress_(loaded)
        assert loaded.model.layers[1].mlp.up_proj.weight.dtype == dtype


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    torch.manual_seed(12)
    model = llama().bfloat16().eval()
    louver.torch.prune_(model)
    louver.torch.compress_(model, force=True)
    model.save_pretrained(tmp_path, max_shard_size="60KB")
    return tmp_path


def test_types_are_those_that_the_caller_asks_for(saved: Path) -> None:
    asked = transformers.AutoModelForCausalLM.from_pretrained(saved, dtype=torch.float32)
    weight = asked.model.layers[0].mlp.up_proj.weight
    assert (weight.dtype, weight.indices.dtype) == (torch.float32, torch.uint8)
    assert (
        transformers.AutoModelForCausalLM.from_pretrained(saved).model.layers[0].mlp.up_proj.weight.dtype
        == torch.bfloat16
    )


def test_generation(saved: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(saved)
    ids = torch.arange(6).reshape(1, 6)
    made = model.generate(ids, max_new_tokens=5, do_sample=False, pad_token_id=0)
    louver.torch.decompress_(model)
    assert made.shape[1] > 6 and torch.equal(
        made[:, :7], model.generate(ids, max_new_tokens=5, do_sample=False, pad_token_id=0)[:, :7]
    )


def test_a_truncated_shard_is_an_error(saved: Path) -> None:
    shard = sorted(saved.glob("*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:-50])
    with pytest.raises(Exception, match="(?i)incomplete|header|deserializ"):
        transformers.AutoModelForCausalLM.from_pretrained(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "this Louver reads configurations of version 1, got version 2"),
        ({"layers": None}, "names its sparse layers, got no layers"),
        (
            {"layers": {"model.no": {"pattern": "2:4", "dtype": "bfloat16"}}},
            "got 'model.no', which is no linear layer of the model",
        ),
        ({"layers": {"model.no": {"pattern": "2:4"}}}, r"model.no: a sparse layer has a pattern and a dtype"),
        (
            {"layers": {"model.no": {"pattern": "2:4", "dtype": "int8", "scale": "block"}}},
            """model.no: the scales of a quantized layer are those of its rows, "row", got 'block'""",
        ),
        ({"layers": {"model.no": {"pattern": "2-4", "dtype": "bfloat16"}}}, "a pattern is written"),
    ],
)
def test_a_bad_configuration_names_the_rule(saved: Path, change: dict[str, Any], message: str) -> None:
    path = saved / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] |= change
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        transformers.AutoModelForCausalLM.from_pretrained(saved)


def test_without_the_import_transformers_fills_in_random_weights(saved: Path) -> None:
    """What the documents warn of."""
    code = f"import transformers; transformers.AutoModelForCausalLM.from_pretrained({str(saved)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0 and "MISSING" in done.stdout + done.stderr
