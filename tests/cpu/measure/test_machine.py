from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from louver.cli import app
from louver.measure import machine
from louver.measure.machine import (
    CannotMeasureError,
    commit,
    header,
    host_header,
    processor,
    require_torch,
    tf32_products,
)
from louver.runtime.device import Device, NoDevice

H200 = Device(0, "a Hopper", (9, 0), 132, 232448, 60 << 20, 141 << 30, (13, 0))


def found(monkeypatch: pytest.MonkeyPatch, device: Device | NoDevice, torch: Any) -> None:
    monkeypatch.setattr(machine, "current_device", lambda: device)
    monkeypatch.setitem(sys.modules, "torch", torch)


def fake_torch(*, cuda: bool) -> Any:
    return SimpleNamespace(
        __version__="2.0",
        version=SimpleNamespace(cuda="13.0"),
        cuda=SimpleNamespace(
            is_available=lambda: cuda,
            current_device=lambda: 0,
            get_device_name=lambda: "a Hopper",
            get_device_properties=lambda _: SimpleNamespace(uuid="0-0"),
        ),
        backends=SimpleNamespace(cusparselt=SimpleNamespace(is_available=lambda: True, version=lambda: 800)),
    )


@pytest.mark.parametrize(
    ("device", "torch", "reason"),
    [
        (NoDevice("the driver sees no device"), None, "the driver sees no device"),
        (Device(0, "an A100", (8, 0), 108, 166912, 40 << 20, 80 << 30, (13, 0)), None, "sm_90a, got an A100"),
        (H200, None, "through PyTorch"),
        (H200, fake_torch(cuda=False), "a PyTorch that sees the GPU"),
    ],
)
def test_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, device: Device | NoDevice, torch: Any, reason: str
) -> None:
    found(monkeypatch, device, torch)
    with pytest.raises(CannotMeasureError, match=reason):
        require_torch()


def test_gives_torch_where_all_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = fake_torch(cuda=True)
    found(monkeypatch, H200, torch)
    assert require_torch() is torch


@pytest.mark.parametrize("suite", ["gemm", "host"])
def test_the_command_line_says_it_in_one_line(monkeypatch: pytest.MonkeyPatch, suite: str) -> None:
    found(monkeypatch, NoDevice("none here"), None)
    result = CliRunner().invoke(app, ["bench", suite])
    assert result.exit_code == 1
    assert result.stderr.strip() == "error: benchmarks need a GPU, got none: none here"


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (["--shapes", "1x2"], "MxNxK"),
        (["--dtype", "f64"], "f16, bf16, e4m3, s8, f32, int8"),
        (["--suite", "quick", "--shapes", "16x16x16"], "not both"),
        (["--budget", "0"], "positive number of seconds"),
    ],
)
def test_the_command_line_checks_its_options_first(options: list[str], rule: str) -> None:
    result = CliRunner().invoke(app, ["bench", "gemm", *options])
    assert result.exit_code == 2
    assert rule in result.stderr


def test_the_header_leaves_out_what_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    facts = header(fake_torch(cuda=True))
    assert facts["device"] == "a Hopper"
    assert facts["versions"]["cuSPARSELt"] == "800"
    assert not {"driver", "commit"} & set(facts["versions"])
    assert {"louver", "CUDA", "torch", "ptxas"} <= set(facts["versions"])


def test_the_commit_is_this_checkouts() -> None:
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=machine.Path(__file__).parent
    )
    name = commit()
    if head.returncode:
        assert name is None
    else:
        assert name is not None
        assert head.stdout.startswith(name.removesuffix("+"))


def test_the_processor_is_named_where_the_system_says_it(tmp_path: Path) -> None:
    listed = tmp_path / "cpuinfo"
    listed.write_text("processor\t: 0\nmodel name\t: A Fast One @ 3 GHz\nprocessor\t: 1\nmodel name\t: Another\n")
    assert processor(listed) == "A Fast One @ 3 GHz"
    listed.write_text("processor\t: 0\n")
    assert processor(listed) == processor(tmp_path / "none") == platform.machine()


def test_host_times_name_the_processor_and_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, H200, fake_torch(cuda=True))
    facts = host_header(fake_torch(cuda=True))
    assert facts["device"] == "a Hopper"
    assert "cores" in facts["cpu"]
    assert {"ptxas", "python", "numpy"} <= set(facts["versions"])


def test_f32_is_multiplied_as_tf32_only_meanwhile() -> None:
    torch = pytest.importorskip("torch")
    matmul = torch.backends.cuda.matmul
    with pytest.raises(ZeroDivisionError), tf32_products(torch):
        assert matmul.allow_tf32
        raise ZeroDivisionError
    assert not matmul.allow_tf32
