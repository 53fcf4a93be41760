from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from louver.isa.wgmma import Wgmma
from louver.ptx import assembler
from louver.ptx.assembler import AssemblerMissingError, Assembling, AssemblyError, assemble, find_ptxas, ptxas_version
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Module, Param
from louver.ptx.printer import print_module
from louver.ptx.sass import disassemble
from support import kernels
from support.ptxas import chain, count_opcode, header


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    find_ptxas.cache_clear()
    ptxas_version.cache_clear()
    yield
    find_ptxas.cache_clear()
    ptxas_version.cache_clear()


def test_a_cubin_comes_with_resources() -> None:
    done = assemble(kernels.AXPY + kernels.BOX.removeprefix(kernels.HEAD))
    assert done.cubin.startswith(b"\x7fELF")
    assert {kernel.name for kernel in done.kernels} == {"axpy", "box"}
    by_name = {kernel.name: kernel for kernel in done.kernels}
    assert 4 <= by_name["axpy"].registers <= 64
    assert (by_name["axpy"].barriers, by_name["box"].barriers) == (0, 1)
    assert done.clean and done.warnings == ()
    assert done.version == ptxas_version() and done.seconds > 0


def test_static_shared_memory_is_reported() -> None:
    text = kernels.AXPY.replace("{\n", "{\n.shared .align 4 .b8 tile[512];\n.reg .b32 t;\n", 1)
    text = text.replace(
        "ret;\n}", "mov.u32 t, tile;\nst.shared.f32 [t], va;\nbar.sync 0;\nld.shared.f32 va, [t+4];\n", 1
    )
    text = text.replace("va", "vx") + "st.global.f32 [py], vx;\nret;\n}\n"
    assert assemble(text).kernels[0].shared_bytes == 512


def test_spills_are_not_clean() -> None:
    k = KernelBuilder("spill", (Param("x", "u64"),), threads=1024)
    x = k.ld_param("x")
    values = k.regs("f32", 128)
    for index, value in enumerate(values):
        k.load_global((value,), Address(x, 4 * index))
    for value in reversed(values):
        k.store_global(Address(x), k.mul_f32(value, values[0]))
    text = print_module(Module("sm_90a", [k.finish()])).replace("ld.global", "ld.volatile.global")
    spilled = assemble(text, options=["-maxrregcount=24"])
    (kernel,) = spilled.kernels
    assert kernel.spill_store_bytes > 0 and kernel.spill_load_bytes > 0 and kernel.stack_bytes > 0
    assert not spilled.clean
    assert spilled.faults == (
        f"a thread spills {kernel.spill_store_bytes} bytes of registers and reads {kernel.spill_load_bytes} back, in "
        f"{kernel.stack_bytes} bytes of stack",
    )
    assert assemble(text.replace(".reqntid 1024", ".reqntid 128")).clean


def test_lost_performance_is_a_warning_with_its_code() -> None:
    text = header((8, 6), "sm_90a") + chain("k", [Wgmma(64, "f16", "f16", "f32", True)])
    assert assemble(text).clean
    ignored = text.replace("wgmma.fence", "setmaxnreg.inc.sync.aligned.u32 240;\nwgmma.fence", 1)
    lost = assemble(ignored)
    (warning,) = lost.warnings
    assert warning.code == "C7508" and warning.performance_loss and "setmaxnreg" in warning.text
    assert not lost.clean
    (fault,) = lost.faults
    assert fault.startswith(f"C7508: {warning.text}") and (f"line {warning.line} of" in fault or warning.line is None)


def test_a_wait_that_the_assembler_adds_is_not_clean() -> None:
    text = header((8, 6), "sm_90a") + chain("k", [Wgmma(64, "f16", "f16", "f32", True)])
    early = text.replace("wgmma.commit_group", "add.f32 %acc_0, %acc_0, %acc_0;\nwgmma.commit_group", 1)
    added = assemble(early)
    assert any(warning.performance_loss for warning in added.warnings) and not added.clean


