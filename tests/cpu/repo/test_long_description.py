"""The README as the package's long description, which an index shows without the repository around it."""

from __future__ import annotations

import importlib.util
import re
import sys
from email import message_from_string
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
RELATIVE = r"\]\((?!https://|#)[^)]*\)"


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    pytest.importorskip("hatchling", reason="building needs hatchling: pip install 'louver[test]'")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["hatch_build"] = module
    spec.loader.exec_module(module)
    return module


def test_links_are_absolute_where_the_repository_is_known(hook: ModuleType) -> None:
    text = "![a b](docs/a.svg) [c](docs/b.md#d) [e](#f) [g](https://h.i/j)"
    assert hook.absolute(text, "https://git.example/louver/") == (
        "![a b](https://git.example/louver/raw/HEAD/docs/a.svg) "
        "[c](https://git.example/louver/blob/HEAD/docs/b.md#d) [e](#f) [g](https://h.i/j)"
    )


def test_without_a_repository_words_stay_and_pictures_go(hook: ModuleType) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(RELATIVE, text) and text.count("![") == 3
    made = hook.absolute(text, None)
    assert not re.search(RELATIVE, made) and "![" not in made and "the index of all pages" in made


def test_the_wheel_has_no_relative_link(hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hatchling.build import prepare_metadata_for_build_wheel

    monkeypatch.chdir(ROOT)
    folder = tmp_path / prepare_metadata_for_build_wheel(str(tmp_path))
    described = message_from_string((folder / "METADATA").read_text(encoding="utf-8"))
    assert described["Description-Content-Type"] == "text/markdown"
    body = str(described.get_payload())
    assert body.startswith("# Louver\n") and "louver.prune(weight" in body
    assert not re.search(RELATIVE, body)
