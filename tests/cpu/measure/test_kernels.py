"""`louver bench kernels` without a GPU: kernels are interpreted, times made up."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import louver
from louver.cli.commands import kernels as command
from louver.cli.commands.kernels import bench_kernels, wanted
from louver.measure import kernels as bench
from louver.measure.kernels import Task, describe, load_forms, measure, without_folder
from louver.measure.report.kernels import read_kernels
from louver.measure.workers import Lost
from louver.ptx.sass import DisassemblerMissingError
from louver.runtime.cache import KernelCache
from louver.user import compiled

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

FORMS = """
from dataclasses import replace
from louver.measure.forms import Form, Sizes
from support.triton.forms import plain

FORM = plain.FORMS[0]
FIRST = replace(FORM, name="{name}", small=Sizes(40, 24, 40, 32, 32, 32), large=(Sizes(64, 32, 64, 64, 32, 32),))
FORMS = (FIRST, replace(FIRST, name="wrong", build=lambda draw, s: wrong(FIRST.build(draw, s))),
         replace(FIRST, name="refused", build=lambda draw, s: refuse()))

def refuse():
    raise ValueError("a rule, got something else")

def wrong(call):
    return replace(call, expected=lambda: {{"y": 2 * call.expected()["y"]}}, library=lambda a: a["w"] @ a["x"])
"""


class Tensor(np.ndarray[Any, Any]):
    """A NumPy array with what the benchmark takes of PyTorch's tensors."""

    def cuda(self) -> Tensor:
        return self.copy()

    def double(self) -> Tensor:
        return self.astype(np.float64)

    def abs(self) -> Tensor:
        return np.abs(self)

    def clone(self) -> Tensor:
        return self.copy()

    def copy_(self, other: Tensor) -> None:
        self[...] = other


class Load:
    """Times that are made up."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def burst(self) -> float:
        return self.seconds


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SimpleNamespace]:
    """A machine where PyTorch is NumPy, Triton's kernels are interpreted, and each contender takes longer than the one before."""
    from triton.runtime.jit import JITFunction

    cuda = SimpleNamespace(synchronize=lambda: None, empty_cache=lambda: None)
    kinds = {name: np.dtype(name) for name in ("float16", "float64", "float32")}
    matmul = SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace()))
    torch = SimpleNamespace(from_numpy=lambda a: a.view(Tensor), cuda=cuda, backends=matmul, **kinds)
    prepared: list[int] = []

    def prepare(_torch: Any, call: Any, sets: int, _protocol: Any) -> Load:
        call(0)
        prepared.append(sets)
        return Load(1e-5 * len(prepared))

    def warmup(_kernel: Any, *, num_stages: int, **_: Any) -> None:
        if num_stages == 4:
            raise RuntimeError("too deep")

    cache = KernelCache(tmp_path / "cache")
    monkeypatch.setattr(compiled, "kernel_cache", lambda: cache)
    real = bench.import_module
    monkeypatch.setattr(bench, "import_module", lambda name: torch if name == "torch" else real(name))
    monkeypatch.setattr(bench, "prepare", prepare)
    monkeypatch.setattr(bench.time, "sleep", lambda _: None)
    monkeypatch.setattr(JITFunction, "warmup", warmup)
    monkeypatch.setattr(JITFunction, "__getitem__", lambda kernel, grid: louver.jit(kernel)[grid])
    yield torch


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / f"forms_of_{tmp_path.name}.py"
    path.write_text(FORMS.format(name="tiny product"))
    return path


def test_a_row_has_times_of_all_and_facts_of_ours(machine: Any, file: Path) -> None:
    row, more = measure(Task(file, "tiny product", 0), lambda: None)
    assert more and not {"failed", "refused"} & set(row), str(row)
    # Triton's options (4, 3) and (8, 3) are prepared first, then ours.
    assert (row["triton_us"], row["louver_us"], row["times_dense"]) == (10.0, 30.0, 0.333)
    assert row["options"] == "num_warps=4, num_stages=3"
    assert row["family"] == "product" and row["registers"] > 0
    assert any(unit.upper().endswith(".SP") for unit in row["unit"])
    assert row["spilled_bytes"] == 0 and 0 < row["compile_s"] <= row["first_call_s"]


def test_the_general_path_takes_products(machine: Any, file: Path) -> None:
    row, _ = measure(Task(file, "tiny product", 0, general=True), lambda: None)
    assert row["family"] == "register tiles"


