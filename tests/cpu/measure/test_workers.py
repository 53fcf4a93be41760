"""Tasks in processes of their own: turns, crashes, hangs."""

from __future__ import annotations

from pathlib import Path

import pytest

from louver.measure.workers import Lost, share_out
from support.shared_tasks import act


def run(*tasks: str, jobs: int = 2, limit: float = 30) -> dict[str, str | Lost]:
    return dict(share_out(tasks, act, jobs=jobs, limit=limit, environment={"LOUVER_TEST": "here"}))


def test_a_crash_and_a_hang_cost_their_own_tasks_only() -> None:
    found = run("crash", "hang", "variable LOUVER_TEST", "plain", limit=4)
    assert found.pop("crash") == Lost("the process ended with exit code 3")
    assert found.pop("hang") == Lost("it took longer than 4 s")
    assert found.pop("variable LOUVER_TEST") == "here"
    assert isinstance(found["plain"], str)


def test_one_process_at_a_time_has_the_device(tmp_path: Path) -> None:
    # The same file for all: a process that finds it there would crash.
    tasks = [f"turn {tmp_path}/{'./' * each}device" for each in range(5)]
    assert all(isinstance(result, str) for result in run(*tasks, jobs=3).values())


def test_a_process_does_tasks_until_it_says_that_it_cannot() -> None:
    found = run("one", "two", "last", "three", jobs=1)
    assert found["one"] == found["two"] == found["last"] != found["three"]


def test_tasks_print_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    run("print")
    out, err = capfd.readouterr()
    assert not out and "noise" in err


def test_refuses_no_jobs_and_no_time() -> None:
    with pytest.raises(ValueError, match="one or more jobs, and seconds for each task, got 0 and 30"):
        run("one", jobs=0)
