"""Stock vLLM on the CPU generates with Louver the tokens that it generates without. Run by `make test-vllm`, which installs
vLLM in an environment of its own. No speed is shown: the CPU multiplies sparse weights by the slow reference path. Models are
f32, so that sums in another order give the same tokens.
"""

# ruff: noqa: E402

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

for name, value in {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}.items():
    os.environ.setdefault(name, value)

vllm: Any = pytest.importorskip("vllm")
torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")

import louver.torch
import louver.torch.transformers
from louver.torch.report import Report
from louver.torch.vllm.config import LouverConfig

SETTINGS = {"enforce_eager": True, "max_model_len": 64, "max_num_seqs": 4, "dtype": "float32"}
PROMPTS = ([1, 2, 3, 4, 5], [7, 9], [100, 3, 50, 2, 2, 2, 8])


def llama() -> Any:
    config = transformers.LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=256,
        initializer_range=0.3,
    )
    return transformers.LlamaForCausalLM(config)


def mixture() -> Any:
    config = transformers.Qwen2MoeConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=64,
        num_experts=4,
        num_experts_per_tok=2,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.3,
    )
    return transformers.Qwen2MoeForCausalLM(config)


MODELS = {"llama": llama, "mixture": mixture}


def report_of(model: Any) -> Report | None:
    configs = (getattr(module, "quant_config", None) for module in model.modules())
    config = next((each for each in configs if isinstance(each, LouverConfig)), None)
    return None if config is None else config.report


@dataclass
class Served:
    """A model that vLLM serves; None afterwards."""

    llm: Any

    def tokens(self) -> list[list[int]]:
        sampling = vllm.SamplingParams(temperature=0, max_tokens=12, detokenize=False, ignore_eos=True)
        prompts = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
        return [list(each.outputs[0].token_ids) for each in self.llm.generate(prompts, sampling, use_tqdm=False)]

    def reasons(self) -> str:
        return str(self.llm.apply_model(report_of)[0])

    def done(self) -> dict[str, set[str]]:
        """What was done with the layers of each name."""
        found: dict[str, set[str]] = {}
        for row in self.llm.apply_model(report_of)[0]:
            found.setdefault(row.name.rpartition(".")[2], set()).add(row.done)
        return found


@contextmanager
def serving(folder: Path, **options: Any) -> Generator[Served]:
    served = Served(vllm.LLM(model=str(folder), skip_tokenizer_init=True, **(SETTINGS | options)))
    try:
        yield served
    finally:
        # What is left of an engine would end the groups of the next one.
        served.llm = None
        gc.collect()
        importlib.import_module("vllm.distributed").cleanup_dist_env_and_memory()


def tokens_of(folder: Path, **options: Any) -> list[list[int]]:
    with serving(folder, **options) as served:
        return served.tokens()


def all_sparse(served: Served) -> bool:
    done = served.done()
    linear = {name: each for name, each in done.items() if name.endswith("_proj")}
    return {"qkv_proj", "gate_up_proj", "o_proj", "down_proj"} <= linear.keys() and set().union(*linear.values()) == {
        "sparse"
    }


