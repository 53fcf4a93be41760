"""The drawn pictures of the documents: as the script draws them, legible, and true to the code."""

from __future__ import annotations

import importlib.util
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import grimp
import numpy as np
import pytest

from fragment_plot import draw_fragment, fragment_pieces, metadata_pieces
from louver.isa.fragments import accumulator, operand_a
from louver.isa.metadata import MAPS
from louver.isa.wgmma import Wgmma
from louver.measure.report.svg import LEAST_SIZE, Drawing, text_width
from support.browser import browser, find_chromium

ROOT = Path(__file__).resolve().parents[3]
NAMES = ("way.svg", "patterns.svg", "decision.svg", "rooms.svg", "kernel.svg", "fragment.svg")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def draw() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_draw", ROOT / "docs" / "draw.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["docs_draw"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def imports() -> set[tuple[str, str]]:
    """The pairs of rooms that import each other, and those of rooms of the compiler (`compile.plan`)."""
    graph = grimp.build_graph("louver", exclude_type_checking_imports=True, cache_dir=None)
    found: set[tuple[str, str]] = set()
    for module in graph.modules:
        for other in graph.find_modules_directly_imported_by(module):
            one, two = module.split(".")[1:3], other.split(".")[1:3]
            if one and two:
                found.add((one[0], two[0]))
                found.add((".".join(one), ".".join(two)))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_committed_pictures_are_those_that_the_script_draws(draw: ModuleType, name: str) -> None:
    drawn = draw.PICTURES[name]()
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == drawn, "run python docs/draw.py"
    assert len(drawn) < 80_000


def test_every_picture_is_drawn_and_linked_from_a_document(draw: ModuleType) -> None:
    assert (
        tuple(draw.PICTURES)
        == NAMES
        == tuple(sorted({path.name for path in (ROOT / "docs").glob("*.svg")}, key=NAMES.index))
    )
    documents = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in documents)
    assert all(re.search(rf"!\[[^\]]+\]\((?:docs/)?{name}\)", text) for name in NAMES)


def texts_of(path: Path) -> Iterator[tuple[str, float, float, float, float, float]]:
    """Each text with its size and box: left, top, right, bottom."""
    for node in ElementTree.parse(path).iter(f"{SVG}text"):
        size, x, y = (float(node.attrib[name]) for name in ("font-size", "x", "y"))
        width = text_width(node.text or "", size)
        left = x - {"start": 0, "middle": width / 2, "end": width}[node.attrib["text-anchor"]]
        yield node.text or "", size, left, y - 0.75 * size, left + width, y + 0.25 * size


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_legible(name: str) -> None:
    path = ROOT / "docs" / name
    root = ElementTree.parse(path).getroot()
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    # A background of their own, for dark pages.
    paper = root.find(f"{SVG}rect")
    assert paper is not None and paper.attrib["fill"] == "#ffffff" and float(paper.attrib["width"]) == width - 1
    texts = list(texts_of(path))
    assert texts and all(size >= LEAST_SIZE for _, size, *_ in texts)
    assert all(left >= 0 and top >= 0 and right <= width and bottom <= height for *_, left, top, right, bottom in texts)
    for one, other in itertools.combinations(texts, 2):
        apart = one[2] >= other[4] or other[2] >= one[4] or one[3] >= other[5] or other[3] >= one[5]
        assert apart, (one, other)


@pytest.mark.slow
@pytest.mark.skipif(find_chromium() is None, reason="no Chromium on the PATH")
def test_a_browser_draws_no_text_over_another() -> None:
    with browser() as page:
        for name in NAMES:
            page.open(ROOT / "docs" / name)
            boxes = page.evaluate(
                "[...document.querySelectorAll('text')].map((each) => { const b = each.getBBox(); return [each.textContent, b.x, b.y, b.width, b.height]; })"
            )
            assert page.problems == [] and boxes
            for (one, x, y, w, h), (other, x2, y2, w2, h2) in itertools.combinations(boxes, 2):
                # A line of text is higher than its ink.
                assert x + w <= x2 or x2 + w2 <= x or y + h - 3 <= y2 or y2 + h2 - 3 <= y, (name, one, other)


def test_the_whole_has_every_room_and_no_other(draw: ModuleType) -> None:
    folders = {path.parent.name for path in (ROOT / "louver").glob("*/__init__.py")}
    assert set(draw.ROOMS) == folders
    assert {room for flow in draw.FLOWS for room in (flow.source, flow.target)} == folders


def test_data_flows_where_rooms_import_each_other(draw: ModuleType, imports: set[tuple[str, str]]) -> None:
    drawn = [(flow.source, flow.target) for flow in draw.FLOWS]
    assert len(set(drawn)) == len(drawn)
    missing = [pair for pair in drawn if pair not in imports and pair[::-1] not in imports]
    assert not missing, "these rooms do not import each other"


