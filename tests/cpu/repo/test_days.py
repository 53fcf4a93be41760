from __future__ import annotations

import argparse
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from support.days import VARIABLE, WEEK, cases_of_day, parse_day

pytest_plugins = ("pytester",)

ROOT = Path(__file__).resolve().parents[3]
MONDAY = date(2026, 11, 30)


def day(number: int) -> str:
    return (MONDAY + timedelta(number)).isoformat()


@pytest.mark.parametrize("days", range(1, WEEK + 1))
@pytest.mark.parametrize("count", [1, 2, 5, 7, 8, 100, 173])
def test_every_case_runs_once_in_as_many_days(days: int, count: int) -> None:
    cases = [f"tests/a.py::test[{i}-f16]" for i in range(count)]
    chosen = [cases_of_day(cases, days, day(i)) for i in range(days)]
    parts = min(days, count)
    assert set().union(*chosen[:parts]) == set(cases)
    assert sum(map(len, chosen[:parts])) == count
    assert {len(each) for each in chosen} <= {count // parts, -(-count // parts)}
    assert cases_of_day(cases, days, day(parts)) in chosen
    mondays = [cases_of_day(cases, days, day(WEEK * week)) for week in range(parts)]
    assert parts < WEEK or set().union(*mondays) == set(cases), "who tests on Mondays only runs all"


def test_the_order_of_the_cases_does_not_matter() -> None:
    cases = [f"tests/a.py::test[{i}]" for i in range(50)]
    assert cases_of_day(cases, 7, day(3)) == cases_of_day(cases[::-1], 7, day(3))


def test_no_parameter_has_a_day_of_its_own() -> None:
    """Seven types in the order of the cases: every seventh case would be of one type."""
    cases = [f"tests/a.py::test[{size}-type{kind}]" for size in range(40) for kind in range(7)]
    for number in range(7):
        kinds = Counter(case[-2] for case in cases_of_day(cases, 7, day(number)))
        assert len(kinds) == 7 and max(kinds.values()) < 16


def test_tests_begin_on_different_days() -> None:
    """Of tests of eight cases in seven parts one day has two: not the same day for all."""
    counts = Counter(
        number
        for test in range(70)
        for number in range(7)
        for _ in cases_of_day([f"tests/{test}.py::test[{i}]" for i in range(8)], 7, day(number))
    )
    assert max(counts.values()) < 1.2 * min(counts.values())


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11", "2026-13-01", "7"])
def test_what_is_no_day_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="the day is a date such as 2026-11-28, or today, got"):
        parse_day(text)


def test_days() -> None:
    assert parse_day("2026-11-28") == "2026-11-28"
    assert abs((date.fromisoformat(parse_day("today")) - datetime.now(UTC).date()).days) <= 1


TESTS = """
import pytest

@pytest.mark.sampled(3)
@pytest.mark.parametrize("i", range(10))
def test_many(i): pass

@pytest.mark.sampled(7)
@pytest.mark.parametrize("i", [pytest.param(0, marks=pytest.mark.slow), 1, 2])
def test_with_a_slow_case(i): pass

@pytest.mark.sampled(5)
def test_one(): pass

@pytest.mark.parametrize("i", range(4))
def test_unmarked(i): pass
"""
COUNT = 10 + 3 + 1 + 4


NAMES = {"test_many", "test_with_a_slow_case", "test_one", "test_unmarked"}

WORKERS = ("-p", "xdist", "-n", "2")

