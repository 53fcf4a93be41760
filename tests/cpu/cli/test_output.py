"""The places and forms of results and notes, and the end of a command."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import louver
from louver.cli import app
from louver.measure import machine
from louver.measure.report.table import cells
from louver.runtime.device import NoDevice

if TYPE_CHECKING:
    from support.command_line import Cli

LOUVER = [sys.executable, "-m", "louver"]
PROJECTIONS = ["encoder.0.query.weight", "encoder.0.dense.weight"]


def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"} | options.pop("env", {})
    command = [*LOUVER, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, **options)


def on_terminal(columns: int, *arguments: object) -> list[str]:
    """The lines of a command whose standard output is a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    done = subprocess.Popen([*LOUVER, *map(str, arguments)], stdout=theirs, stderr=subprocess.PIPE, env=environment)
    os.close(theirs)
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    assert done.wait(60) == 0, done.stderr and done.stderr.read()
    return b"".join(parts).decode().replace("\r\n", "\n").rstrip("\n").split("\n")


@pytest.fixture
def names(checkpoint: Path) -> set[str]:
    return set(louver.load(checkpoint))


def test_inspect_as_json(cli: Cli, checkpoint: Path, names: set[str]) -> None:
    found = json.loads(cli("inspect", checkpoint, "--json").stdout)
    assert (found["schema"], found["kind"], found["pattern"]) == (1, "inspect", "2:4")
    assert found["file"] == str(checkpoint) and found["metadata"] == {"format": "pt"}
    assert {tensor["name"] for tensor in found["tensors"]} == names
    assert found["total_bytes"] == sum(tensor["bytes"] for tensor in found["tensors"])
    query = next(tensor for tensor in found["tensors"] if tensor["name"] == "encoder.0.query.weight")
    report = louver.check(np.asarray(louver.load(checkpoint)["encoder.0.query.weight"]), "2:4")
    assert query == {
        "name": "encoder.0.query.weight",
        "dtype": "f32",
        "shape": [37, 70],
        "form": "dense",
        "bytes": 37 * 70 * 4,
        "holds": False,
        "groups": report.groups,
        "offending": report.offending,
        "histogram": list(report.histogram),
        "role": "weight",
        "axis": 1,
    }
    bias = next(tensor for tensor in found["tensors"] if tensor["name"] == "encoder.0.dense.bias")
    assert bias["holds"] is bias["groups"] is bias["offending"] is bias["histogram"] is None


