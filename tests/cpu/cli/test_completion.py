from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.command_line import Cli


def completed(line: str) -> list[str]:
    """The words that bash is told for the last word of a line."""
    asked = {"_LOUVER_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    code = "from louver.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={**os.environ, **asked}
    )
    assert not done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("louver ins", ["plain,inspect"]),
        ("louver bench sc", ["plain,schedules"]),
        ("louver compile --emit d", ["plain,decomposed"]),
        ("louver prune --comp", ["plain,--compressed"]),
        ("louver inspect mod", ["file,mod"]),
        ("louver completion z", ["plain,zsh"]),
    ],
)
def test_words_are_completed(line: str, words: list[str]) -> None:
    assert completed(line) == words


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_s_script_is_printed(cli: Cli, shell: str) -> None:
    result = cli("completion", shell)
    assert result.exit_code == 0 and not result.stderr
    assert f"_LOUVER_COMPLETE={shell}_complete" in result.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=result.stdout, text=True, check=True, timeout=60)


def test_other_shells_are_refused(cli: Cli) -> None:
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in cli.refused("completion", "tcsh")
