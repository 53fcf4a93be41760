"""That pictures are legible is checked wherever one is written in this folder; here for the committed ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from louver.measure.report.canvas import figure, write
from louver.measure.report.records import draw
from support.pictures import Picture

RECORDS = sorted(
    path.with_suffix(".json") for path in (Path(__file__).parents[4] / "benchmarks" / "results").rglob("*.png")
)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.stem)
def test_committed_pictures_are_legible(record: Path, tmp_path: Path, pictures: list[Picture]) -> None:
    draw(record, tmp_path / "drawn.png")
    assert pictures[0].texts and pictures[0].marks


def test_a_picture_replaces_regular_files_only(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(ValueError, match="is a FIFO: only a regular file is replaced"):
        write(figure(1, 1), fifo)


def test_faults_are_found(tmp_path: Path, pictures: list[Picture]) -> None:
    made = figure(4, 3)
    axes = made.subplots()
    axes.bar([0, 1], [3, 2])
    axes.plot([0.5], [2.5], "o")
    axes.plot([0], [3.1], "o")
    axes.set_ylim(0, 3.1)
    axes.set_xticks([0, 1], ["a name", "of a bar"])
    axes.annotate("on a marker", (0.5, 2.5))
    axes.annotate("in a bar", (1, 1), ha="center")
    axes.annotate("beyond the edge", (1.2, 2.5))
    made.text(0.5, 0.95, "a title")
    made.text(0.52, 0.96, "a second title")
    write(made, tmp_path / "faults.png")
    (picture,) = pictures
    assert picture.faults() == [
        "'beyond the edge' is cut off",
        "a marker is cut off by its axes",
        "'on a marker' lies over a marker",
        "'in a bar' lies over a bar",
        "'a title' lies over 'a second title'",
    ]
    pictures.clear()
