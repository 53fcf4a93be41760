"""Prints the tokens of a folder that two processes serve: `python two_ranks.py FOLDER OPTIONS`, options as JSON."""

from __future__ import annotations

import json
import sys


def main() -> None:
    from vllm import LLM, SamplingParams

    prompts, options = (json.loads(text) for text in sys.argv[2:])
    llm = LLM(sys.argv[1], skip_tokenizer_init=True, tensor_parallel_size=2, **options)
    sampling = SamplingParams(temperature=0, max_tokens=12, detokenize=False, ignore_eos=True)
    answers = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], sampling, use_tqdm=False)
    print("tokens", json.dumps([list(each.outputs[0].token_ids) for each in answers]))


if __name__ == "__main__":
    main()
