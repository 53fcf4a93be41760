"""The command line, run in the process of a test."""

from __future__ import annotations

from click.testing import CliRunner, Result

from louver.cli import app


class Cli:
    """Runs the command line in this process, wide enough that nothing wraps."""

    def __call__(self, *arguments: object, columns: str = "300") -> Result:
        return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": columns})

    def refused(self, *arguments: object) -> str:
        """The one line of a command that must fail without a traceback and print no result."""
        result = self(*arguments)
        assert result.exit_code in (1, 2), result.output
        assert not result.stdout
        lines = result.stderr.strip().splitlines()
        assert len(lines) == 1, result.stderr
        return lines[0]
