"""The command `completion`, which prints a shell's completion script for commands, options and file names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes louver's commands in SHELL.

    For bash, add the line `eval "$(louver completion bash)"` to ~/.bashrc; for zsh, the same with zsh to ~/.zshrc; for
    fish, run `louver completion fish > ~/.config/fish/completions/louver.fish`.
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise ValueError(f"completion is for {', '.join(SHELLS)}, got {shell!r}")
    click.echo(kind(context.find_root().command, {}, "louver", "_LOUVER_COMPLETE").source())
