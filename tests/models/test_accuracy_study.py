"""`benchmarks/accuracy.py` on a tiny model: its rows, what it continues, merges and leaves out."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
pytest.importorskip("gguf")
pytest.importorskip("transformers")

import accuracy  # noqa: E402
import accuracy_cases as cases  # noqa: E402

from louver.measure.report.accuracy import read_accuracy  # noqa: E402
from support import packed_model  # noqa: E402

BEGIN = cases.Case("2:4", "SparseGPT c.+r.", {**cases.BEST, "method": "sparsegpt"})
SMALL = {
    "oneshot": (cases.Case("2:4", "magnitude"), cases.Case("2:4", "Wanda", {"method": "wanda"})),
    "kept": (BEGIN,),
    "parts": (cases.Case("2:4 on half", "ADMM", cases.BEST, ("25%", ("2:4",))),),
    "distilled": (cases.distilled(BEGIN, 0.02, e4m3=True),),
}
PROGRAM = ["--device", "cpu", "--length", "32", "--windows", "2", "--calibration", "16", "--generate", "64"]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("packed")
    packed_model.pack(folder)
    return ["--parts", str(folder / "acc0"), str(folder / "acc1")]


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(accuracy, "stages", lambda share=1: SMALL)
    monkeypatch.setattr(
        accuracy, "CHOICES", {"choices": ({"damping": 0.1}, {"damping": 0.1, "calibration": "documents"})}
    )
    monkeypatch.setattr(sys, "argv", ["accuracy.py", *map(str, arguments)])
    accuracy.main()


def record(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def test_rows_of_all_stages_go_on_and_merge(
    monkeypatch: pytest.MonkeyPatch, parts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    run(monkeypatch, *parts, *PROGRAM, "--stages", "dense,oneshot,choices", "--out", a)
    first = record(a)
    assert [row["method"] for row in first["rows"]] == ["f32", "e4m3", "magnitude", "Wanda"] and not first["missing"]
    dense, rounded, magnitude, wanda = first["rows"]
    assert dense["ratio"] == {"articles": 1, "news": 1, "pydoc": 1} and dense["kl"] == 0 and dense["top1"] == 1
    assert 0 < rounded["kl"] < wanda["kl"] and magnitude["zeros"] == wanda["zeros"] == 0.5
    assert wanda["shares"]["q_proj"] == {"2:4": 1.0} and "layer_error" in wanda
    assert [row["options"] for row in first["choices"]] == [
        {"damping": 0.1},
        {"damping": 0.1, "calibration": "documents"},
    ]
    assert first["choices"][0]["ratio"].keys() == {"other_articles", "other_documents"}

    keep = ["--keep", tmp_path / "kept"]
    run(monkeypatch, *parts, *PROGRAM, "--stages", "own,kept", *keep, "--out", tmp_path / "kept.json")
    (pruned, written) = sorted(path.name for path in (tmp_path / "kept").iterdir())
    assert pruned == "2-4-SparseGPT-c-r-.pt" and re.fullmatch(r"own-\d+\.pt", written)
    run(monkeypatch, *parts, *PROGRAM, "--stages", "oneshot,parts,distilled", *keep, "--continue", a, "--out", b)
    assert "wrote" not in capsys.readouterr().out.rpartition("loaded")[2], "text of the other process is read"
    second = record(b)
    assert not second["missing"], second["missing"]
    assert second["rows"][:4] == first["rows"], "rows of the continued record are not measured again"
    half, distilled, rounded = second["rows"][4:]
    assert 0.2 < half["zeros"] < 0.4 and half["options"]["allocate"] == ["25%", ["2:4"]]
    assert distilled["method"] == "1 s distilled" and distilled["minutes"] == 0.02 and distilled["zeros"] == 0.5
    assert rounded["method"] == "1 s distilled, e4m3" and rounded["distillation"]["steps"] >= 1

    merged = tmp_path / "merged.json"
    run(monkeypatch, "--merge", a, b, "--out", merged)
    assert record(merged)["rows"] == second["rows"] and record(merged)["choices"] == first["choices"]
    assert len(read_accuracy(merged).rows) == 7
    assert "2:4 on half" in merged.with_suffix(".txt").read_text()


def test_a_spent_budget_is_the_reason_of_missing_rows(
    monkeypatch: pytest.MonkeyPatch, parts: list[str], tmp_path: Path
) -> None:
    run(monkeypatch, *parts, *PROGRAM, "--stages", "oneshot", "--budget", "0", "--out", tmp_path / "a.json")
    found = record(tmp_path / "a.json")
    assert found["rows"] == [] and found["missing"] == dict.fromkeys(
        ["2:4 magnitude", "2:4 Wanda"], "0 s were not enough"
    )


def test_an_error_is_the_reason_of_a_missing_row(
    monkeypatch: pytest.MonkeyPatch, parts: list[str], tmp_path: Path
) -> None:
    bad = {"oneshot": (cases.Case("2:4", "x", {"method": "x"}), cases.Case("2:4", "magnitude"))}
    monkeypatch.setitem(SMALL, "oneshot", bad["oneshot"])
    run(monkeypatch, *parts, *PROGRAM, "--stages", "oneshot", "--out", tmp_path / "a.json")
    found = record(tmp_path / "a.json")
    assert [row["method"] for row in found["rows"]] == ["magnitude"]
    assert found["missing"]["2:4 x"].startswith("ValueError: a method is one of magnitude")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"device": "H200"}, r"records of one device are merged, got 'H200' in .*b.json and 'H100'"),
        ({"texts": {"news": 2, "other": 1}}, r"records of the same texts are merged, got another news in .*b.json"),
    ],
)
def test_records_of_other_studies_are_not_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, object], message: str
) -> None:
    one = {**dict.fromkeys(("protocol", "model", "length", "calibration"), "same"), "rows": [], "missing": {}}
    one |= {"device": "H100", "texts": {"news": 1}}
    for name, made in (("a", one), ("b", {**one, **change})):
        (tmp_path / f"{name}.json").write_text(json.dumps(made))
    with pytest.raises(ValueError, match=message):
        run(monkeypatch, "--merge", tmp_path / "a.json", tmp_path / "b.json", "--out", tmp_path / "c.json")