def test_what_goes_wrong_is_a_row(machine: Any, file: Path) -> None:
    wrong, more = measure(Task(file, "wrong", 0), lambda: None)
    assert (
        more and wrong["failed"].startswith("ArithmeticError: y at small sizes is wrong: off by 4.") and "grid" in wrong
    )
    refused, _ = measure(Task(file, "refused", 0), lambda: None)
    assert refused == {"refused": "a rule, got something else"}

    def broken() -> None:
        raise RuntimeError("the context is gone")

    machine.cuda.synchronize = broken
    row, more = measure(Task(file, "tiny product", 0), lambda: None)
    assert row["failed"] == "RuntimeError: the context is gone" and not more


def test_without_a_disassembler_units_are_those_of_the_ptx(
    machine: Any, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_: bytes) -> str:
        raise DisassemblerMissingError

    monkeypatch.setattr(bench, "disassemble", missing)
    row, _ = measure(Task(file, "tiny product", 0, general=True), lambda: None)
    assert set(row["unit"]) <= {"wgmma.sp", "mma.sp"} and sum(row["unit"].values()) > 0


def test_without_a_dense_kernel_the_row_says_why(machine: Any, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "OPTIONS", ((4, 4),))
    row, _ = measure(Task(file, "tiny product", 0), lambda: None)
    assert row["triton"] == "RuntimeError: too deep" and row["louver_us"] == 10.0 and "times_dense" not in row
    assert command.progress_line(describe(load_forms(file)["tiny product"], 0) | row).endswith("RuntimeError: too deep")


def test_every_task_has_a_row_and_the_record_is_drawn(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def share_out(tasks: list[Task], work: Any, **options: Any) -> Iterator[tuple[Task, Any]]:
        assert work is measure and options["jobs"] == 3 and "LOUVER_CACHE_DIR" in options["environment"]
        times = {"louver_us": 10.0, "triton_us": 15.0, "times_dense": 1.5, "family": "product", "unit": {"HGMMA.SP": 4}}
        yield from zip(tasks, (times, Lost("the process ended with exit code 3"), {"refused": "no"}), strict=True)

    monkeypatch.setattr(command, "require_torch", lambda: None)
    monkeypatch.setattr(
        command, "host_header", lambda _: {"device": "NVIDIA H200", "versions": {}, "date": "2026-01-02"}
    )
    monkeypatch.setattr(command, "share_out", share_out)
    result = bench_kernels([file], tmp_path, jobs=3)
    record = json.loads((tmp_path / "kernels.json").read_text(encoding="utf-8"))
    assert json.loads(result.json()) == record
    assert [row["form"] for row in record["rows"]] == ["tiny product", "wrong", "refused"]
    assert record["rows"][1]["failed"] == "the process ended with exit code 3"
    assert {
        name: record["summary"][name] for name in ("forms", "accepted", "refused", "failed", "sparse_by_warpgroup")
    } == {
        "forms": 3,
        "accepted": 1,
        "refused": 1,
        "failed": 1,
        "sparse_by_warpgroup": 1,
    }
    assert read_kernels(tmp_path / "kernels.json").rows[0].times_dense == 1.5
    assert (tmp_path / "kernels.png").read_bytes().startswith(b"\x89PNG")


def test_forms_are_found_in_files_and_folders(file: Path, tmp_path: Path) -> None:
    assert [name for _, name in wanted([tmp_path], ())] == ["tiny product", "wrong", "refused"]
    assert [name for _, name in wanted([file], ("wrong",))] == ["wrong"]
    with pytest.raises(ValueError, match="--only takes names of forms, refused, tiny product, wrong, got 'other'"):
        wanted([file], ("other",))
    with pytest.raises(ValueError, match="forms have names of their own, got two named 'refused': rename one"):
        wanted([tmp_path, file], ())
    with pytest.raises(ValueError, match="a file of forms is a Python file with a tuple FORMS, got /nowhere.py"):
        wanted([Path("/nowhere.py")], ())
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="forms are in the tuple FORMS of a Python file, got none in"):
        wanted([tmp_path / "none"], ())


def test_files_and_forms_have_names_of_their_own(file: Path, tmp_path: Path) -> None:
    load_forms(file)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / file.name).write_text("FORMS = ()")
    with pytest.raises(ValueError, match="files of forms have names of their own"):
        load_forms(tmp_path / "other" / file.name)
    twice = tmp_path / f"twice_{tmp_path.name}.py"
    twice.write_text(FORMS.format(name="wrong"))
    with pytest.raises(ValueError, match="forms of a file have names of their own, got two of one name in"):
        load_forms(twice)


def test_a_record_names_files_from_the_current_folder_on() -> None:
    text = f"products at {Path.cwd() / 'forms' / 'chains.py'}:45:31, /elsewhere/a.py:1:2"
    assert without_folder(text) == "products at forms/chains.py:45:31, /elsewhere/a.py:1:2"