def test_families_go_through_the_rooms_of_the_compiler_in_the_order_of_their_passes(draw: ModuleType) -> None:
    from louver.compile import pipeline
    from louver.compile.passes import names

    first = {
        "canonical": "unroll-programs",
        "plan": "read-nest",
        "generate": "generate-schedule",
        "check": "check-protocol",
        "lower": "lower-to-ptx",
    }
    general = {
        "canonical": "count-loops",
        "decompose": "decompose-sparse-tensors",
        "plan": "assign-encodings",
        "lower": "lower-tiles",
    }
    for family, signs, passes in (("product", first, pipeline.PRODUCT), ("general", general, pipeline.TILES)):
        assert draw.FAMILIES[family] == tuple(signs)
        places = [names(passes).index(sign) for sign in signs.values()]
        assert places == sorted(places)
        assert all((ROOT / "louver" / "compile" / room).is_dir() for room in signs)


def test_the_script_says_what_is_stale(
    draw: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(draw, "DOCUMENTS", tmp_path)
    monkeypatch.setattr(draw, "PICTURES", {"one.svg": lambda: "new\n"})
    (tmp_path / "one.svg").write_text("old\n", encoding="utf-8")
    assert draw.main(["--check"]) == 1
    assert "docs/one.svg is stale: run python docs/draw.py" in capsys.readouterr().out
    assert draw.main([]) == 0 and (tmp_path / "one.svg").read_text(encoding="utf-8") == "new\n"
    assert draw.main(["--check"]) == 0
    with pytest.raises(SystemExit, match="usage"):
        draw.main(["--all"])


def test_a_drawing_refuses_what_cannot_be_read() -> None:
    drawing = Drawing(100, 50, "title", "about")
    with pytest.raises(ValueError, match="11 pixels or larger, got 9"):
        drawing.text(1, 20, "small", size=9)
    with pytest.raises(ValueError, match="fits its room and the paper"):
        drawing.text(1, 20, "wide", room=10)
    with pytest.raises(ValueError, match="fits its room and the paper"):
        drawing.text(1, 20, "beyond the paper's edge")
    drawing.text(1, 20, "a < b & c")
    assert "a &lt; b &amp; c" in drawing.svg()


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_pieces_of_values_are_where_registers_have_them(bits: int) -> None:
    fragment = operand_a(bits)
    matrix = np.arange(fragment.rows * fragment.columns, dtype=f"u{bits // 8}").reshape(fragment.rows, fragment.columns)
    registers = fragment.gather(matrix)
    pieces = fragment_pieces(fragment, "r")
    assert sum(piece.last + 1 - piece.first for piece in pieces) == 16 * fragment.columns
    for piece in pieces:
        numbers = [int(name[1:]) for name in piece.label.split()]
        held = np.concatenate(
            [
                np.ascontiguousarray(registers[number, piece.lane : piece.lane + 1]).view(matrix.dtype)
                for number in numbers
            ]
        )
        assert np.array_equal(held, matrix[piece.row, piece.first : piece.last + 1])


def test_pieces_of_sums_are_those_of_the_ptx_isa() -> None:
    pieces = {(piece.row, piece.first): piece for piece in fragment_pieces(accumulator(16, "f32"), "d")}
    assert (pieces[0, 0].lane, pieces[0, 0].label) == (0, "d0 d1")
    assert (pieces[15, 6].lane, pieces[15, 6].label) == (31, "d2 d3")
    assert (pieces[1, 8].lane, pieces[1, 8].label) == (4, "d4 d5")


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_pieces_of_metadata_say_the_bits_of_the_words(bits: int) -> None:
    layout = MAPS[bits]
    rng = np.random.default_rng(0)
    codes = rng.choice(np.array(layout.legal, dtype=np.uint8), size=(layout.rows, 16))
    words = layout.pack(codes)
    for piece in metadata_pieces(layout):
        high, low = map(int, piece.label.split(":"))
        held = int(words[piece.lane]) >> low & ((1 << high + 1 - low) - 1)
        assert [held >> 4 * at & 15 for at in range(piece.last + 1 - piece.first)] == codes[
            piece.row, piece.first : piece.last + 1
        ].tolist()


def test_the_fragment_of_another_product_is_refused() -> None:
    with pytest.raises(ValueError, match="a sparse product whose values are in registers"):
        draw_fragment(Wgmma(64, "f16", "f16", "f32", sparse=True), [4])
    with pytest.raises(ValueError, match="metadata codes are"):
        draw_fragment(Wgmma(64, "f16", "f16", "f32", sparse=True, a_source="registers"), [0])
