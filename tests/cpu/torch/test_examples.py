"""The files of `examples/pytorch` run, and say what they did."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "pytorch"

SAID = {
    "compress": ("one product with up", "greatest difference"),
    "quantized": ("quantized 2:4", "relative difference by e4m3"),
    "save_and_load": ("0.weight.values, 0.weight.indices", "2:4"),
    "train": ("masks that move: loss", "2 layers with sparse gradients of x"),
    "transformers_model": ("one product with", "greatest difference of logits"),
}


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if name == "transformers_model":
        pytest.importorskip("transformers")
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert all(text in printed for text in SAID[name]), printed
