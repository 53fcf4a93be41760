from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import louver
import passes_table
from louver.compile import pipeline
from louver.compile.passes import names

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINKED = [*DOCUMENTS, *ROOT.glob("examples/**/*.md"), *ROOT.glob("benchmarks/**/*.md")]
CURRENT = [path for path in DOCUMENTS if path.name != "CHANGELOG.md" and path.parent.name != "perf-log"]
"""The documents that are no history: what they name exists."""
ARCHITECTURE = ROOT / "docs" / "architecture.md"
LOG = ROOT / "docs" / "perf-log"
MOST_FILES_OF_A_LIFE, MOST_WORDS_OF_THE_MAP, MOST_WORDS_OF_A_PAGE, MOST_WORDS_OF_THE_LOG = 60, 2500, 1400, 10_000


def without_blocks(document: Path) -> str:
    return re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.M | re.S)


def test_no_merge_is_left_unresolved() -> None:
    marks = ("<" * 7 + " ", ">" * 7 + " ")
    assert not [
        each.name for each in DOCUMENTS if any(line.startswith(marks) for line in each.read_text().splitlines())
    ]


def prose(document: Path) -> str:
    """A document without its code."""
    return re.sub(r"`[^`\n]*`", "", without_blocks(document))


@functools.cache
def anchors(document: Path) -> frozenset[str]:
    """The names that links to a document's headings use: GitHub's, a number behind the second of a name."""
    seen: dict[str, int] = {}
    found: set[str] = set()
    for title in re.findall(r"^#+ (.+)$", without_blocks(document), re.M):
        name = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)).strip().lower().replace(" ", "-")
        number = seen[name] = seen.get(name, -1) + 1
        found.add(f"{name}-{number}" if number else name)
    return frozenset(found)


def dead_links(document: Path) -> list[str]:
    """The relative links of a document whose file or heading is missing."""
    dead: list[str] = []
    for target in re.findall(r"\]\(([^)\s]+)", prose(document)):
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        if "://" not in target and not (file.exists() and (not anchor or anchor in anchors(file))):
            dead.append(target)
    return dead


