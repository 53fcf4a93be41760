"""Golden files: text that a test expects, kept under tests/golden and rewritten with `--update-golden`."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "golden"


@dataclass(frozen=True)
class Golden:
    """Compares text with the file of a name. `update`: write instead of compare."""

    root: Path
    update: bool

    def check(self, name: str, text: str) -> None:
        """Fail with a unified diff unless `text` equals the golden file `name` (a path below the root)."""
        path = self.root / name
        if not path.resolve().is_relative_to(self.root.resolve()):
            raise ValueError(f"a golden file lies below {self.root.name}/, got {name!r}: give a relative path")
        text = text if text.endswith("\n") else text + "\n"
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            raise AssertionError(f"no golden file {name}: look at the text and write it with --update-golden\n{text}")
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            raise AssertionError(
                f"differs from golden file {name} (--update-golden accepts it)\n{_diff(expected, text)}"
            )


def _diff(expected: str, text: str, limit: int = 200) -> str:
    lines = list(difflib.unified_diff(expected.splitlines(), text.splitlines(), "golden", "now", lineterm="", n=3))
    more = [f"... {len(lines) - limit} more lines"] if len(lines) > limit else []
    return "\n".join(lines[:limit] + more)