def test_other_warnings_are_kept_and_clean() -> None:
    text = kernels.AXPY.replace(".reqntid 128", ".maxnreg 8\n.reqntid 128")
    done = assemble(text)
    assert all(warning.text for warning in done.warnings)
    assert not any(warning.performance_loss for warning in done.warnings) and not done.faults


def test_a_refusal_shows_the_lines_around() -> None:
    bad = kernels.AXPY.replace("add.u64 px, px, offset", "add.u64 px, px, missing")
    number = next(i for i, line in enumerate(bad.splitlines(), 1) if "missing" in line)
    with pytest.raises(AssemblyError) as caught:
        assemble(bad)
    message = str(caught.value)
    assert "ptxas refuses the module for sm_90a" in message and "missing" in message
    assert f"> line {number}:     add.u64 px, px, missing;" in message
    assert f"  line {number - 1}: " in message and f"  line {number + 1}: " in message


def test_a_refusal_without_a_line_is_shown_whole() -> None:
    with pytest.raises(AssemblyError, match="sm_999"):
        assemble(kernels.AXPY, "sm_999")


def test_options_reach_the_assembler() -> None:
    with pytest.raises(AssemblyError, match="refuses the module"):
        assemble(kernels.AXPY, options=["--no-such-option"])


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An assembler that never ends; the file that has its process's number."""
    script, number = tmp_path / "ptxas", tmp_path / "number"
    script.write_text(f"#!/bin/sh\necho $$ > {number}\nexec sleep 600\n")
    script.chmod(0o755)
    monkeypatch.setattr(assembler, "find_ptxas", lambda: script)
    return number


def ended(number: Path) -> bool:
    try:
        os.kill(int(number.read_text()), 0)
    except ProcessLookupError:
        return True
    return False


def test_an_endless_assembly_is_given_up(monkeypatch: pytest.MonkeyPatch, endless: Path) -> None:
    monkeypatch.setattr(assembler, "TIMEOUT", 1)
    with pytest.raises(AssemblyError, match="ptxas must end within 1 s"):
        assemble(kernels.AXPY)
    assert ended(endless)


def test_an_assembly_that_nobody_wants_ends(endless: Path) -> None:
    with Assembling(kernels.AXPY) as begun:
        while not (endless.exists() and endless.read_text()):
            assert begun.takes(0.01)
        assert not ended(endless)
    assert ended(endless)


def test_assemblies_begun_at_once_are_those_of_one_after_the_other() -> None:
    texts = [kernels.AXPY, kernels.AXPY.replace("add.u64", "ad.u64"), kernels.AXPY.replace("sm_90a", "sm_90")]
    begun = [Assembling(text) for text in texts]
    for text, each in zip(texts, begun, strict=True):
        with each:
            if "ad.u64" in text.replace("add.u64", ""):
                with pytest.raises(AssemblyError, match="refuses the module"):
                    each.assembly()
                continue
            assert each.assembly().cubin == assemble(text).cubin
            assert not each.takes(0)


def test_the_temporary_folder_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    monkeypatch.setenv("TMPDIR", missing)
    monkeypatch.setattr(tempfile, "tempdir", missing)
    assert count_opcode(disassemble(assemble(kernels.AXPY).cubin), "FFMA") == 1
    with pytest.raises(AssemblyError, match="refuses the module"):
        assemble(kernels.AXPY.replace("add.u64", "ad.u64"))


def test_the_pinned_assembler_is_used() -> None:
    assert find_ptxas().name == "ptxas" and "cu13" in find_ptxas().parts
    printed = subprocess.run([find_ptxas(), "--version"], capture_output=True, text=True, check=True).stdout
    assert f"V{ptxas_version()}" in printed


def test_the_path_is_searched_next(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = find_ptxas()
    find_ptxas.cache_clear()
    (tmp_path / "ptxas").symlink_to(real)
    monkeypatch.setattr(assembler, "WHEEL", "no-such-distribution")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_ptxas() == tmp_path / "ptxas"
    assert ptxas_version().count(".") == 2
    assert assemble(kernels.AXPY).clean


def test_a_missing_assembler_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(assembler, "WHEEL", "no-such-distribution")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AssemblerMissingError, match="pip install no-such-distribution"):
        assemble(kernels.AXPY)
