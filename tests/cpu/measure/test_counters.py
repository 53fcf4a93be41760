from __future__ import annotations

import sys
from pathlib import Path

import pytest

import counters
from counters import (
    METRICS,
    KernelCounters,
    NoCountersError,
    by_contender,
    choose_metrics,
    find_ncu,
    known_metrics,
    parse_counters,
    profile,
)

NAMES = {"nanoseconds": "gpu__time_duration.sum", "registers": "launch__registers_per_thread", "cycles": "sm__c.max"}

PAGE = """==PROF== Connected to process 7
"ID","Process ID","Kernel Name","gpu__time_duration.sum","launch__registers_per_thread","sm__c.max"
"","","","ns","register/thread","cycle"
"0","7","linear_f16(a, b)","485,118.5","168","n/a"
"1","7","other","1","32","9"
==PROF== Disconnected
"""


def test_reads_the_raw_page() -> None:
    assert parse_counters(PAGE, NAMES) == [
        KernelCounters("linear_f16(a, b)", {"nanoseconds": 485118.5, "registers": 168}),
        KernelCounters("other", {"nanoseconds": 1, "registers": 32, "cycles": 9}),
    ]
    assert parse_counters("==ERROR== no", NAMES) == []


def test_takes_the_first_name_that_the_chip_has() -> None:
    chosen = choose_metrics(["sm__pipe_tensor_op_gmma_cycles_active", "lts__t_sectors"])
    assert chosen["tensor_active_percent"].startswith("sm__pipe_tensor_op_gmma_cycles_active.")
    assert chosen["l2_sectors"] == "lts__t_sectors.sum"
    assert chosen["registers"] == "launch__registers_per_thread"
    assert "bank_reads_percent" not in chosen
    assert list(choose_metrics([])) == list(METRICS)


def test_kernels_belong_to_the_contender_before_which_a_separator_stands() -> None:
    kernels = [
        KernelCounters(name, {}) for name in ("early", "spin_kernel", "a", "b", "spin_kernel", "c", "spin_kernel", "d")
    ]
    found = by_contender(kernels, ["ours", "theirs"], "spin_kernel")
    assert {name: [kernel.kernel for kernel in of] for name, of in found.items()} == {
        "ours": ["a", "b"],
        "theirs": ["c"],
    }


def tool(folder: Path, body: str) -> Path:
    path = folder / "ncu"
    path.write_text(f"#!{sys.executable}\nimport sys\n{body}\n")
    path.chmod(0o755)
    return path


WRITES = "log = sys.argv[sys.argv.index('--log-file') + 1]\nopen(log, 'w').write({text!r})"


def test_runs_the_tool_and_leaves_the_clock_alone(tmp_path: Path) -> None:
    ncu = tool(tmp_path, WRITES.format(text=PAGE) + "\nassert 'none' in sys.argv and sys.argv[-1] == 'program'")
    assert len(profile(ncu, NAMES, ["program"], tmp_path / "log")) == 2


@pytest.mark.parametrize(
    ("text", "printed", "reason"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - no permission", "", "ERR_NVGPUCTRPERM"),
        ("", "Traceback\\nValueError: wrong shape", "wrong shape"),
        ("", "", "said nothing"),
    ],
)
def test_a_refusal_has_its_reason(tmp_path: Path, text: str, printed: str, reason: str) -> None:
    ncu = tool(tmp_path, WRITES.format(text=text) + f"\nprint('{printed}')")
    with pytest.raises(NoCountersError, match=reason):
        profile(ncu, NAMES, ["program"], tmp_path / "log")


def test_a_run_that_takes_too_long_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "SECONDS", 0.3)
    with pytest.raises(NoCountersError, match=r"more than 0\.3 s"):
        profile(tool(tmp_path, "import time; time.sleep(20)"), NAMES, ["program"], tmp_path / "log")


def test_finds_the_tool_and_what_it_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ncu = tool(tmp_path, "print('Device GH100')\nprint('-' * 9)\nprint('sm__throughput   %   text')\nprint()")
    assert known_metrics(ncu) == ["sm__throughput"]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_ncu() == ncu
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(counters, "PLACES", (str(tmp_path),))
    assert find_ncu() == ncu
    monkeypatch.setattr(counters, "PLACES", (str(tmp_path / "none"),))
    with pytest.raises(NoCountersError, match="install Nsight Compute"):
        find_ncu()
    assert known_metrics(tmp_path / "missing") == []
