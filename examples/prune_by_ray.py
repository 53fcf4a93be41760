"""Prunes a sharded checkpoint on the machines of a Ray cluster, and compares the bytes with those of one process.

Without a cluster Ray starts one on this machine. With one, set RAY_ADDRESS, and give a folder that all machines share:
`RAY_ADDRESS=head:6379 python examples/prune_by_ray.py /shared/folder`. Needs `pip install 'louver[ray]'`, and no GPU.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

import louver
from louver.models import prune


def random_model(folder: Path, layers: int = 4) -> Path:
    """A checkpoint with a file for each layer, and an index."""
    rng = np.random.default_rng(1)
    folder.mkdir()
    files: dict[str, str] = {}
    for layer in range(layers):
        name = f"model-{layer + 1:05}-of-{layers:05}.safetensors"
        tensors = {
            f"layers.{layer}.{kind}_proj.weight": rng.standard_normal((512, 1024)).astype(np.float16)
            for kind in ("q", "k", "v", "o")
        }
        louver.save(folder / name, tensors)
        files |= dict.fromkeys(tensors, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    return folder


def main(place: Path) -> None:
    model = random_model(place / "model")
    here = prune(model, place / "here", compressed=True)
    # The same call goes on if this program or a machine dies.
    there = prune(model, place / "there", compressed=True, workers="ray", progress=lambda share: print(f"{share:.0%}"))
    same = all(path.read_bytes() == (place / "there" / path.name).read_bytes() for path in (place / "here").iterdir())
    print(f"{len(there.rows)} weights in {there.target.parent}; the bytes of one process: {same}")
    assert same and len(there.rows) == len(here.rows)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as temporary:
        main(Path(temporary))
