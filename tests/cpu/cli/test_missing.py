"""What a command says without arguments or packages that it needs."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from louver.formats.extras import EXTRAS, explained

if TYPE_CHECKING:
    from conftest import Cli

KERNEL = """
import triton, triton.language as tl

@triton.jit
def f(out, x, n, scale, B: tl.constexpr, MODE: tl.constexpr = 3):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n) * scale * MODE)
"""


def test_all_missing_arguments_come_with_the_command(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    path = tmp_path / "k.py"
    path.write_text(KERNEL, encoding="utf-8")
    said = cli.refused("compile", f"{path}:f", "--arg", "x=*fp16", "--const", "B=64")
    assert "got none for out, n, scale: louver compile" in said
    assert f"{path}:f --arg 'x=*fp16' --const B=64 --arg out=TYPE --arg n=TYPE --arg scale=TYPE, where TYPE is" in said
    options = ["--arg", "x=*fp16", "--const", "B=64", "--arg", "out=*fp32", "--arg", "n=i32", "--arg", "scale=fp32"]
    assert cli("compile", f"{path}:f", *options, "--emit", "ttir").exit_code == 0, "MODE has a default"


def test_each_extra_is_one_of_the_project() -> None:
    with Path(__file__).parents[3].joinpath("pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    for module, extra in EXTRAS.items():
        assert any(module in each for each in project["optional-dependencies"][extra]), module


@pytest.mark.parametrize(("module", "extra"), EXTRAS.items())
def test_a_missing_package_of_an_extra_says_what_to_install(module: str, extra: str) -> None:
    error = ModuleNotFoundError(f"No module named '{module}.part'", name=f"{module}.part")
    assert explained(error) == f"{module} is not installed: pip install 'louver[{extra}]'"
    assert explained(ModuleNotFoundError("No module named 'mine'", name="mine")) == "No module named 'mine'"


def test_commands_say_it(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "k.py"
    path.write_text("raise ModuleNotFoundError(\"No module named 'triton'\", name='triton')", encoding="utf-8")
    assert "triton is not installed: pip install 'louver[triton]'" in cli.refused("compile", f"{path}:f")

    def examine() -> None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr("louver.cli.commands.doctor.examine", examine)
    result = cli("doctor")
    assert result.exit_code == 1 and result.stderr == "error: torch is not installed: pip install 'louver[torch]'\n"