@pytest.mark.parametrize("document", LINKED, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    assert not dead_links(document)


def test_pages_that_code_names_exist() -> None:
    named = {
        (str(path.relative_to(ROOT)), page)
        for folder in ("louver", "benchmarks", "examples")
        for path in (ROOT / folder).rglob("*.py")
        for page in re.findall(r"(?<![\w/])docs/[\w/-]+\.md", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 10 and not [each for each in named if not (ROOT / each[1]).exists()]


def test_dead_links_are_found(tmp_path: Path) -> None:
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    other.write_text("# One `two`, three\n## Twice\n## Twice\n```\n# none\n```\n", encoding="utf-8")
    good = "[a](other.md) [b](other.md#one-two-three) [c](other.md#twice-1) [d](#here) `[e](none.md)` [f](https://a.b/c.md)"
    bad = "[g](none.md) [h](other.md#none) [i](#there) ![j](none.svg) [k](other.md#twice-2)"
    page.write_text(f"# Here\n{good}\n{bad}\n```\n[l](none.md)\n```\n", encoding="utf-8")
    assert dead_links(page) == ["none.md", "other.md#none", "#there", "none.svg", "other.md#twice-2"]


def test_the_index_has_every_page() -> None:
    # A folder of pages has an index of its own.
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    named = set(re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs" / "README.md").read_text(encoding="utf-8")))
    assert not pages - named, "each page below docs/ stands in docs/README.md, under its task"


@pytest.mark.parametrize("document", CURRENT, ids=lambda path: path.name)
def test_tests_that_are_named_exist(document: Path) -> None:
    for path, name in re.findall(r"`([\w/]+/test_\w+\.py)(?:::(\w+))?`", document.read_text(encoding="utf-8")):
        source = ROOT / "tests" / path.removeprefix("tests/")
        assert source.exists(), path
        assert not name or f"def {name}(" in source.read_text(encoding="utf-8"), name


@pytest.mark.parametrize("document", CURRENT, ids=lambda path: path.name)
def test_files_that_are_named_exist(document: Path) -> None:
    # Paths from the root, from louver/ or from tests/; a Python file may go by its name alone.
    named = re.findall(
        r"(?<![\w/.-])(?:[\w.-]+/)*[\w.-]+\.py(?![\w:])|(?<![\w/.-])(?:[\w.-]+/){2,}(?![\w{*])", spans(document)
    )
    assert not [name for name in named if not exists(name)]


def spans(document: Path) -> str:
    """All code spans of a document, a line each; placeholders such as FILE.py stand for no file."""
    return "\n".join(
        span
        for span in re.findall(r"`([^`\n]+)`", without_blocks(document))
        if not re.search(r"\b(FILE|NAME|PATH)\b", span)
    )


def exists(name: str) -> bool:
    found = any((ROOT / below / name).exists() for below in ("", "louver", "tests"))
    return found or ("/" not in name and any(any((ROOT / room).rglob(name)) for room in ("louver", "benchmarks")))


@pytest.mark.parametrize("title", ["Life of a product", "Life of a user's kernel"])
def test_a_life_is_short(title: str) -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition(f"### {title}\n")[2]
    (tree,) = re.findall(r"^```text\n(.*?)^```$", text.partition("\n###")[0], re.M | re.S)
    files = [line.split()[0] for line in tree.splitlines()]
    assert 10 < len(files) == len(set(files)) <= MOST_FILES_OF_A_LIFE


def test_documents_are_short() -> None:
    assert len(ARCHITECTURE.read_text(encoding="utf-8").split()) <= MOST_WORDS_OF_THE_MAP
    pages = [path for path in CURRENT if path.parent == ROOT / "docs" or path.name == "README.md"]
    written = {path.name: re.sub(r"<!-- text .*?<!-- end -->", "", without_blocks(path), flags=re.S) for path in pages}
    long = {name: count for name, text in written.items() if (count := len(text.split())) > MOST_WORDS_OF_A_PAGE}
    assert not long, f"a page has at most {MOST_WORDS_OF_A_PAGE} words that people write: split it by task"


def test_the_log_is_short_and_its_index_complete() -> None:
    """The log grew to 29,000 words, in which nobody found a number."""
    sections = {path.name: path.read_text(encoding="utf-8") for path in LOG.glob("*.md")}
    index = sections.pop("README.md")
    assert sections.keys() == set(re.findall(r"^- \[\w+\]\(([\w-]+\.md)\) ", index, re.M))
    assert not [name for name, text in sections.items() if not re.match(r"# \S.*\n\n\*History, written ", text)]
    words = sum(len(text.split()) for text in (index, *sections.values()))
    assert words <= MOST_WORDS_OF_THE_LOG, "move lessons to docs/lessons.md, and delete sections: git has them"


def test_a_pass_says_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    found = passes_table.summaries()
    assert found["count-loops"][1] == "compile/canonical/count_loops.py"
    everywhere = {name for passes in (pipeline.PRODUCT, pipeline.TILES) for name in names(passes)} - {"tile-ir"}
    assert everywhere <= found.keys(), "the docstring of a pass begins with its name"
    monkeypatch.setattr(passes_table, "summaries", dict)
    with pytest.raises(ValueError, match=r"begins with its name, got none for count-loops"):
        passes_table.table("canonical")


def fences(name: str, language: str) -> list[str]:
    """The blocks of a document in this language."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


@pytest.fixture
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="louver computes by the reference path")
        yield


@pytest.mark.usefixtures("quiet")
def test_the_readme_s_example_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = fences("README.md", "python")
    scope: dict[str, Any] = {}
    exec(example, scope)
    assert scope["y"].shape == (8, 256)
    np.testing.assert_allclose(scope["y"], scope["dense"], rtol=2e-3, atol=2e-3)
    assert capsys.readouterr().out.startswith("largest error: ")
    assert 16 * scope["sparse"].nbytes == 9 * scope["weight"].nbytes, "as its comment says"
    loaded = louver.load(tmp_path / "weights.safetensors")["layer.weight"]
    assert np.array_equal(np.asarray(loaded), scope["pruned"])


@pytest.mark.usefixtures("quiet")
def test_the_calls_of_products_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    monkeypatch.chdir(tmp_path)
    m, n, k = 37, 19, 72
    names = {"weight": (m, k), "x": (3, n, k), "bias": (m,), "b": (k, n)}
    scope: dict[str, Any] = {name: rng.standard_normal(shape).astype(np.float16) for name, shape in names.items()}
    halves = [louver.prune(rng.standard_normal((40, k)).astype(np.float16), "2:4") for _ in range(2)]
    scope |= {name: louver.compress(half, "2:4") for name, half in zip(("gate", "up"), halves, strict=True)}
    (example,) = fences("docs/products.md", "python")
    exec(example, scope)
    assert scope["y"].shape == (3, n, m) and scope["z"].shape == (m, n) and scope["h"].shape == (3, n, 40)
    wide = scope["pruned"].astype(np.float64)
    np.testing.assert_allclose(scope["z"], wide @ scope["b"].astype(np.float64), rtol=2e-3, atol=2e-3)
    assert (tmp_path / "weights.safetensors").exists()


def test_the_quickstart_s_kernel_runs_as_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("triton", reason="Triton is not installed: pip install 'louver[triton]'")
    (example,) = fences("docs/quickstart.md", "py")
    # Triton reads a kernel's source from its file.
    file = tmp_path / "quickstart_kernel.py"
    file.write_text(example, encoding="utf-8")
    scope: dict[str, Any] = {"__name__": "quickstart_kernel"}
    exec(compile(example, str(file), "exec"), scope)
    expected = scope["pruned"].astype(np.float64) @ scope["b"].astype(np.float64).T
    np.testing.assert_allclose(scope["d"], expected, rtol=2e-3, atol=2e-3)
    assert "\nproduct: Schedule(" in capsys.readouterr().out
