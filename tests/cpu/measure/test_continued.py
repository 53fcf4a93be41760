"""Records that a run may continue, and those that it may not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from louver.measure.measurement import Measurement
from louver.measure.problems import GemmProblem
from louver.measure.protocol import SHORT, Protocol
from louver.measure.record import gemm_record, read_continued, write_record
from louver.measure.report.gemm import GemmRow

WANTED = [GemmProblem(64, 32, 64, "s8", out) for out in ("f16", "s32")]
HEADER: dict[str, Any] = {"device": "a GPU", "versions": {"louver": "0", "commit": "abc"}, "date": "2026-01-02"}


def taken(problem: GemmProblem) -> Measurement:
    return Measurement(GemmRow(problem.shape, problem.dtype, "linear", {"ours": 2.0}, problem.out), {}, {})


def begun(folder: Path, **changed: Any) -> Path:
    record = gemm_record(HEADER, SHORT, [taken(WANTED[1])], [str(WANTED[0])])
    return write_record(folder / "gemm-models.json", {**record, **changed})


def test_rows_are_known_by_their_problem(tmp_path: Path) -> None:
    found = read_continued(begun(tmp_path), {**HEADER, "date": "2026-02-02"}, SHORT, WANTED)
    assert found.date == "2026-01-02"
    assert found.taken == {1: taken(WANTED[1])}


def test_a_record_of_an_installed_package_has_no_commit(tmp_path: Path) -> None:
    header = {**HEADER, "versions": {"louver": "0"}}
    assert read_continued(begun(tmp_path, versions={"louver": "0"}), header, SHORT, WANTED).taken == {
        1: taken(WANTED[1])
    }


def test_rows_of_a_changed_checkout_say_it(tmp_path: Path) -> None:
    header = {**HEADER, "versions": {**HEADER["versions"], "commit": "abc+"}}
    found = read_continued(begun(tmp_path, versions=header["versions"]), header, SHORT, WANTED)
    assert found.taken == {1: replace(taken(WANTED[1]), commit="abc+")}


def test_rows_of_another_commit_say_it(tmp_path: Path) -> None:
    later = {**HEADER, "versions": {**HEADER["versions"], "commit": "def"}}
    found = read_continued(begun(tmp_path), later, SHORT, WANTED)
    assert found.taken == {1: replace(taken(WANTED[1]), commit="abc")}
    again = write_record(tmp_path / "again.json", gemm_record(later, SHORT, list(found.taken.values()), []))
    assert (
        read_continued(again, {**later, "versions": {**HEADER["versions"], "commit": "ghi"}}, SHORT, WANTED).taken
        == found.taken
    )
    assert read_continued(again, HEADER, SHORT, WANTED).taken == {1: taken(WANTED[1])}


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"device": "another"}, "the same device, here a GPU, got another in gemm-models.json"),
        ({"versions": {**HEADER["versions"], "driver": "5"}}, "the same driver, here none, got 5"),
        ({"data": "zeros"}, "the same data, here random normal weights .*, got zeros"),
        ({"protocol": Protocol().describe()}, "the same protocol, here Bursts: .*, got Bursts: .* continue it where it was begun, or"),
        ({"kind": "nm"}, "expected schema 1 and kind 'gemm', got 1 and 'nm'"),
        ({"rows": [{"shape": [1, 2, 3]}]}, "a gemm record needs 'dtype'"),
    ],
)  # fmt: skip
def test_another_record_is_refused(tmp_path: Path, changed: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        read_continued(begun(tmp_path, **changed), HEADER, SHORT, WANTED)


def test_a_row_that_is_not_measured_is_refused(tmp_path: Path) -> None:
    rule = r"all problems of the record that it continues, got 64×32×64 s8→s32 in gemm-models.json: give the record's --suite"
    with pytest.raises(ValueError, match=rule):
        read_continued(begun(tmp_path), HEADER, SHORT, WANTED[:1])


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"gemm.json"):
        read_continued(tmp_path / "gemm.json", HEADER, SHORT, WANTED)
