"""`resume=`: a run that is killed goes on behind its last finished block, to the same bits; another run is refused."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import louver.torch
from support.tiny_models import ids, tiny

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")

from louver.torch.accuracy import prune, walk  # noqa: E402

TESTS = Path(__file__).resolve().parents[3]
CALL = {"method": "sparsegpt", "correct": True, "reconstruct": 10, "tune": 4}
SCRIPT = """
import sys, time, torch, transformers, louver.torch
from support.tiny_models import ids, tiny
model = tiny(torch, transformers, "llama", num_hidden_layers=3)
def slow(done, total, left):
    print(done, flush=True)
    time.sleep(60 if done == 2 else 0)
louver.torch.prune_(model, calibration=ids(torch, 24), resume=sys.argv[1], progress=slow, **{call})
"""


def llama() -> Any:
    return tiny(torch, transformers, "llama", num_hidden_layers=3)


def test_a_killed_run_goes_on_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = llama()
    expected = louver.torch.prune_(whole, calibration=ids(torch, 24), **CALL)
    path = os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    script = SCRIPT.replace("{call}", repr(CALL))
    run = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert run.stdout is not None
    assert [run.stdout.readline() for _ in range(2)] == ["1\n", "2\n"]
    run.send_signal(signal.SIGKILL)
    assert run.wait(60) == -signal.SIGKILL
    run.stdout.close()
    computed: list[int] = []
    block = walk.Walk._block
    monkeypatch.setattr(walk.Walk, "_block", lambda self, index, b: (computed.append(index), block(self, index, b))[1])
    model = llama()
    report = louver.torch.prune_(model, calibration=ids(torch, 24), resume=tmp_path / "run", **CALL)
    assert computed == [2]
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), model.parameters(), strict=True))
    assert [(row.name, row.error, row.damping) for row in report] == [(r.name, r.error, r.damping) for r in expected]
    # A run that is finished is applied again.
    computed.clear()
    again = llama()
    assert len(louver.torch.prune_(again, calibration=ids(torch, 24), resume=tmp_path / "run", **CALL).changed) == 21
    assert not computed and torch.equal(
        again.model.layers[2].mlp.down_proj.weight, model.model.layers[2].mlp.down_proj.weight
    )


def test_a_file_that_was_being_written_counts_for_nothing(tmp_path: Path) -> None:
    whole, model = llama(), llama()
    louver.torch.prune_(whole, method="wanda", calibration=ids(torch, 8))
    louver.torch.prune_(copy.deepcopy(model), method="wanda", calibration=ids(torch, 8), resume=tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["model.layers.0.block", "model.layers.1.block", "model.layers.2.block", "run.key"]
    (tmp_path / "model.layers.1.part").write_bytes((tmp_path / "model.layers.1.block").read_bytes()[:100])
    (tmp_path / "model.layers.1.block").unlink()
    louver.torch.prune_(model, method="wanda", calibration=ids(torch, 8), resume=tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), model.parameters(), strict=True))
    assert sorted(path.name for path in tmp_path.iterdir()) == names


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"method": "sparsegpt"}, "another method"),
        ({"tune": 1}, "another method"),
        ({"pattern": "1:4"}, "another choice of layers"),
        ({"skip": ("*.q_proj",)}, "another choice of layers"),
        ({"calibration": ids(torch, 8, seed=5)}, "another text"),
        ({"method": "sparsegpt", "calibration": ids(torch, 9)}, "another method, another text"),
    ],
)
def test_another_call_is_refused(tmp_path: Path, changes: dict[str, Any], what: str) -> None:
    call = {"method": "wanda", "calibration": ids(torch, 8), "resume": tmp_path}
    louver.torch.prune_(llama(), **call)
    model = llama()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=f"resume goes on with the same call, got .* of a run with {what}: repeat"):
        louver.torch.prune_(model, **{**call, **changes})
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())


def test_other_weights_are_refused(tmp_path: Path) -> None:
    call = {"method": "wanda", "calibration": ids(torch, 8), "resume": tmp_path}
    model = llama()
    louver.torch.prune_(model, **call)
    with pytest.raises(
        ValueError, match="weights that the run began with, got others in model.layers.0: load the dense"
    ):
        louver.torch.prune_(model, **call)
    other = llama()
    with torch.no_grad():
        other.model.embed_tokens.weight.mul_(2)
    with pytest.raises(ValueError, match="of a run with another model"):
        louver.torch.prune_(other, **call)


def test_text_of_the_model_itself_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate = prune.generate_tokens
    monkeypatch.setattr(prune, "generate_tokens", lambda model, rows, length: generate(model, 8, 12))
    louver.torch.prune_(llama(), method="wanda", resume=tmp_path / "own")
    monkeypatch.setattr(prune, "generate_tokens", None)
    assert louver.torch.prune_(llama(), method="wanda", resume=tmp_path / "own").rows[0].tokens == 7 * 12
