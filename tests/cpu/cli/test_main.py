from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import louver

if TYPE_CHECKING:
    from support.command_line import Cli


def test_version(cli: Cli) -> None:
    result = cli("--version")
    assert result.exit_code == 0 and result.stdout == f"louver {louver.__version__}\n"


def test_help_names_every_command(cli: Cli) -> None:
    result = cli("--help")
    assert result.exit_code == 0
    assert all(command in result.stdout for command in ("doctor", "inspect", "prune", "compile", "demo", "plot"))


def test_the_module_runs() -> None:
    done = subprocess.run([sys.executable, "-m", "louver", "--version"], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"louver {louver.__version__}\n"


def test_missing_arguments_are_usage_errors(cli: Cli) -> None:
    result = cli("prune")
    assert result.exit_code == 2 and "IN" in result.stderr
