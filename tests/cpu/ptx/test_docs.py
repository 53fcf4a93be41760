from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[3] / "docs" / "ptx.md"


def test_the_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(example, str(DOCS), "exec"), {})


def test_every_file_that_is_named_exists() -> None:
    named = re.findall(r"`(isa/\w+\.py)`", DOCS.read_text(encoding="utf-8"))
    assert len(named) > 10
    assert not [name for name in named if not (DOCS.parents[1] / "louver" / name).exists()]
