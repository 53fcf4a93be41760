"""A pruned model served by vLLM: a tiny Llama of random weights, dense with zeros, and the same from Louver's files.

`pip install louver vllm`; on a CPU, a build of vLLM for CPUs. On a GPU, a layer is sparse where that is faster; on a CPU this program
forces it, because sparse products are slow there. There all runs generate the same tokens; in bf16 they may part after some, since sums
are in another order.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import louver.torch
import louver.torch.transformers

PROMPT = {"prompt_token_ids": [1, 2, 3, 4, 5]}
DTYPE = torch.bfloat16 if torch.cuda.is_available() else torch.float32


def written(folder: Path) -> tuple[Path, Path]:
    """A dense checkpoint with zeros, and the same model as Louver's files."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        initializer_range=0.2,
    )
    model = LlamaForCausalLM(config).to(DTYPE)
    louver.torch.prune_(model, "2:4")  # by magnitude; a real model needs calibration, see docs/pruning.md
    model.save_pretrained(folder / "zeros")
    model = AutoModelForCausalLM.from_pretrained(folder / "zeros", dtype=DTYPE)
    louver.torch.compress_(model, force=True)
    model.save_pretrained(folder / "sparse")
    return folder / "zeros", folder / "sparse"


def tokens(folder: Path, **options: Any) -> list[int]:
    from vllm import LLM, SamplingParams

    llm = LLM(str(folder), skip_tokenizer_init=True, dtype=DTYPE, max_model_len=64, enforce_eager=True, **options)
    (answer,) = llm.generate([PROMPT], SamplingParams(temperature=0, max_tokens=16, detokenize=False, ignore_eos=True))
    return list(answer.outputs[0].token_ids)


def main() -> None:
    if not torch.cuda.is_available():
        os.environ["VLLM_TARGET_DEVICE"] = "cpu"
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    options = {"quant_method": "louver", "force": not torch.cuda.is_available()}
    with tempfile.TemporaryDirectory() as folder:
        zeros, sparse = written(Path(folder))
        # Each engine is a process of its own, which prints Louver's report.
        dense = tokens(zeros)
        served = tokens(zeros, hf_overrides={"quantization_config": options})
        stored = tokens(sparse, load_format="louver")
    print("tokens, dense:              ", dense)
    print("tokens, compressed by vLLM: ", served)
    print("tokens, from Louver's files:", stored)


if __name__ == "__main__":
    main()
