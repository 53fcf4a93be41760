from __future__ import annotations

import pytest
from typer.testing import CliRunner

from louver.cli import app
from louver.commands import doctor
from louver.commands.doctor import Fact, conclusions, examine, healthy, package


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
