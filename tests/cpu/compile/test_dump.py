"""The files that passes write where LOUVER_DUMP names a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects.builtin import StringAttr

from louver.compile.compiled import CompiledProduct
from louver.compile.dump import Dump
from louver.compile.passes import names
from louver.compile.pipeline import CHECK, PRODUCT, TILES, Choice, Readings, compile_kernel, compile_tile_ir
from louver.ir.refusal import UnsupportedKernelError
from louver.ir.tile import FuncOp
from support.compiled import read_copy
from support.triton.cases import kept
from support.triton.products import SCHEDULE
from support.triton.texts import changed
from support.triton.tile_cases import kept_tiles


def compiled(name: str) -> CompiledProduct:
    """A kept kernel, compiled anew."""
    return compile_tile_ir(read_copy(kept(name)), SCHEDULE)


def test_every_pass_writes_a_file_of_its_name_and_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOUVER_DUMP", str(tmp_path))
    product = compiled("grouped_pointers")
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith("grouped_pointers-")
    files = sorted(folder.iterdir())
    assert [file.stem for file in files] == [f"{number:02}-{name}" for number, name in enumerate(names(PRODUCT))]
    assert files[-1].read_text(encoding="utf-8").rstrip() == product.ptx.rstrip()
    texts = {file.stem[3:]: file.read_text(encoding="utf-8") for file in files}
    assert "#tt.sparse" not in texts["tile-ir"] and "#tt.sparse" in texts["propagate-sparsity"]
    assert "tt.descriptor_load" in texts["describe-tiles"] and "sched.kernel" in texts["generate-schedule"]
    assert "ProductNest" in texts["read-nest"]


@pytest.mark.parametrize("name", ["../../evil", "/etc/evil", ".hidden", "a/b\x00c", "x" * 400, "..", "\u202ename"])
def test_a_kernel_s_name_is_no_path(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "a" / "b" / "dump"
    monkeypatch.setenv("LOUVER_DUMP", str(inside))
    module = read_copy(kept("made_descriptors"))
    (kernel,) = (op for op in module.body.ops if isinstance(op, FuncOp))
    kernel.properties["sym_name"] = StringAttr(name)
    Dump.of(module, ("tile-ir",)).write("tile-ir", module)
    assert {path.relative_to(tmp_path).parts[:3] for path in tmp_path.rglob("*.mlir")} == {("a", "b", "dump")}
    (folder,) = inside.iterdir()
    assert folder.name.isascii() and folder.name[0] not in ".-" and len(folder.name) < 100


def test_a_refused_kernel_leaves_what_was_made_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOUVER_DUMP", str(tmp_path))
    module = changed("made_descriptors", (r"tt.descriptor_store .*", ""))
    with pytest.raises(UnsupportedKernelError):
        compile_tile_ir(module, SCHEDULE)
    (folder,) = tmp_path.iterdir()
    found = [file.stem[3:] for file in sorted(folder.iterdir())]
    assert found and found == list(names(PRODUCT)[: len(found)]) and "read-nest" not in found


def test_nothing_is_written_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOUVER_DUMP", raising=False)
    monkeypatch.chdir(tmp_path)
    compiled("made_descriptors")
    assert not list(tmp_path.iterdir())


def test_dumping_again_replaces_whole_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOUVER_DUMP", str(tmp_path / "new"))
    for _ in range(2):
        compiled("made_descriptors")
    (folder,) = (tmp_path / "new").iterdir()
    assert len(list(folder.iterdir())) == len(names(PRODUCT))


def test_register_tiles_write_beside_what_refused_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOUVER_DUMP", str(tmp_path))
    made = compile_kernel(Readings(lambda passed: read_copy(kept_tiles("two_dots"))), Choice(lambda _: SCHEDULE)).made
    (folder,) = tmp_path.iterdir()
    files = sorted(file.name for file in folder.iterdir())
    tiles = [file for file in files if file.startswith("tiles-")]
    assert [file.rpartition(".")[0] for file in tiles] == [
        f"tiles-{number:02}-{name}" for number, name in enumerate(names(TILES))
    ]
    assert files[0] == "00-tile-ir.mlir" and "lower-to-ptx" not in "".join(files)
    *_, lowered, checked = tiles
    assert (folder / lowered).read_text(encoding="utf-8").rstrip() == made.ptx.rstrip()
    assert (folder / checked).read_text(encoding="utf-8").strip() == f"{CHECK} does not ask for it"
