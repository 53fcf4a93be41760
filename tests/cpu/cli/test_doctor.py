from __future__ import annotations

import pytest
from click.testing import CliRunner

from louver.cli import app
from louver.cli.commands import doctor
from louver.cli.commands.doctor import Fact, conclusions, examine, healthy, package
from louver.runtime.device import Device, NoDevice


def test_doctor_finds_the_core_here() -> None:
    result = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "160"})
    assert result.exit_code == 0, result.output
    assert "ptxas" in result.output and "13.5" in result.output
    assert "Louver can" in result.output


def test_doctor_reports_a_broken_core_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> str:
        raise FileNotFoundError("no ptxas: install nvidia-cuda-nvcc")

    monkeypatch.setattr(doctor, "_ptxas", lost)
    result = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "160"})
    assert result.exit_code == 1
    assert "no ptxas: install nvidia-cuda-nvcc" in result.output
    assert "core is broken: ptxas" in result.output


def test_every_fact_says_what_it_is_for() -> None:
    facts = examine()
    assert len({fact.name for fact in facts}) == len(facts)
    assert all(fact.value and fact.enables for fact in facts)


def test_missing_packages_are_findings() -> None:
    assert package("nothing-such", "nothing_such", "optional", "x") == Fact(
        "nothing-such", False, "not installed", "optional", "x"
    )
    broken = package("nothing-such", "nothing_such", "core", "x")
    assert not broken.ok and "nothing_such" in broken.value


def test_a_missing_gpu_is_no_fault_and_is_named() -> None:
    facts = (Fact("ptxas", True, "13.5", "core", "x"), Fact("GPU", False, "no driver", "gpu", "y"))
    assert healthy(facts)
    assert any("reference path" in line for line in conclusions(facts))
    assert any("no driver" in line for line in conclusions(facts))


def test_with_everything_there_nothing_is_missing() -> None:
    facts = (Fact("ptxas", True, "13.5", "core", "x"), Fact("GPU", True, "H200", "gpu", "y"))
    assert conclusions(facts) == ("Louver can do everything here, running kernels included.",)


@pytest.mark.parametrize(
    ("capability", "said"),
    [((9, 0), ""), ((8, 0), "speed not measured"), ((12, 0), "speed not measured"), ((7, 5), "kernels are for sm_80,")],
)
def test_gpus_run_the_kernels_from_ampere_on(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], said: str
) -> None:
    found = Device(0, "a GPU", capability, 132, 227 << 10, 50 << 20, 141 << 30, (13, 0))
    monkeypatch.setattr("louver.runtime.device.current_device", lambda: found)
    fact = doctor.gpu()
    assert fact.ok is (capability[0] > 7)
    assert "a GPU" in fact.value and said in fact.value
    assert ("not measured" in fact.value) is (said == "speed not measured")


def test_without_a_gpu_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("louver.runtime.device.current_device", lambda: NoDevice("no driver here"))
    assert doctor.gpu() == Fact("GPU", False, "no driver here", "gpu", doctor.gpu().enables)
