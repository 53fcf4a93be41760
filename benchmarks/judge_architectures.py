"""Judges `louver.models.analyze` on tiny models of all architectures of Transformers that one rule builds, and keeps the table.

    PYTHONPATH=tests python benchmarks/judge_architectures.py RECORD.json [KIND...]

With kinds, the other rows of an existing record stay. The truth is measured: `tests/support/architectures/oracle.py`. Needs the extra `models-test`; about 15 minutes of one core.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers

from support.architectures.judge import smallest, truths, verdicts
from support.architectures.tiny import architectures

SECONDS = 40
COUNTED = (
    "weights",
    "by_model",
    "unmeasured",
    "wrongly_pruned",
    "wrongly_left",
    "without_model_wrongly_pruned",
    "without_model_left",
)


def row(kind: str, folder: Path) -> dict[str, Any]:
    model = smallest(kind)
    model.save_pretrained(folder)
    truth = truths(model, folder)
    with_model, without = verdicts(folder, truth)
    return {
        "kind": kind,
        "class": type(model).__name__,
        "weights": with_model.weights,
        "by_model": with_model.by_model,
        "unmeasured": with_model.unmeasured,
        "wrongly_pruned": with_model.pruned,
        "wrongly_left": with_model.left,
        "without_model_wrongly_pruned": without.pruned,
        "without_model_left": without.left,
        "notes": list(with_model.notes),
    }


class Late(BaseException):
    """It passes handlers of ordinary errors."""


def late(*_: object) -> None:
    raise Late(f"more than {SECONDS} seconds")


def main(record: Path, kinds: list[str]) -> None:
    commit = subprocess.check_output(("git", "rev-parse", "--short=8", "HEAD"), text=True).strip()
    signal.signal(signal.SIGALRM, late)
    before = json.loads(record.read_text()) if kinds and record.exists() else {"rows": [], "skipped": {}}
    rows: list[dict[str, Any]] = [each for each in before["rows"] if each["kind"] not in kinds]
    skipped: dict[str, str] = {kind: why for kind, why in before["skipped"].items() if kind not in kinds}
    for kind in kinds or architectures():
        with tempfile.TemporaryDirectory() as folder:
            signal.alarm(SECONDS)
            try:
                rows.append(row(kind, Path(folder)) | {"commit": commit})
            except (Exception, Late) as error:  # The rule does not fit every configuration.
                skipped[kind] = " ".join(f"{type(error).__name__}: {error}".split())[:160]
            finally:
                signal.alarm(0)
        record.write_text(text(rows, skipped))
        print(kind, "skipped" if kind in skipped else _counts(rows[-1]), flush=True)
    print(len(rows), "architectures", totals(rows))


def totals(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {key: sum(_count(each.get(key, 0)) for each in rows) for key in COUNTED}


def text(rows: list[dict[str, Any]], skipped: dict[str, str]) -> str:
    """The record as JSON, a row a line, without empty lists."""
    versions = {"python": sys.version.split()[0], "torch": torch.__version__, "transformers": transformers.__version__}
    head = {"versions": versions, "architectures": len(rows), "total": totals(rows), "skipped": skipped}
    lines = [json.dumps({key: value for key, value in each.items() if value != []}) for each in rows]
    return json.dumps(head)[:-1] + ', "rows": [\n' + ",\n".join(lines) + "\n]}\n"


def _count(value: int | list[str]) -> int:
    return len(value) if isinstance(value, list) else value


def _counts(each: dict[str, Any]) -> str:
    return " ".join(f"{key}={_count(each.get(key, 0))}" for key in COUNTED)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    main(Path(sys.argv[1]), sys.argv[2:])
