"""Bars of a command with several phases, on a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from louver.cli.commands.notes import phases


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_each_phase_has_a_bar_with_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with phases() as shown:
        shown("loading", 0)
        for share in (0.25, 0.5, 1):
            shown("pruning", share)
        shown("writing", 1)
    text = screen.getvalue()
    assert [text.index(label) for label in ("loading", "pruning", "writing")] == sorted(
        text.index(label) for label in ("loading", "pruning", "writing")
    )
    assert "50%" in text and "100%" in text and text.count("\n") == 3


def test_nothing_is_shown_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with phases() as shown:
        shown("pruning", 0.5)
    assert capsys.readouterr() == ("", "")
