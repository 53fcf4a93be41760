"""Blocks of the documents that commands print: they are as the commands print them now, and the rules that choose lines."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import ways
from support.golden import Golden

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "docs" / "generate.py"
LINES = ("module {", "  func a {", "    one", "    two", "  }", "  func b {", "    one", "  }", "}")


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: str(path.relative_to(ROOT / "docs"))
)
def test_documents_show_what_commands_print(generate: ModuleType, golden: Golden, path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if "<!-- text reference:" in text:
        pytest.importorskip("griffe2md", reason="griffe2md is not installed: pip install 'louver[docs]'")
    if "<!-- text ways:" in text:
        pytest.importorskip("triton", reason="Triton is not installed: pip install 'louver[triton]'")
    if golden.update:
        path.write_text(generate.generated(text), encoding="utf-8")
    difference = generate.stale(path)
    assert not difference, f"run python docs/generate.py\n{difference}"


def test_every_block_of_ir_is_generated() -> None:
    texts = [
        path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "perf-log"
    ]
    fences = re.findall(r"^(.*)\n```(?:mlir|ptx)$", "\n".join(texts), re.M)
    assert len(fences) > 8 and all(line.startswith("<!-- louver compile ") for line in fences)


def test_markdown_of_functions_is_put_between_comments(generate: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "told", SimpleNamespace(words=lambda *words: f"| {' | '.join(words)} |\n"))
    page = "a\n<!-- text told:words x y.z -->\nold\n<!-- end -->\nb\n<!-- text told:words -->\n<!-- end -->\n"
    made = generate.generated(page)
    assert made == page.replace("old\n", "| x | y.z |\n").replace("words -->\n", "words -->\n|  |\n")
    assert generate.generated(made) == made


def test_a_way_has_files_that_act_each_below_its_caller() -> None:
    steps = [("library/products.py", 0), ("isa/wgmma.py", 1), ("library/request.py", 1), ("runtime/cache.py", 9)]
    first, second = ways.lines(steps)
    assert first.startswith("library/products.py ") and first.endswith(" …") and len(first) == ways.WIDTH
    assert second.startswith("  library/request.py ") and len(second) <= ways.WIDTH


def test_a_trace_follows_calls_and_no_imports() -> None:
    from louver.compile.plan.schedule import Schedule

    def call() -> None:
        importlib.reload(importlib.import_module("louver.runtime.callers"))
        Schedule.of(stages=3)

    steps = dict(ways.trace(call))
    assert steps["compile/plan/schedule.py"] == 0 and "runtime/callers.py" not in steps


def test_a_way_that_fails_says_why() -> None:
    with pytest.raises(ValueError, match=r"(?s)the way of a nothing could not be traced: .*KeyError"):
        ways.way("nothing")


def test_the_reference_has_every_public_name_with_its_meaning() -> None:
    for name in ("louver", "louver.torch", "louver.models"):
        page = (ROOT / "docs" / "reference" / f"{name.rpartition('.')[2]}.md").read_text(encoding="utf-8")
        described = dict(re.findall(r"^## `(\w+)`\n+(?:```python\n[^`]*```\n+)?(.*)$", page, re.M))
        assert set(importlib.import_module(name).__all__) <= described.keys(), name
        assert all(text and not text.startswith("#") for text in described.values()), described


def test_names_in_docstrings_become_lists() -> None:
    pytest.importorskip("griffe2md", reason="griffe2md is not installed: pip install 'louver[docs]'")
    from reference import listed

    docstring = """What it does, in
two lines: see below.

w, v: arrays,
    with a second line.
*rest: more; the last
is not indented.
Raises ValueError for nothing.

    a formula: kept
"""
    assert list(listed(docstring.splitlines())) == [
        "What it does, in",
        "two lines: see below.",
        "",
        "- **w, v**: arrays,",
        "  with a second line.",
        "- **\\*rest**: more; the last",
        "  is not indented.",
        "",
        "Raises ValueError for nothing.",
        "",
        "    a formula: kept",
    ]


@pytest.mark.parametrize(
    ("rules", "chosen"),
    [
        ("", list(LINES)),
        ("lines 1-2", ["module {", "  func a {", "  …"]),
        ('from "func a" to "two", first "}"', ["  …", *LINES[1:5], "  …"]),
        ('with "one"', ["    …", "    one", "    …", "    one", "    …"]),
        ('first "one", lines 9-30', ["    …", "    one", "…", "}"]),
        ('from "func" to "  }"', ["  …", *LINES[1:8], "  …"]),
    ],
)
def test_rules_choose_lines_and_mark_what_is_left_out(generate: ModuleType, rules: str, chosen: list[str]) -> None:
    assert generate.chosen(LINES, rules) == chosen


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("line 3", "a rule is lines A-B, from"),
        ('first "one" first "two"', "a rule is lines A-B, from"),
        ('with "three"', "chooses no line"),
        ("lines 20-30", "chooses no line"),
        ('from "two" to "three"', "ends nowhere"),
    ],
)
def test_rules_that_choose_nothing(generate: ModuleType, rules: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate.chosen(LINES, rules)


def test_a_command_that_fails(generate: ModuleType) -> None:
    with pytest.raises(ValueError, match="missing.mlir --emit tile ends with 2: .*is no file"):
        generate.block("louver compile missing.mlir --emit tile")


def test_long_lines_keep_their_ends(generate: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "printed", lambda call: ("    " + "a" * 400 + "z", "      b"))
    first, second = generate.block("show it").splitlines()
    assert len(first) == generate.WIDTH and first.startswith("aa") and first.endswith("az") and " … " in first
    assert second == "  b", "what all lines are indented by goes"


def test_the_script_says_what_is_stale(tmp_path: Path) -> None:
    root = tmp_path / "copy"
    (root / "docs").mkdir(parents=True)
    (root / "docs" / "generate.py").write_text(SCRIPT.read_text(encoding="utf-8"), encoding="utf-8")
    (root / "notes.txt").write_text("new\n", encoding="utf-8")
    document = root / "docs" / "notes.md"
    document.write_text("<!-- show notes.txt -->\n```text\nold\n```\n", encoding="utf-8")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(root / "docs" / "generate.py"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    checked = run("--check")
    assert checked.returncode == 1 and "-old\n+new\n" in checked.stdout
    assert "docs/notes.md is stale: run python docs/generate.py" in checked.stdout
    assert run().stdout == "wrote docs/notes.md\n" and "\nnew\n" in document.read_text(encoding="utf-8")
    assert run("--check").returncode == 0 and run().stdout == ""
    assert "usage: python docs/generate.py [--check], got --all" in run("--all").stderr
