from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from louver.isa.async_copy import AsyncCommit, AsyncCopy, AsyncWait
from louver.isa.wgmma import Wgmma
from louver.ptx import sass
from louver.ptx.assembler import assemble
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Module, Param
from louver.ptx.printer import print_module
from louver.ptx.sass import (
    DisassemblerMissingError,
    count_products,
    disassemble,
    disassemble_lines,
    find_nvdisasm,
    opcodes,
)
from support import kernels
from support.ptxas import chain, count_opcode, header


@pytest.mark.sampled(7)
@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize(
    "kind,d,unit", [("f16", "f32", "HGMMA"), ("tf32", "f32", "HGMMA"), ("e4m3", "f32", "QGMMA"), ("s8", "s32", "IGMMA")]
)
def test_products_are_found(kind: str, d: str, unit: str, sparse: bool) -> None:
    text = header((8, 6), "sm_90a") + chain("k", [Wgmma(64, kind, kind, d, sparse)])
    found = disassemble(assemble(text).cubin)
    assert count_opcode(found, unit) >= 1
    assert sum(number for name, number in count_products(found).items() if name.endswith(".SP")) == int(sparse)


def test_asynchronous_copies_are_single_instructions_whether_or_not_sources_are_ignored() -> None:
    k = KernelBuilder("copy", (Param("x", "u64"), Param("n", "u32")), threads=128, dynamic_shared=8192)
    tid = k.special("%tid.x")
    to, source = k.mad_lo(tid, 16, k.shared_symbol()), k.mad_wide(tid, 16, k.ld_param("x"))
    k.emit(AsyncCopy(), Address(to), Address(source), k.setp("ge", "u32", tid, k.ld_param("n")))
    k.emit(AsyncCommit())
    k.emit(AsyncCopy(), Address(to, 2048), Address(source, 2048), k.mov(0, kind="pred"))
    k.emit(AsyncCommit())
    k.emit(AsyncWait(0))
    found = disassemble(assemble(print_module(Module("sm_90a", [k.finish()]))).cubin)
    copies = [line for line in found.splitlines() if "LDGSTS.E.BYPASS.128" in line]
    assert ["P0" in line for line in copies] == [True, False]
    assert not any("@" in line for line in copies)
    assert count_opcode(found, "LDG") == count_opcode(found, "STS") == 0
    assert count_opcode(found, "LDGDEPBAR") == 2 and count_opcode(found, "DEPBAR") == 1


def test_opcodes_keep_their_qualifiers_and_lose_their_guards() -> None:
    found = opcodes(
        """
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 BRA `(.L_x_1) ;
        /*0020*/             @UP0  USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xe8 ;
        /*0030*/                   HGMMA.SP.64x256x32.F32 R24, gdesc[UR4], R24, UP0, R56, 0x0, gsb0 ;
        /*0040*/               @P1 HGMMA.SP.64x256x32.F32 R24, gdesc[UR4], R24, UP0, R56, 0x1, gsb0 ;
        /*0050*/                   STL [R1], R2 ;
        """
    )
    assert found == {
        "LDC": 1,
        "BRA": 1,
        "USETMAXREG.TRY_ALLOC.CTAPOOL": 1,
        "HGMMA.SP.64x256x32.F32": 2,
        "STL": 1,
    }


def test_opcodes_are_counted_whatever_their_qualifiers() -> None:
    found = disassemble(assemble(kernels.AXPY).cubin)
    assert count_opcode(found, "LDG") == 2 and count_opcode(found, "STG") == 1 and count_opcode(found, "FFMA") == 1
    assert count_opcode(found, "LD") == 0 and not count_products(found)


def test_what_is_no_cubin_is_refused() -> None:
    with pytest.raises(ValueError, match="nvdisasm cannot read the cubin"):
        disassemble(b"no machine code")


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setattr(sass, "WHEEL", "no-such-distribution")
    monkeypatch.setenv("PATH", str(tmp_path))
    yield tmp_path


def test_a_missing_disassembler_says_what_to_install(nowhere: Path) -> None:
    with pytest.raises(DisassemblerMissingError, match="pip install no-such-distribution"):
        disassemble(b"")


def test_the_path_is_searched_next(nowhere: Path) -> None:
    (nowhere / "nvdisasm").write_text("#!/bin/sh\n")
    (nowhere / "nvdisasm").chmod(0o755)
    assert find_nvdisasm() == nowhere / "nvdisasm"


def test_lines_say_which_line_of_ptx_they_come_from() -> None:
    text = header((8, 6), "sm_90a") + chain("k", [Wgmma(64, "f16", "f16", "f32", True)])
    ptx = text.splitlines()
    cubin = assemble(text, options=("-lineinfo",)).cubin
    lines = disassemble_lines(cubin, ptx)
    # Line information changes no instruction.
    assert [line.text for line in lines] == disassemble(assemble(text).cubin).splitlines()
    products = [number for number, each in enumerate(ptx, 1) if "wgmma.mma_async" in each]
    assert [line.ptx for line in lines if "HGMMA" in line.text] == products
    stores = [line.ptx for line in lines if "STG" in line.text]
    assert stores and all(number is not None and "st.global" in ptx[number - 1] for number in stores)
    assert all(line.ptx is None for line in lines if "/*" not in line.text or "NOP" in line.text)


def test_products_that_cannot_be_counted_off_have_no_line() -> None:
    text = header((8, 6), "sm_90a") + chain("k", [Wgmma(64, "f16", "f16", "f32", True)])
    lines = disassemble_lines(assemble(text, options=("-lineinfo",)).cubin, [])
    assert [line.ptx for line in lines if "HGMMA" in line.text] == [None]
