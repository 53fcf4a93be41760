"""`louver compile --emit all --html`: what the page holds, and where its lines come from."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from louver.cli import app
from louver.cli.commands.compile_kernel import ir_source
from louver.cli.page.levels import Levels, Recorder, levels_of
from louver.cli.page.source import user_lines
from louver.cli.page.write import page_text
from louver.ptx import sass
from support.golden import ROOT as GOLDEN

if TYPE_CHECKING:
    from support.command_line import Cli

ROOT = GOLDEN.parents[1]
LAYER = "tests/golden/ttir/3.6/weight_descriptors.ttir"
"""A product; its locations name a file below the repository's root."""
WEIGHTS = ROOT / "tests" / "support" / "triton" / "weights.py"
DOCUMENTED = ROOT / "tests" / "cpu" / "ir" / "inputs" / "simplified_sparse_dot.mlir"
"""Register tiles, without a user's file."""
DIRECTIVE = re.compile(r"\s*(\.|//|$)|\w+:")
"""What begins lines of PTX and SASS that are no instructions."""
PROBLEM = ("--problem", "256,256,256")


def data_of(page: str) -> dict[str, Any]:
    """The data that the page's program shows."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found is not None
    return json.loads(found[1])


def written(path: Path, *arguments: object) -> str:
    result = CliRunner().invoke(app, [*map(str, ("compile", *arguments, "--emit", "all", "--html", path))])
    assert result.exit_code == 0, result.output
    assert not result.stdout and f"wrote {path}" in result.stderr
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def levels() -> Levels:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return levels_of(ir_source(LAYER, {}, "sm_90a", [str(WEIGHTS)]))


@pytest.fixture(scope="module")
def layer(levels: Levels) -> str:
    return page_text(levels)


def linked(level: dict[str, Any], line: int) -> list[str]:
    """The lines of a level that come from a line of the source."""
    return [text for text, at in zip(level["lines"], level["at"], strict=True) if at == line]


def last(data: dict[str, Any], group: str) -> dict[str, Any]:
    return [level for level in data["levels"] if level["group"] == group][-1]


def line_with(data: dict[str, Any], text: str) -> int:
    source = data["levels"][0]
    return next(index for index, each in enumerate(source["lines"]) if text in each)


def test_levels_stand_in_order_and_each_line_has_a_place(layer: str) -> None:
    levels = data_of(layer)["levels"]
    groups = list(dict.fromkeys(level["group"] for level in levels))
    assert groups == ["Source", "Triton IR", "Tile IR", "Facts", "Schedule IR", "PTX", "SASS"]
    assert all(len(level["lines"]) == len(level["at"]) for level in levels)
    passes = [level["name"] for level in levels if level["group"] == "Tile IR"]
    assert passes[0] == "tile-ir" and "turn-right-sparse" in passes
    unchanged = [level["name"] for level in levels if not level["changed"]]
    assert "unroll-programs" in unchanged and "turn-right-sparse" not in unchanged


@pytest.mark.parametrize(
    ("text", "signs"),
    [
        ("tl.dot(", {"Tile IR": "tt.dot", "Schedule IR": "sched.mma", "PTX": "wgmma.mma_async.sp", "SASS": "HGMMA.SP"}),
        ("for k in", {"Tile IR": "scf.for", "Schedule IR": "sched.loop", "PTX": "mbarrier.try_wait", "SASS": "BRA"}),
        (
            "total += tl.load",
            {"Tile IR": "arith.addf", "Schedule IR": "arith.addf", "PTX": "add.rn.f32", "SASS": "FADD"},
        ),
        ("y_tiles.store", {"Tile IR": "descriptor_store", "PTX": "cp.async.bulk.tensor", "SASS": "UTMASTG"}),
        ("row = tl.program_id", {"Triton IR": "tt.get_program_id", "Tile IR": "tt.get_program_id"}),
    ],
)
def test_a_line_of_the_source_is_followed_down(layer: str, text: str, signs: dict[str, str]) -> None:
    data = data_of(layer)
    line = line_with(data, text)
    for group, sign in signs.items():
        found = linked(last(data, group), line)
        assert any(sign in each for each in found), (group, found[:5])


def test_products_and_copies_come_from_the_dot_alone(layer: str) -> None:
    data = data_of(layer)
    line = line_with(data, "tl.dot(")
    for group, sign in (("Schedule IR", "sched.mma"), ("PTX", "wgmma.mma_async"), ("SASS", "HGMMA")):
        level = last(data, group)
        of_products = {at for text, at in zip(level["lines"], level["at"], strict=True) if sign in text}
        assert of_products == {line}, group


def test_source_is_the_functions_with_their_numbers(layer: str) -> None:
    source = data_of(layer)["levels"][0]
    text = WEIGHTS.read_text(encoding="utf-8").splitlines()
    shown = {number: line for number, line in zip(source["numbers"], source["lines"], strict=True) if number}
    assert shown == {number: text[number - 1] for number in shown}
    assert text[min(shown) - 1] == "@triton.jit" and "weight_pointers" not in "".join(shown.values())
    # A line that nothing comes from has no link.
    assert source["at"][line_with(data_of(layer), "def weight_descriptors")] >= 0
    assert source["at"][source["lines"].index("):")] == -1


def test_most_lines_of_instructions_are_linked(layer: str) -> None:
    data = data_of(layer)
    for group, least in (("Tile IR", 0.9), ("Schedule IR", 0.9), ("PTX", 0.85), ("SASS", 0.85)):
        level = last(data, group)
        code = [at for text, at in zip(level["lines"], level["at"], strict=True) if not DIRECTIVE.match(text)]
        assert sum(at >= 0 for at in code) > least * len(code), group


def test_the_page_has_the_texts_that_the_command_prints(cli: Cli, layer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    printed = cli("compile", LAYER, "--emit", "all").stdout
    texts = dict(zip(*[iter(re.split(r"// ---- (\w+) ----\n", printed)[1:])] * 2, strict=True))
    for group, level in (("PTX", "ptx"), ("SASS", "sass"), ("Schedule IR", "sched")):
        assert last(data_of(layer), group)["lines"] == texts[level].rstrip("\n").splitlines()


def test_machine_code_knows_its_line_of_ptx(layer: str) -> None:
    data = data_of(layer)
    ptx, code = last(data, "PTX")["lines"], last(data, "SASS")
    products = [(text, number) for text, number in zip(code["lines"], code["ptx"], strict=True) if "HGMMA" in text]
    assert products
    for text, number in products:
        # The selector of metadata is the last operand but flags.
        selector = re.search(r"R\d+, 0x(\d)", text)
        assert selector is not None and re.search(rf"%r\d+, {selector[1]}, %p", ptx[number - 1])


def test_the_page_says_what_the_kernel_takes(layer: str) -> None:
    facts = dict(data_of(layer)["facts"])
    assert facts["family"] == "warpgroup product" and facts["spills"] == "none"
    assert facts["product"] == "f16 2:4 · f16, sums in f32, output f16"
    assert re.fullmatch(r"\d+ a thread at entry", facts["registers"])
    assert re.search(r"of them \d+ HGMMA\.SP", facts["SASS"])


def test_the_page_asks_for_nothing_else(layer: str) -> None:
    around = re.sub(r'<script type="application/json".*?</script>', "", layer, flags=re.S)
    assert not re.search(r"https?:|\bsrc=|\bhref=|@import|url\(|fetch\(|import\(", around)


def test_without_the_users_file_the_tile_ir_is_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = data_of(written(tmp_path / "page.html", ROOT / LAYER))
    assert data["levels"][0]["name"] == "the kernel's tile IR"
    assert any("HGMMA" in each for each in linked(last(data, "SASS"), line_with(data, "tt.dot")))


def test_register_tiles_have_encoded_tile_ir_and_say_why(tmp_path: Path) -> None:
    data = data_of(written(tmp_path / "page.html", DOCUMENTED))
    assert "Schedule IR" not in {level["group"] for level in data["levels"]}
    assert dict(data["facts"])["family"].startswith("register tiles: a warpgroup multiplies whole blocks of 64 rows")
    line = line_with(data, "tt.dot")
    names = {level["name"] for level in data["levels"] if level["changed"] and linked(level, line)}
    assert {"tile-ir", "decompose-sparse-tensors", "assign-encodings"} <= names
    assert any("mma.sp" in each for each in linked(last(data, "PTX"), line))
    assert any("HMMA.SP" in each for each in linked(last(data, "SASS"), line))


def test_a_product_of_the_library_has_a_page(tmp_path: Path) -> None:
    data = data_of(written(tmp_path / "page.html", "--problem", "4096,4096,4096"))
    loads = linked(last(data, "Schedule IR"), line_with(data, "%a_tile = tt.descriptor_load"))
    assert any("sched.bulk_load" in each for each in loads) and any("sched.load_metadata" in each for each in loads)
    assert not any("%b_map[" in each for each in loads)


def test_without_a_disassembler_the_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sass, "tool_in_wheel", lambda *_: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    data = data_of(written(tmp_path / "page.html", *PROBLEM))
    (level,) = (each for each in data["levels"] if each["group"] == "SASS")
    assert level["lines"] == ["disassembling needs nvdisasm, got none: pip install nvidia-cuda-nvdisasm"]
    assert "SASS" not in dict(data["facts"])


def test_a_script_in_the_source_stays_text(levels: Levels) -> None:
    mark = "# </script><script>alert(1)</script> <!-- @DATA@ \u2028"
    source, *others = levels.levels
    lines = (*source.lines[:-1], mark)
    page = page_text(replace(levels, levels=(replace(source, lines=lines), *others)))
    assert "<script>alert" not in page
    assert data_of(page)["levels"][0]["lines"][-1] == mark.replace("\u2028", "\\u2028")


def test_files_that_are_no_python_are_shown_whole(tmp_path: Path) -> None:
    (tmp_path / "k.txt").write_text("one (\ntwo\n", encoding="utf-8")
    (tmp_path / "bytes.py").write_bytes(b"\xff")
    places = [f"{tmp_path}/k.txt:2:1", f"{tmp_path}/bytes.py:1:1", f"{tmp_path}/nowhere.py:1:1"]
    files = [f"{tmp_path}/{name}" for name in ("k.txt", "bytes.py", "nowhere.py")]
    assert [line.text for line in user_lines(places, files)] == ["# k.txt", "one (", "two", ""]


def test_a_place_is_text_unless_the_user_named_its_file(tmp_path: Path) -> None:
    """A location in a file of IR names any file; a FIFO there would block."""
    secret, fifo, page = tmp_path / "secret", tmp_path / "fifo", tmp_path / "page.html"
    secret.write_text("password\n", encoding="utf-8")
    os.mkfifo(fifo)
    text = (ROOT / LAYER).read_text(encoding="utf-8")
    (name,) = set(re.findall(r'"([^"]*weights[.]py)"', text))
    kernel = tmp_path / "kernel.ttir"
    for place in (secret, fifo, "/dev/zero", "a\\00b", "x" * 5000):
        kernel.write_text(text.replace(f'"{name}"', f'"{place}"'), encoding="utf-8")
        shown = data_of(written(page, kernel))
        assert "password" not in str(shown) and "tt.func" in "".join(shown["levels"][0]["lines"])
    kernel.write_text(text.replace(f'"{name}"', f'"{secret}"'), encoding="utf-8")
    assert data_of(written(page, kernel, "--source", secret))["levels"][0]["lines"] == ["# secret", "password", ""]


def test_a_pass_that_runs_again_begins_anew() -> None:
    recorder = Recorder()
    for name in ("one", "two", "three", "two"):
        recorder.write(name, f"made by {name}")
    assert list(recorder.made) == ["one", "two"]


def test_another_kernel_than_the_launched_one_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    from louver.cli.commands.compile import product_source
    from louver.cli.page import levels

    found = product_source((256, 256, 256), "f16", "linear", "sm_90a")
    other = product_source((64, 8, 256), "f16", "linear", "sm_90a").compiled().made
    monkeypatch.setattr(levels, "_again", lambda made, tile: (Recorder(), other))
    with pytest.raises(AssertionError, match="same PTX"):
        levels_of(found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--html", "page.html"), "a page has all levels: give --emit all with --html, got --emit ptx"),
        (("--emit", "sass", "--html", "page.html"), "give --emit all with --html, got --emit sass"),
        (("--emit", "all", "--html", "page.html", "-o", "text"), "--html writes the levels to page.html"),
        (("--emit", "all", "--html", "nowhere/page.html"), "nowhere"),
        (("--emit", "all", "--html", "."), "is a directory"),
        (("--emit", "all", "--html", "page.html", "--source", __file__), "--source is for the page of a file of IR"),
    ],
)
def test_errors_are_one_line(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in cli.refused("compile", *PROBLEM, *options)
    assert not list(tmp_path.iterdir())


def test_the_page_never_replaces_the_kernel(cli: Cli, tmp_path: Path) -> None:
    kernel = tmp_path / "k.mlir"
    kernel.write_text(DOCUMENTED.read_text(encoding="utf-8"), encoding="utf-8")
    assert "another argument" in cli.refused("compile", kernel, "--emit", "all", "--html", kernel)


def test_a_refused_kernel_leaves_no_page(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "k.mlir").write_text("builtin.module {}", encoding="utf-8")
    cli.refused("compile", tmp_path / "k.mlir", "--emit", "all", "--html", tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