CONFTEST = """
from support.days import Days, add_option

def pytest_addoption(parser):
    add_option(parser.getgroup("louver"))

def pytest_configure(config):
    config.pluginmanager.register(Days(config), "louver-days")
    for line in ("sampled(n): days", "slow: minutes"):
        config.addinivalue_line("markers", line)
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder of tests with the plugin."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.syspath_prepend(str(ROOT / "tests"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests"))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_it=TESTS)
    return pytester


def ran(project: pytest.Pytester, *options: str) -> set[str]:
    """The tests that passed: in this process, or where the options name workers, in others."""
    run = project.runpytest_subprocess if "xdist" in options else project.runpytest_inprocess
    done = run("-rp", "-p", "no:cacheprovider", *options)
    assert done.ret == 0
    return {line.partition("::")[2] for line in done.outlines if line.startswith("PASSED ")}


def test_a_week_runs_every_case_and_each_day_one_of_every_test(project: pytest.Pytester) -> None:
    counts: Counter[str] = Counter()
    for number in range(6):
        today = ran(project, "-m", "not slow", "--day", day(number))
        assert len(today) < COUNT - 1
        assert {case.partition("[")[0] for case in today} == NAMES
        counts.update(today)
    # The three parts of ten cases have two turns, the two parts of two cases three; what has one case runs each day.
    assert counts == {
        **{f"test_many[{i}]": 2 for i in range(10)},
        **{f"test_with_a_slow_case[{i}]": 3 for i in (1, 2)},
        "test_one": 6,
        **{f"test_unmarked[{i}]": 6 for i in range(4)},
    }


def test_without_the_marker_expression_every_case_runs(project: pytest.Pytester) -> None:
    assert len(ran(project, "--day", day(0))) == COUNT


def test_workers_select_what_one_process_selects(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    one = ran(project, "-m", "not slow", "--day", day(1))
    monkeypatch.setenv(VARIABLE, day(1))
    assert one == ran(project, *WORKERS, "-m", "not slow")


@pytest.mark.parametrize("workers", [(), WORKERS])
def test_the_run_says_its_day_and_how_to_repeat_it(project: pytest.Pytester, workers: tuple[str, ...]) -> None:
    run = project.runpytest_subprocess if workers else project.runpytest_inprocess
    lines = run("-m", "not slow", "--day", "2026-11-28", *workers).outlines
    how = "to repeat it: LOUVER_TEST_DAY=2026-11-28 make test (or --day 2026-11-28)"
    assert f"day: 2026-11-28 of the tests marked sampled; {how}" in lines
    today = len(ran(project, "-m", "not slow", "--day", "2026-11-28")) - 4
    again = "LOUVER_TEST_DAY=2026-11-28 repeats it"
    assert f"day 2026-11-28: {today} of the week's 13 sampled cases; {again}" in lines


def test_a_run_of_every_case_has_no_day(project: pytest.Pytester) -> None:
    assert "2026-11-28" not in project.runpytest_inprocess("--day", "2026-11-28").stdout.str()


def test_a_bad_day_is_refused(project: pytest.Pytester) -> None:
    refused = project.runpytest_inprocess("--day", "monday")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(["*the day is a date such as 2026-11-28, or today, got 'monday'"])


@pytest.mark.parametrize(
    "given", ["0", "8", "2.5", "True", "", "1, 2, 3", "n=2", "2, every=0", "2, every=2.5", "every=2"]
)
def test_a_bad_number_of_days_is_refused(project: pytest.Pytester, given: str) -> None:
    project.makepyfile(test_it=f"import pytest\n@pytest.mark.sampled({given})\ndef test_one(): pass\n")
    refused = project.runpytest_inprocess()
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    rule = "sampled(n, every=1) takes a number of days from 1 to 7, and of how many cases one takes part"
    refused.stderr.fnmatch_lines([f"*test_it.py::test_one: {rule}: *"])


def test_every_third_case_takes_part(project: pytest.Pytester) -> None:
    marker = "pytest.mark.sampled(2, every=3)"
    slow = "pytest.param(0, marks=pytest.mark.slow)"
    cases = f"pytest.mark.parametrize('i', [{slow}, *range(1, 16)])"
    project.makepyfile(test_it=f"import pytest\n@{marker}\n@{cases}\ndef test_one(i): pass\n")
    days = [ran(project, "-m", "not slow", "--day", day(number)) for number in range(2)]
    weeks = [
        {case for d in (0, 1) for case in ran(project, "-m", "not slow", "--day", day(7 * w + d))} for w in range(3)
    ]
    thirds = [{f"test_one[{i}]" for i in range(first, 16, 3)} - {"test_one[0]"} for first in range(3)]
    assert sorted(map(sorted, weeks)) == sorted(map(sorted, thirds)) and days[0] | days[1] in thirds
    assert len(ran(project)) == 16


def test_a_test_may_be_slow_as_a_whole(project: pytest.Pytester) -> None:
    project.makepyfile(test_it="import pytest\n@pytest.mark.slow\n@pytest.mark.sampled(2)\ndef test_one(): pass\n")
    assert project.runpytest_inprocess("-m", "not slow").ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_cases_of_a_folder_that_the_command_names_are_of_the_day_too(pytester: pytest.Pytester) -> None:
    """The hook of tests/emulated, whose conftest is then loaded before the days are dealt."""
    file = ROOT / "tests" / "emulated" / "tiles" / "test_constant_divisors.py"
    options = (
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(ROOT),
        "-c",
        str(ROOT / "pyproject.toml"),
    )
    every, of_day = (
        pytester.runpytest_subprocess(*options, "--day", day(0), "-m", each, file).outlines
        for each in ("", "sampled and not slow")
    )
    cases, chosen = ([line for line in lines if "::test" in line] for lines in (every, of_day))
    tests = {each.partition("[")[0] for each in cases}
    assert {each.partition("[")[0] for each in chosen} == tests and len(chosen) < len(cases)
