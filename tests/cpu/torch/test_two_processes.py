"""A sparse model that two processes train together: the products and parameters of one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.torch_weights import close

torch: Any = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.filterwarnings("ignore:louver computes by the reference path"),
    pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch has no torch.distributed"),
]

TESTS = Path(__file__).resolve().parents[2]


def together(wrapper: str, folder: Path) -> list[dict[str, Any]]:
    """What each of the two processes has in the end."""
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    code = [sys.executable, "-m", "support.torch_ranks", wrapper]
    started = [
        subprocess.Popen(
            [*code, str(rank), str(folder)],
            env={**os.environ, "PYTHONPATH": paths},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    errors = [each.communicate(timeout=200)[1] for each in started]
    assert [each.returncode for each in started] == [0, 0], "\n".join(errors)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in (0, 1)]


@pytest.mark.parametrize("wrapper", ["ddp", "fsdp2"])
def test_both_processes_have_what_one_would_have(wrapper: str, tmp_path: Path) -> None:
    if wrapper == "fsdp2" and torch.__version__.startswith("2.6"):
        pytest.skip("FSDP2 of PyTorch 2.6 shards no integers")
    from support.torch_ranks import model, tokens, train

    alone = model()
    before = {name: each.clone() for name, each in alone.state_dict().items()}
    expected = train(alone, tokens())
    assert (expected[-1] - expected[0]).abs().max() > 0.1 * expected[0].abs().max()
    first, second = together(wrapper, tmp_path)
    for mine, other, wanted in zip(first["outputs"], second["outputs"], expected, strict=True):
        close(torch, torch.cat([mine, other]), wanted, 0.03)
    state = first["state"]
    assert list(state) == list(before)
    for name, each in state.items():
        close(torch, each, alone.state_dict()[name], 0.03)
        assert torch.equal(each, before[name]) == name.endswith("indices")
        assert wrapper == "fsdp2" or torch.equal(each, second["state"][name])
    # The last products are those of the parameters after the last step.
    fresh = model()
    fresh.load_state_dict(state)
    close(torch, torch.cat([first["outputs"][-1], second["outputs"][-1]]), fresh(tokens()), 1e-3)
