"""Writes `tests/cpu/models/listings`: configurations, names, shapes and types of tiny models, without data.

Run with `PYTHONPATH=tests python -m support.architectures.keep tests/cpu/models/listings`. The tests of names and shapes read them without Transformers.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import transformers

from louver.formats.checkpoint import open_checkpoint
from support.architectures.judge import smallest, truths

KEPT = ("llama", "gpt2", "qwen3_moe", "gpt_oss", "t5", "mamba")


def main(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for kind in KEPT:
        model = smallest(kind)
        with tempfile.TemporaryDirectory() as made:
            model.save_pretrained(made)
            tensors = {
                name: [tensor.form.dtype, list(tensor.form.shape)]
                for name, tensor in open_checkpoint(made).tensors.items()
            }
            # The contracted axis of each weight that is pruned by default.
            weights = {
                name: min(truth.axes)
                for name, truth in truths(model, Path(made)).items()
                if truth.kind == "weight" and truth.axes
            }
            config = json.loads((Path(made) / "config.json").read_text())
        listing = {"transformers": transformers.__version__, "config": config, "tensors": tensors, "weights": weights}
        (folder / f"{kind}.json").write_text(json.dumps(listing, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
