"""The page of `louver compile --html` in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from louver.cli import app
from support.browser import Browser, browser, find_chromium
from support.golden import ROOT as GOLDEN

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium on the PATH"),
]

ROOT = GOLDEN.parents[1]
DOCUMENTED = ROOT / "tests" / "cpu" / "ir" / "inputs" / "simplified_sparse_dot.mlir"

COLUMN = "columns.find((each) => each.group === {!r})"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    kernels = {
        "user": ["tests/golden/ttir/3.6/weight_descriptors.ttir", "--source", "tests/support/triton/weights.py"],
        "tiles": [str(DOCUMENTED)],
        "product": ["--problem", "4096,4096,4096"],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        for name, arguments in kernels.items():
            page = folder / f"{name}.html"
            result = CliRunner().invoke(app, ["compile", *arguments, "--emit", "all", "--html", str(page)])
            assert result.exit_code == 0, result.output
    return {name: folder / f"{name}.html" for name in kernels}


@pytest.fixture
def user(chromium: Browser, pages: dict[str, Path]) -> Browser:
    chromium.problems.clear()
    chromium.requests.clear()
    chromium.open(pages["user"])
    return chromium


def source_line(page: Browser, text: str) -> int:
    return page.evaluate(f"levels[0].lines.findIndex((each) => each.includes({text!r}))")


def marked(page: Browser, group: str, name: str = "link") -> list[str]:
    """The lines of a column that have a mark."""
    return page.evaluate(
        f"[...{COLUMN.format(group)}.node.querySelectorAll('.l.{name} code')].map((each) => each.textContent)"
    )


def in_sight(page: Browser, group: str, name: str = "link") -> int:
    """The number of them that the column shows."""
    return page.evaluate(
        f"(() => {{ const pane = {COLUMN.format(group)}.pane.getBoundingClientRect();"
        f" return [...{COLUMN.format(group)}.node.querySelectorAll('.l.{name}')].filter((each) => {{"
        " const box = each.getBoundingClientRect(); return box.top >= pane.top && box.bottom <= pane.bottom; }).length; })()"
    )


@pytest.mark.parametrize("name", ["user", "tiles", "product"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_page_loads_without_errors_and_without_a_network(
    chromium: Browser, pages: dict[str, Path], name: str, dark: bool
) -> None:
    chromium.problems.clear()
    chromium.requests.clear()
    chromium.open(pages[name], dark=dark)
    assert chromium.problems == [] and set(chromium.requests) == {pages[name].resolve().as_uri()}
    assert chromium.evaluate("columns.length") >= 4
    # Nothing is wider or higher than the window: columns scroll for themselves.
    assert chromium.evaluate("document.documentElement.scrollWidth") == 1440
    assert chromium.evaluate("document.documentElement.scrollHeight") == 900
    assert chromium.evaluate("$('columns').scrollWidth <= $('columns').clientWidth")


def test_a_click_links_the_line_at_every_level(user: Browser) -> None:
    user.click(f"#Source-{source_line(user, 'tl.dot(')} code")
    for group, sign in (
        ("Tile IR", "tt.dot"),
        ("Schedule IR", "sched.mma"),
        ("PTX", "wgmma.mma_async.sp"),
        ("SASS", "HGMMA.SP"),
    ):
        assert any(sign in each for each in marked(user, group)), group
        assert in_sight(user, group) > 0, group
    assert user.problems == []
    user.click(f"#Source-{source_line(user, 'tl.dot(')} code")
    assert marked(user, "PTX") == []


def test_a_line_of_machine_code_links_up(user: Browser) -> None:
    line = user.evaluate(f"{COLUMN.format('SASS')}.level.lines.findIndex((each) => each.includes('HGMMA'))")
    user.click(f"#SASS-{line} code")
    assert [each.strip() for each in marked(user, "Source")] == [
        user.evaluate(f"levels[0].lines[{source_line(user, 'tl.dot(')}].trim()")
    ]
    (exact,) = marked(user, "PTX", "exact")
    assert "wgmma.mma_async.sp" in exact and in_sight(user, "PTX", "exact") == 1


def test_a_kernel_without_a_file_names_the_lines_of_its_tile_ir(chromium: Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["product"])
    chromium.hover("#Source-14 code")
    assert chromium.evaluate("$('status').textContent").startswith("Source line 15 · source line 15: %total = scf.for")


def test_hovering_links_for_the_time_being(user: Browser) -> None:
    user.hover(f"#Source-{source_line(user, 'y_tiles.store')} code")
    assert any("UTMASTG" in each for each in marked(user, "SASS", "near"))
    user.hover("h1")
    assert marked(user, "SASS", "near") == []


def test_keys_go_through_lines_links_and_finds(user: Browser) -> None:
    user.press("ArrowDown")
    first = user.evaluate("active.cursor")
    for _ in range(source_line(user, "tl.dot(") - first):
        user.press("ArrowDown")
    user.press("Enter")
    assert len(marked(user, "SASS")) > 10
    user.evaluate(f"{COLUMN.format('PTX')}.pane.focus()")
    user.press("]")
    one = user.evaluate("active.cursor")
    user.press("]")
    assert user.evaluate("active.group") == "PTX" and user.evaluate("active.cursor") > one
    user.press("[")
    assert user.evaluate("active.cursor") == one
    user.press("/")
    for letter in "hgmma":
        user.press(letter)
    assert user.evaluate("$('found').textContent").endswith("lines found")
    user.press("Enter")
    assert user.evaluate("active.group") == "SASS" and in_sight(user, "SASS", "hit") > 0
    user.press("Escape")
    assert (marked(user, "SASS"), marked(user, "SASS", "hit")) == ([], [])
    assert user.problems == []


def test_columns_close_open_and_go_from_pass_to_pass(user: Browser) -> None:
    user.click("section[aria-label='PTX'] .close")
    assert user.evaluate("columns.map((each) => each.group)") == ["Source", "Tile IR", "Schedule IR", "SASS"]
    user.evaluate("[...$('chips').children].find((each) => each.textContent === 'Triton IR').click()")
    assert user.evaluate("columns.map((each) => each.group)")[1] == "Triton IR"
    before = user.evaluate(f"{COLUMN.format('Tile IR')}.level.name")
    user.evaluate(f"{COLUMN.format('Tile IR')}.pane.focus()")
    user.press(",")
    after = user.evaluate(f"{COLUMN.format('Tile IR')}.level.name")
    assert after != before and user.evaluate(f"{COLUMN.format('Tile IR')}.level.changed")
    user.press("w")
    assert user.evaluate(f"{COLUMN.format('Tile IR')}.pane.scrollWidth <= {COLUMN.format('Tile IR')}.pane.clientWidth")
    user.press("?")
    assert user.evaluate("!$('help').hidden")
    assert user.problems == []


def test_lines_without_a_source_say_so(user: Browser) -> None:
    user.hover("#PTX-2 code")
    assert user.evaluate("$('status').textContent") == "PTX line 3 · no known source"
    assert user.evaluate("document.querySelector('#PTX-2 i').style.background") == ""
