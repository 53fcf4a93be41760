"""The snippets of the pages about PyTorch run."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

ROOT = Path(__file__).resolve().parents[3]
PAGES = {"pytorch": 2, "pruning": 2, "layers": 3, "transformers": 2, "training": 2}
"""The pages whose snippets run, each in its order, and how many they have."""

NEEDS = r"(?:<!-- needs (\w+) -->\n)?"


@pytest.mark.parametrize("page", PAGES)
def test_snippets_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(16)
    model = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 64))
    scope: dict[str, Any] = {"model": model, "torch": torch}
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    snippets = re.findall(rf"{NEEDS}```python\n(.*?)^```$", text, re.M | re.S)
    assert len(snippets) == PAGES[page]
    for needs, code in snippets:
        if needs and find_spec(needs) is None:
            continue
        if needs == "transformers":
            import transformers

            config = transformers.LlamaConfig(
                vocab_size=99, hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4
            )
            scope["causal_model"] = transformers.LlamaForCausalLM(config)
        exec(code, scope)
        # The snippets without other packages leave the model as it was.
        assert needs or type(model[0]) is torch.nn.Linear
    assert page != "layers" or scope["y"].shape == (3, 256)


def test_the_quickstart_s_model_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    exec(code, {})
    assert "0 of 2 layers changed" in capsys.readouterr().out or torch.cuda.is_available()
