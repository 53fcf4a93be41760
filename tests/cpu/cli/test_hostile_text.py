"""Text that a file or an argument brings never reaches the terminal as something that it obeys."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import louver

if TYPE_CHECKING:
    from click.testing import Result

    from support.command_line import Cli

NAMES = (
    "\x1b[31mred.weight",
    "\x1b]0;title\x07.weight",
    "a\r\nforged: yes",
    "\u202egnp.\u2066w",
    "\x9b2J\x7f",
    "[b]w[/b]",
)


def harmless(result: Result) -> bool:
    return all(line.isprintable() for line in (result.stdout + result.stderr).split("\n"))


@pytest.fixture
def hostile(tmp_path: Path, rng: np.random.Generator) -> Path:
    path = tmp_path / "in.safetensors"
    tensors = {name: rng.standard_normal((3 + index, 8)).astype(np.float32) for index, name in enumerate(NAMES)}
    louver.save(path, tensors, {"note\x1b[2J": "\x1b[8mhidden\nerror: forged"})
    return path


@pytest.mark.parametrize("columns", ["300", "40"])
def test_inspect(cli: Cli, hostile: Path, columns: str) -> None:
    result = cli("inspect", hostile, columns=columns)
    assert result.exit_code == 0 and harmless(result)
    for name in (r"\x1b[31mred.weight", r"a\r\nforged: yes", r"\u202egnp.\u2066w", r"\x9b2J\x7f", "[b]w[/b]"):
        assert name in result.stdout
    assert r"note\x1b[2J: \x1b[8mhidden\nerror: forged".replace(" ", "") in re.sub(r"\s", "", result.stdout)


def test_inspect_as_json_keeps_the_names(cli: Cli, hostile: Path) -> None:
    result = cli("inspect", hostile, "--json")
    assert harmless(result)
    found = json.loads(result.stdout)
    assert {tensor["name"] for tensor in found["tensors"]} == set(NAMES)
    assert found["metadata"] == {"note\x1b[2J": "\x1b[8mhidden\nerror: forged"}


def test_prune_and_its_report(cli: Cli, hostile: Path, tmp_path: Path) -> None:
    result = cli("prune", hostile, tmp_path / "out\x1b[1m.safetensors", "--only", "*")
    assert result.exit_code == 0 and harmless(result)
    assert r"\x1b[31mred.weight" in result.stdout and r"out\x1b[1m.safetensors" in result.stderr
    assert set(louver.load(tmp_path / "out\x1b[1m.safetensors")) == set(NAMES)


def test_a_dry_run(cli: Cli, hostile: Path) -> None:
    result = cli("prune", hostile, "--dry-run")
    assert result.exit_code == 0 and harmless(result) and r"\x1b[31mred.weight" in result.stdout


def test_the_demo_and_its_report(cli: Cli, hostile: Path, tmp_path: Path) -> None:
    result = cli("demo", "--weights", hostile, "--out", tmp_path / "out", "--include", "*red*")
    assert result.exit_code == 0 and harmless(result)
    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["inspect", "\x1b[31mnowhere"], r"\x1b[31mnowhere"),
        (["inspect", "\udcff\u202e"], r"\udcff\u202e: No such file"),
        (["inspect", "a", "\x1b]0;b\x07"], r"\x1b]0;b\x07"),
        (["\x1b[2J"], r"\x1b[2J"),
        (["inspect", "FILE", "--pattern", "\x1b[1m2:4"], r"\x1b[1m2:4"),
        (["prune", "FILE", "OUT", "--include", "\x1b[1m*"], r"\x1b[1m*"),
        (["prune", "FILE", "OUT", "--dtype", "\x9b1m"], r"\x9b1m"),
        (["compile", "FILE\x1b[1m.ttir"], r"\x1b[1m.ttir"),
        (["compile", "--problem", "1,\x1b2,3"], r"\x1b2"),
        (["tune", "--dtype", "\x1b[1m"], r"\x1b[1m"),
        (["plot", "\x1b[1m.json", "x.png"], r"\x1b[1m.json"),
    ],
)
def test_errors(cli: Cli, hostile: Path, tmp_path: Path, arguments: list[str], said: str) -> None:
    places = {"FILE": str(hostile), "OUT": str(tmp_path / "out")}
    assert said in cli.refused(*(places.get(argument, argument) for argument in arguments))


@pytest.mark.parametrize(
    "header",
    [
        {"\x1b[31mw": {"dtype": "F32", "shape": [3, 8], "data_offsets": [0, 9]}},
        {"\x1b[31mw": {"dtype": "\x1b[7mF", "shape": [3, 8], "data_offsets": [0, 96]}},
        {"\ud800\x1b": {"dtype": "F32", "shape": [3, 8], "data_offsets": [0, 96]}},
        {"__metadata__": {"louver": "\x1b[31m{"}, "w": {"dtype": "F32", "shape": [3, 8], "data_offsets": [0, 96]}},
    ],
)
def test_damaged_files(cli: Cli, tmp_path: Path, header: dict[str, Any]) -> None:
    path, text = tmp_path / "damaged", json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(96))
    assert harmless(cli("inspect", path))
    assert harmless(cli("prune", path, tmp_path / "out"))


def test_kernels_and_their_errors(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    path = tmp_path / "kernel.py"
    path.write_text('raise RuntimeError("\\x1b[2J from the file")')
    assert r"kernel.py cannot be imported: RuntimeError: \x1b[2J from the file" in cli.refused("compile", f"{path}:k")


def test_ir_is_printed_as_it_is_but_for_what_a_terminal_obeys(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "kernel.ttir"
    text = (Path(__file__).parents[2] / "golden/ttir/3.6/weight_descriptors.ttir").read_text(encoding="utf-8")
    path.write_text(f"// \x1b[2J\u202e\n{text}", encoding="utf-8")
    result = cli("compile", path, "--emit", "ttir")
    assert result.exit_code == 0 and harmless(result)
    assert result.stdout == f"// \\x1b[2J\\u202e\n{text}"


def test_bugs_show_their_traceback_escaped(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*_: object) -> None:
        raise KeyError("\x1b[2J\nforged")

    monkeypatch.setattr("louver.cli.commands.doctor.examine", bug)
    result = cli("doctor")
    assert result.exit_code == 1 and harmless(result) and not result.stdout
    assert "Traceback" in result.stderr and r"\x1b[2J" in result.stderr
    assert result.stderr.endswith("error: this is a bug in louver, please report it: KeyError\n")


def test_warnings_are_notes(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    import warnings

    from louver.cli.commands.doctor import Fact

    def warn() -> tuple[Fact, ...]:
        warnings.warn("\x1b[2J careful", stacklevel=2)
        return ()

    monkeypatch.setattr("louver.cli.commands.doctor.examine", warn)
    assert r"warning: \x1b[2J careful" in cli("doctor").stderr.splitlines()


def test_nothing_prints_past_the_one_function() -> None:
    """These files print, what `shown` has made or (completion) our own constants; Ruff forbids `print` in the others."""
    package = Path(louver.__file__).parent
    printing = re.compile(r"click\.s?echo\(")
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if printing.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"cli/completion.py", "cli/output.py", "cli/commands/notes.py"}