def test_prune_as_json(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    result = cli("prune", checkpoint, tmp_path / "out", "--json", "--compressed", "--dtype", "f16")
    found = json.loads(result.stdout)
    assert found["kind"] == "prune" and found["compressed"] is True and found["copied"] == 3
    assert sorted(tensor["name"] for tensor in found["tensors"]) == sorted(PROJECTIONS)
    assert found["total"]["dense_bytes"] == sum(tensor["dense_bytes"] for tensor in found["tensors"])
    assert result.stderr.startswith("wrote ")


def test_doctor_as_json(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(cli("doctor", "--json").stdout)
    assert found["kind"] == "doctor" and found["ok"] is True and found["conclusions"]
    assert {"name", "ok", "value", "kind", "enables"} == set(found["facts"][0])

    def lost() -> str:
        raise FileNotFoundError("no ptxas")

    monkeypatch.setattr("louver.cli.commands.doctor._ptxas", lost)
    broken = cli("doctor", "--json")
    assert broken.exit_code == 1 and json.loads(broken.stdout)["ok"] is False


def test_tuned_schedules_as_json(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOUVER_CACHE_DIR", str(tmp_path))
    folder = tmp_path / "louver-cache"
    folder.mkdir()
    (folder / "odd.json").write_text("{")
    found = json.loads(cli("tune", "--show", "--json").stdout)
    assert found["kind"] == "tuned"
    odd, *package = found["entries"]
    assert odd["file"] == "odd.json" and odd["used"] is False and "damaged" in odd["reason"] and odd["sizes"] is None
    assert all(entry["used"] and entry["reason"] is None and len(entry["sizes"]) == 3 for entry in package)


def test_every_command_with_a_result_takes_the_same_options() -> None:
    bench = app.commands["bench"]
    results = [app.commands[name] for name in ("inspect", "prune", "doctor", "tune", "demo")]
    results += [bench.commands[name] for name in bench.commands]  # pyright: ignore
    for command in results:
        assert {"--json", "-o", "--output"} <= {name for option in command.params for name in option.opts}, command.name


def test_a_file_takes_the_result_and_standard_output_has_nothing(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    for options in ([], ["--json"]):
        printed = cli("inspect", checkpoint, *options).stdout
        result = cli("inspect", checkpoint, *options, "-o", tmp_path / "out")
        assert result.exit_code == 0 and not result.stdout
        assert result.stderr == f"wrote {tmp_path / 'out'}\n"
        assert (tmp_path / "out").read_text(encoding="utf-8") == printed
    compiled = cli("compile", "--problem", "64,64,64", "-o", tmp_path / "k.ptx")
    assert not compiled.stdout
    assert (tmp_path / "k.ptx").read_text() == cli("compile", "--problem", "64,64,64").stdout


def test_output_files_are_checked_before_any_work(
    cli: Cli, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out, fifo = tmp_path / "out", tmp_path / "fifo"
    os.mkfifo(fifo)
    before = checkpoint.read_bytes()
    (tmp_path / "link").symlink_to(checkpoint)
    assert "no such folder: make it first" in cli.refused("prune", checkpoint, out, "-o", tmp_path / "none" / "x")
    assert "is a FIFO: only a regular file is replaced" in cli.refused("prune", checkpoint, out, "-o", fifo)
    assert "is a directory: only a regular file is replaced" in cli.refused("prune", checkpoint, out, "-o", tmp_path)
    for same in (checkpoint, checkpoint.name, "link", out):
        assert "is the file of another argument" in cli.refused("prune", checkpoint, out, "-o", same)
    assert "is the file of another argument" in cli.refused("compile", "k.ttir", "-o", "k.ttir")
    assert "is the file of another argument" in cli.refused("compile", "k.py:name", "-o", "k.py")
    assert not out.exists() and checkpoint.read_bytes() == before


def test_results_and_notes_go_apart(checkpoint: Path, tmp_path: Path) -> None:
    done = run("prune", checkpoint, tmp_path / "out")
    assert done.stdout.splitlines()[0] == "2:4 by magnitude; 3 tensors copied"
    assert "wrote" not in done.stdout
    # No bar where there is no terminal.
    assert re.fullmatch(rf"wrote {tmp_path / 'out'} \(dense with zeros, [\d.]+ KiB\)\n", done.stderr)
    plotted = run("plot", Path(__file__).parents[3] / "benchmarks/results/h200/gemm.json", tmp_path / "x.png")
    assert plotted.returncode == 0 and not plotted.stdout and plotted.stderr == f"wrote {tmp_path / 'x.png'}\n"


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_tables_fit_the_terminal_and_lose_nothing(columns: int, checkpoint: Path, names: set[str]) -> None:
    lines = on_terminal(columns, "inspect", checkpoint)
    assert max(map(cells, lines)) <= columns
    text = "".join(line.strip() for line in lines).replace(" ", "")
    assert all(part in text for name in names for part in re.split(r"[._]", name))
    for cell in ("37×70", "9×128", "f32", "int64", "no:629", "format:pt", "5tensors"):
        assert cell in text
    facts = on_terminal(columns, "doctor")
    assert max(map(cells, facts)) <= columns
    assert "ptxas" in "".join(facts) and "Louver can" in "".join(facts)


@pytest.mark.parametrize("arguments", [["--help"], ["bench", "gemm", "--help"], ["compile", "--help"], ["prune", "-h"]])
def test_help_fits_forty_columns(arguments: Sequence[str]) -> None:
    lines = on_terminal(40, *arguments)
    assert max(map(len, lines)) <= 40


def test_pipes_get_lines_of_any_length(cli: Cli, tmp_path: Path, rng: np.random.Generator) -> None:
    name = "layer." * 60 + "weight"
    louver.save(tmp_path / "in", {name: rng.standard_normal((3, 8))})
    done = run("inspect", tmp_path / "in")
    assert name in done.stdout
    assert name not in cli("inspect", tmp_path / "in", columns="80").stdout, "COLUMNS says a width in a pipe, too"


@pytest.mark.parametrize("variables", [{"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "latin-1"}])
def test_other_encodings_of_standard_output(
    checkpoint: Path, tmp_path: Path, rng: np.random.Generator, variables: dict[str, str]
) -> None:
    louver.save(tmp_path / "in", {"重み": rng.standard_normal((3, 8)), "größe": rng.standard_normal((3, 8))})
    for arguments in (["inspect", tmp_path / "in"], ["doctor"], ["tune", "--show"], ["--help"]):
        command = [*LOUVER, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, timeout=60, env={**os.environ, "LANG": "C", **variables})
        assert done.returncode == 0 and not done.stderr, done.stderr
        encoding = variables["PYTHONIOENCODING"]
        text = done.stdout.decode(encoding)
        if arguments[0] == "inspect":
            assert r"\u91cd\u307f" in text and "3x8" in text.replace("×", "x")
            assert ("größe" if encoding == "latin-1" else r"gr\xf6\xdfe") in text
    failed = run("inspect", "größe", env=variables, encoding=variables["PYTHONIOENCODING"])
    assert failed.returncode == 1 and not failed.stdout and failed.stderr.startswith("error: gr")


@pytest.mark.parametrize("arguments", [["doctor"], ["doctor", "--json"], ["compile", "--problem", "64,64,64"]])
def test_a_reader_that_goes_away_is_no_error(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*LOUVER, *arguments], stdout=writer, stderr=subprocess.PIPE, timeout=60)
    os.close(writer)
    assert done.stderr == b"" and done.returncode == 1


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_and_a_closed_output_are_errors(unbuffered: str) -> None:
    buffering = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*LOUVER, "doctor"], stdout=full, stderr=subprocess.PIPE, timeout=60, env=buffering)
    assert done.returncode == 1 and done.stderr == b"error: No space left on device\n"
    closed = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *LOUVER, "doctor"], capture_output=True, timeout=60)
    assert closed.returncode == 1 and b"error: standard output is closed" in closed.stderr


def test_exit_codes(cli: Cli, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "current_device", lambda: NoDevice("no driver here"))
    (tmp_path / "damaged").write_bytes(checkpoint.read_bytes()[:-9])
    (tmp_path / "no").mkdir()
    failed = [
        ["inspect", "nowhere"],
        ["inspect", tmp_path / "damaged"],
        ["inspect", tmp_path / "no"],
        ["bench", "host"],
    ]
    usage = [
        ["nosuch"],
        ["inspect"],
        ["inspect", checkpoint, "--nosuch"],
        ["inspect", checkpoint, "--pattern", "4:2"],
        ["prune", checkpoint, checkpoint],
        ["compile", "--emit", "nosuch"],
        ["completion", "tcsh"],
    ]
    assert [cli(*arguments).exit_code for arguments in failed] == [1] * len(failed)
    assert [cli(*arguments).exit_code for arguments in usage] == [2] * len(usage)
    assert cli("inspect", "nowhere").stderr == "error: nowhere: No such file or directory\n"
    said = cli("prune", checkpoint).stderr
    assert said == "error: Missing argument 'OUT'. Usage: louver prune [OPTIONS] IN OUT\n"


def test_groups_without_a_command_show_their_help(cli: Cli) -> None:
    for arguments in ([], ["bench"]):
        result = cli(*arguments)
        assert result.exit_code == 2 and not result.stdout
        assert result.stderr.startswith("Usage: ") and "Commands:" in result.stderr


def test_an_interrupt_is_one_line() -> None:
    code = (
        "import os, signal, louver.cli.commands.doctor as doctor, louver.cli as cli\n"
        "doctor.examine = lambda: os.kill(os.getpid(), signal.SIGINT)\n"
        "cli.app(['doctor'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 128 + signal.SIGINT
    assert done.stderr.strip() == "error: interrupted"
