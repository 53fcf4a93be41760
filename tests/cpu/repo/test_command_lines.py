"""Every `louver …` line of the documents, run as it stands."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import louver

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
_FENCE = re.compile(r"^```\w*\n(.*?)^```", re.M | re.S)

NO_COMMAND = {
    "louver advise": "names the command; it takes sizes or a model",
    "louver compress": "names the command; it takes a checkpoint",
    "louver demo": "names the command, whose weights are a package of their own",
    "louver compile": "names the command; it takes a kernel",
    "louver prune": "names the command, in a docstring",
    "louver --help": "is documented in a sentence with the next",
    "louver COMMAND --help": "COMMAND stands for any of them",
}
"""Text in backticks that looks like a command line, and why it is not run."""

NEEDS_A_GPU = ("louver bench ", "louver tune")
"""These end by saying so here: GPUs are hidden from them."""

NEEDS_TRITON = ".py:"
NEEDS_MATPLOTLIB = ("louver plot", "louver demo")
NEEDS_TRANSFORMERS = "--method"


def command_lines(document: str) -> list[str]:
    """The lines of fenced blocks that begin with `louver` or call it, continued ones whole, and code in sentences and tables."""
    lines: list[str] = []
    for block in _FENCE.findall(document):
        joined = block.replace("\\\n", " ")
        lines += [line for line in joined.splitlines() if re.match(r'louver |eval "\$\(louver ', line)]
    sentences = re.sub(r"<!--.*?-->", "", _FENCE.sub("", document), flags=re.S)
    lines += [" ".join(code.split()) for code in re.findall(r"`((?:eval \"\$\()?louver\s[^`]*)`", sentences)]
    return lines


ALL = dict.fromkeys(line for path in DOCUMENTS for line in command_lines(path.read_text(encoding="utf-8")))


def test_lines_are_found() -> None:
    text = "```\nlouver a  # b\nlouver c \\\n  d\nother\n```\n`louver\nx y` `louver.z`\n<!-- louver q -->"
    assert command_lines(text) == ["louver a  # b", "louver c    d", "louver x y"]
    assert len(ALL) > 25 and NO_COMMAND.keys() <= ALL.keys()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the documents speak of, and `louver` on the path."""
    path = tmp_path_factory.mktemp("documents")
    rng = np.random.default_rng(7)
    weights = {
        "encoder.0.query.weight": rng.standard_normal((40, 72)).astype(np.float32),
        "encoder.0.query.bias": rng.standard_normal(40).astype(np.float32),
    }
    for name in ("FILE.safetensors", "IN"):
        louver.save(path / name, weights)
    (path / "DIR").mkdir()
    louver.save(path / "DIR" / "model.safetensors", weights)
    (path / "DIR" / "config.json").write_text("{}")
    louver.save(path / "PRUNED", {name: louver.prune(weight, "2:4") for name, weight in weights.items()})
    shutil.copy(ROOT / "tests/golden/ttir/3.6/weight_descriptors.ttir", path / "kernel.ttir")
    shutil.copy(ROOT / "benchmarks/results/h200/gemm.json", path / "RECORD.json")
    shutil.copytree(ROOT / "examples", path / "examples")
    program = path / "bin" / "louver"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m louver "$@"\n')
    program.chmod(0o755)
    (path / ".config" / "fish" / "completions").mkdir(parents=True)
    return path


def language_model(path: Path) -> None:
    """A folder `MODEL` of a tiny model with a tokenizer, and two texts."""
    torch, transformers = (pytest.importorskip(name) for name in ("torch", "transformers"))
    from support.model_folders import saved, word_tokenizer, words

    if not (path / "MODEL").exists():
        saved(torch, transformers, path / "MODEL", "llama", max_position_embeddings=32)
        word_tokenizer(path / "MODEL")
        for seed, name in enumerate(("articles.txt", "other.txt")):
            (path / name).write_text(words(seed, 700), encoding="utf-8")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("line", [line for line in ALL if line not in NO_COMMAND])
def test_the_line_runs(folder: Path, line: str) -> None:
    if NEEDS_TRANSFORMERS in line:
        language_model(folder)
    if NEEDS_TRITON in line and importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed: pip install 'louver[triton]'")
    if line.startswith(NEEDS_MATPLOTLIB):
        pytest.importorskip("matplotlib", reason="Matplotlib is not installed: pip install 'louver[plot]'")
    shell = "zsh" if line.startswith("eval") and "completion zsh" in line else "bash"
    if shutil.which(shell) is None:
        pytest.skip(f"the line is for {shell}, which is not installed")
    environment = os.environ | {
        "HOME": str(folder),
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "LOUVER_CACHE_DIR": str(folder / "cache"),
        "CUDA_VISIBLE_DEVICES": "",
    }
    before = {*folder.iterdir(), folder / "cache"}
    done = subprocess.run([shell, "-c", line], cwd=folder, capture_output=True, text=True, timeout=120, env=environment)
    # The next line may write files of the same names.
    for made in set(folder.iterdir()) - before:
        shutil.rmtree(made) if made.is_dir() else made.unlink()
    if line.startswith(NEEDS_A_GPU) and "--show" not in line:
        assert done.returncode == 1 and not done.stdout
        assert done.stderr.startswith("error: benchmarks need a GPU, got none: ")
    else:
        assert done.returncode == 0, done.stderr
        assert "error" not in done.stderr