@pytest.fixture(scope="module", params=MODELS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def written(kind: str, folder: Path, seed: int = 0) -> Path:
    """A dense checkpoint with zeros."""
    torch.manual_seed(seed)
    model = MODELS[kind]()
    louver.torch.prune_(model, "2:4")
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def zeros(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(kind, tmp_path_factory.mktemp(kind) / "zeros")


@pytest.fixture(scope="module")
def dense(zeros: Path) -> list[list[int]]:
    """The tokens without Louver."""
    return tokens_of(zeros)


def forced(**options: Any) -> dict[str, Any]:
    """Options of vLLM that swap on a CPU too."""
    return {"hf_overrides": {"quantization_config": {"quant_method": "louver", "force": True, **options}}}


def saved(zeros: Path, folder: Path, *, rounded: bool = False) -> Path:
    """As Transformers saves a model of Louver."""
    model = transformers.AutoModelForCausalLM.from_pretrained(zeros, dtype=torch.float32)
    louver.torch.compress_(model, force=True)
    if rounded:
        louver.torch.quantize_(model)
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"]["force"] = True
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_dense_checkpoint_with_zeros(zeros: Path, dense: list[list[int]]) -> None:
    with serving(zeros, **forced()) as served:
        assert all_sparse(served)
        assert "one product with its activation" in served.reasons()
        assert served.tokens() == dense


def test_a_cpu_stays_vllms(zeros: Path, dense: list[list[int]]) -> None:
    with serving(zeros, quantization="louver") as served:
        assert set().union(*served.done().values()) == {"dense"}
        assert served.tokens() == dense


def test_a_compiled_model(zeros: Path, dense: list[list[int]]) -> None:
    with serving(zeros, enforce_eager=False, **forced()) as served:
        assert all_sparse(served)
        assert served.tokens() == dense


def test_files_of_save_pretrained(zeros: Path, dense: list[list[int]], tmp_path: Path) -> None:
    with serving(saved(zeros, tmp_path / "saved"), load_format="louver") as served:
        assert all_sparse(served)
        assert served.tokens() == dense


@pytest.mark.parametrize("to", ["louver", "sparse24_bitmask"])
def test_files_of_louver_compress(zeros: Path, dense: list[list[int]], tmp_path: Path, to: str) -> None:
    compress(zeros, tmp_path / "out", to)
    with serving(tmp_path / "out", load_format="louver", **forced()) as served:
        assert all_sparse(served)
        assert served.tokens() == dense


def test_a_bitmask_by_its_own_configuration(zeros: Path, dense: list[list[int]], tmp_path: Path) -> None:
    compress(zeros, tmp_path / "out", "sparse24_bitmask")
    assert tokens_of(tmp_path / "out", load_format="louver") == dense


def test_dense_weights_that_compressed_tensors_calls_sparse(tmp_path: Path) -> None:
    """Without Louver, vLLM raises for the entry."""
    zeros = written("llama", tmp_path / "zeros")
    expected = tokens_of(zeros)
    config = json.loads((zeros / "config.json").read_text())
    sparsity = {"format": "dense", "sparsity_structure": "2:4", "global_sparsity": 0.5}
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "dense",
        "sparsity_config": sparsity,
    }
    (zeros / "config.json").write_text(json.dumps(config))
    with serving(zeros) as served:
        assert set().union(*served.done().values()) == {"dense"}
        assert served.tokens() == expected


def compress(zeros: Path, out: Path, to: str) -> None:
    subprocess.run([sys.executable, "-m", "louver", "compress", zeros, out, "--to", to], check=True)


def test_e4m3(tmp_path: Path) -> None:
    """Rounded while it is loaded, and stored so. Both multiply the same codes, up to the rounding of the scales."""
    zeros = written("llama", tmp_path / "zeros")
    with serving(zeros, **forced(to="e4m3")) as served:
        assert all_sparse(served)
        tokens = served.tokens()
    with serving(saved(zeros, tmp_path / "saved", rounded=True), load_format="louver") as served:
        assert all_sparse(served)
        assert served.tokens() == tokens


def test_stored_e4m3_of_experts(tmp_path: Path) -> None:
    """Experts stay vLLM's, in 16 bits. Tokens are those of the Transformers model of equal weights, or close to them."""
    folder = saved(written("mixture", tmp_path / "zeros"), tmp_path / "saved", rounded=True)
    with serving(folder, load_format="louver") as served:
        assert served.done()["experts"] == {"dense"}
        assert len(served.tokens()) == len(PROMPTS)


def test_reloaded_weights(tmp_path: Path) -> None:
    """Other values in other places. Of experts on a CPU, vLLM itself reloads others than those of the files."""
    zeros, other = written("llama", tmp_path / "zeros"), written("llama", tmp_path / "other", seed=1)
    expected = tokens_of(other)
    with serving(zeros, **forced()) as served:
        first = served.tokens()
        served.llm.collective_rpc("reload_weights", kwargs={"weights_path": str(other)})
        assert served.tokens() == expected != first


def test_sparse_files_need_the_load_format(zeros: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="are read by --load-format louver, got 'auto'"):
        tokens_of(saved(zeros, tmp_path / "saved"))


def test_two_processes(tmp_path: Path) -> None:
    """Each has its part of every layer of files that are stored sparse."""
    zeros = written("llama", tmp_path / "zeros")
    expected = tokens_of(zeros)
    compress(zeros, tmp_path / "out", "louver")
    options = json.dumps(SETTINGS | forced() | {"load_format": "louver"})
    program = Path(__file__).with_name("two_ranks.py")
    # A core each: vLLM else wants a NUMA node each.
    found = subprocess.run(
        [sys.executable, program, tmp_path / "out", json.dumps(PROMPTS), options],
        env={**os.environ, "VLLM_CPU_OMP_THREADS_BIND": "0|1", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = [line for line in found.stdout.splitlines() if line.startswith("tokens ")]
    assert json.loads(line.removeprefix("tokens ")) == expected


def test_the_example(capfd: pytest.CaptureFixture[str]) -> None:
    example = Path(__file__).resolve().parents[2] / "examples" / "serve_vllm.py"
    subprocess.run([sys.executable, example], check=True)
    printed = [line for line in capfd.readouterr().out.splitlines() if line.startswith("tokens, ")]
    assert len(printed) == 3 and len({line.partition(":")[2].strip() for line in printed}) == 1
