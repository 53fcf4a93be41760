from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import louver
from louver.compile import products, tiles
from louver.compile.passes import names

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
CURRENT = [path for path in DOCUMENTS if path.name != "CHANGELOG.md" and path.parent.name != "perf-log"]
"""The documents that are no history: what they name exists."""
ARCHITECTURE = ROOT / "docs" / "architecture.md"
MOST_FILES_OF_A_LIFE = 25


def without_blocks(document: Path) -> str:
    return re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.M | re.S)


def section(document: Path, title: str) -> str:
    (found,) = re.findall(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", document.read_text(encoding="utf-8"), re.M | re.S)
    return found


def test_no_merge_is_left_unresolved() -> None:
    marks = ("<" * 7 + " ", ">" * 7 + " ")
    assert not [
        each.name for each in DOCUMENTS if any(line.startswith(marks) for line in each.read_text().splitlines())
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", document.read_text(encoding="utf-8"), flags=re.M | re.S)
    targets = re.findall(r"\]\(([^)#\s]+)", text)
    inside = [target for target in targets if "://" not in target]
    assert not [target for target in inside if not (document.parent / target).exists()]


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
    files = set(re.findall(r"`([\w/]+(?:\.py|/))`", section(ARCHITECTURE, title)))
    assert 10 < len(files) <= MOST_FILES_OF_A_LIFE


def test_tables_of_passes_are_complete() -> None:
    canonical, general = (
        re.findall(r"^\| `([\w-]+)` \|", section(ARCHITECTURE, title), re.M)
        for title in ("Canonical passes", "The general path")
    )
    assert canonical == [name for name in names(products.READ) if name != "tile-ir"]
    assert general == [name for name in names(tiles.PASSES) if name not in {"tile-ir", *canonical}]


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
