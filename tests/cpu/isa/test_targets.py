"""The table of targets, and that ptxas agrees with every row."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest

from louver.isa.targets import CTA_SHARED_BYTES, SM_90A, TARGETS, Unit, target
from louver.ptx.assembler import AssemblyError, assemble
from louver.ptx.sass import disassemble, opcodes
from support.ptxas import assemble_text, header
from support.unit_texts import Product, every_product, product_kernel

NEWEST = (9, 5)
"""The PTX ISA version of the texts."""

FEW = 4
"""Instructions that a native product may have more than a native one of f16: two scales with their selectors, say."""

SUFFIXED = [name for name in TARGETS if name.endswith("a")]
"""Targets for which ptxas states the shared memory of a CTA. For the others it states that of a portable one."""


def claimed(name: str) -> dict[Product, str]:
    """What the table says that the target has, and how."""
    support = {each: target(name).support(each.family, each.element, each.kind) for each in every_product()}
    return {each: how for each, how in support.items() if how is not None}


def machine_code(kernels: str, name: str) -> dict[str, Counter[str]]:
    """The opcodes of each kernel of a text without a header."""
    code = disassemble(assemble(header(NEWEST, name) + kernels, name).cubin)
    _, *pieces = re.split(r"^\.text\.(\w+):", code, flags=re.MULTILINE)
    return {kernel: opcodes(part) for kernel, part in zip(pieces[::2], pieces[1::2], strict=True)}


def test_the_h200_and_its_kin():
    hopper = target("sm_90a")
    assert hopper is SM_90A
    assert hopper.max_shared_bytes == 232448
    assert (hopper.setmaxnreg_min, hopper.setmaxnreg_max, hopper.setmaxnreg_step) == (24, 256, 8)
    assert hopper.has("wgmma.sp") and not hopper.has("tcgen05.sp")
    assert [name for name, t in TARGETS.items() if t.has("wgmma.sp")] == ["sm_90a"]
    assert {t.number for t in TARGETS.values() if t.has("tcgen05.sp")} == {100, 103, 107, 110}
    assert not target("sm_80").bulk_copies


def test_the_table_says_where_a_type_is_fast():
    ordered = "mma.sp::ordered_metadata"

    def where(element: str, how: str, kind: str = "") -> set[int]:
        return {t.number for t in TARGETS.values() if t.support(ordered, element, kind) == how}

    assert where("f16", "native") == {t.number for t in TARGETS.values()}
    assert where("e4m3", "native") == {89, 120, 121}
    assert where("e4m3", "emulated") == {90, 100, 103, 107, 110}
    assert where("s4", "native") == {80, 86, 87, 88, 89}
    assert where("e2m1", "native", "mxf8f6f4") == {120, 121}
    assert target("sm_80").support(ordered, "e4m3") is None
    assert target("sm_120f").support(ordered, "e2m1", "mxf4") is None


def test_errors_name_what_is_known():
    with pytest.raises(ValueError, match=r"sm_80, sm_86, .*, sm_121a, sm_121f, got 'sm_70'"):
        target("sm_70")
    with pytest.raises(ValueError, match="named as PTX names it"):
        replace(SM_90A, name="hopper")
    with pytest.raises(ValueError, match="whole KiB, got 1000"):
        replace(SM_90A, max_shared_bytes=1000)
    with pytest.raises(ValueError, match="mma is native or emulated, got both for e4m3"):
        Unit("mma", ("f16", "e4m3"), ("e4m3",))


@pytest.mark.parametrize(
    ("name", "needed", "has"),
    [
        ("sm_90a", "sm_90", True),
        ("sm_90a", "sm_90a", True),
        ("sm_100a", "sm_90", True),
        ("sm_100a", "sm_90a", False),
        ("sm_80", "sm_90", False),
        ("sm_80", "sm_80", True),
        ("sm_89", "sm_89", True),
        ("sm_88", "sm_89", False),
        ("sm_120a", "sm_100a", False),
        ("sm_121a", "sm_120a", True),
        ("sm_120a", "sm_120f", True),
        ("sm_121f", "sm_120f", True),
        ("sm_120f", "sm_120a", False),
        ("sm_120", "sm_120f", False),
        ("sm_110f", "sm_100f", False),
    ],
)
def test_what_targets_provide(name: str, needed: str, has: bool) -> None:
    assert target(name).provides(needed) == has


@pytest.mark.parametrize("name", TARGETS)
def test_ptxas_agrees_about_the_least_version(name):
    known = target(name)
    major, minor = known.min_ptx
    body = ".visible .entry k() {\nret;\n}\n"
    assemble_text(header((major, minor), name) + body, name)
    older = (major, minor - 1) if minor else (major - 1, 8)
    with pytest.raises(AssertionError):
        assemble_text(header(older, name) + body, name)


@pytest.mark.parametrize("name", TARGETS)
def test_ptxas_agrees_about_each_product(name):
    """A native product is one matrix instruction in the frame of f16's. An emulated one has more of something."""
    products = claimed(name)
    code = machine_code("".join(map(product_kernel, products)), name)
    length = {kernel: found.total() - found["NOP"] for kernel, found in code.items()}
    frame = length[Product("mma.sp::ordered_metadata", "", "f16").name]
    for product, how in products.items():
        units = sum(number for opcode, number in code[product.name].items() if re.match("[A-Z]*MMA", opcode))
        fast = units == 1 and (not product.family.startswith("mma") or length[product.name] <= frame + FEW)
        assert ("native" if fast else "emulated") == how, (product, units, length[product.name], frame)
        # docs/targets.md says so.
        assert fast or product.family != "mma.sp::ordered_metadata" or length[product.name] > frame + 30


@pytest.mark.parametrize("name", TARGETS)
def test_ptxas_refuses_what_the_table_denies(name):
    denied = [each for each in every_product() if each not in claimed(name)]
    text = header(NEWEST, name) + "".join(map(product_kernel, denied))
    lines = {number for number, line in enumerate(text.splitlines(), 1) if "mma" in line and "entry" not in line}
    assert len(lines) == len(denied)
    with pytest.raises(AssertionError) as refused:
        assemble_text(text, name)
    assert {int(number) for number in re.findall(r"line (\d+); error", str(refused.value))} >= lines


@pytest.mark.parametrize("name", SUFFIXED)
def test_ptxas_agrees_about_shared_memory(name):
    body = (
        ".visible .entry k(.param .u64 p) {\n.shared .b8 s[1000000];\n.reg .b32 %r;\n.reg .b64 %d;\n"
        "ld.param.u64 %d, [p];\nld.shared.b32 %r, [s+999996];\nst.global.b32 [%d], %r;\nret;\n}\n"
    )
    with pytest.raises(AssemblyError, match=rf"0xf4240 bytes, {target(name).max_shared_bytes:#x} max"):
        assemble(header(NEWEST, name) + body, name)


@pytest.mark.parametrize("name", TARGETS)
def test_ptxas_agrees_about_the_threads_and_ctas_of_an_sm(name):
    threads, ctas = target(name).sm_threads // 128, target(name).sm_ctas
    limits = {
        "most_threads": (128, threads),
        "more": (128, threads + 1),
        "most_ctas": (32, ctas),
        "many": (32, ctas + 1),
    }
    bodies = (f".visible .entry {k}() .maxntid {n} .minnctapersm {c} {{\nret;\n}}\n" for k, (n, c) in limits.items())
    warned = [each.text for each in assemble(header(NEWEST, name) + "".join(bodies), name).warnings]
    assert sorted(re.findall(r"entry (\w+) is out of range", "\n".join(warned))) == ["many", "more"]


def test_the_shared_memory_of_an_sm_holds_its_ctas():
    for machine in TARGETS.values():
        assert machine.shared_bytes(1) == machine.max_shared_bytes
        assert 2 * (machine.shared_bytes(2) + CTA_SHARED_BYTES) <= machine.sm_shared_bytes


@pytest.mark.parametrize("name", [name for name, machine in TARGETS.items() if machine.number >= 90])
def test_bulk_copies_go_to_the_cheap_space(name):
    """On sm_12x the assembler calls a function for each copy to shared::cluster."""
    called = {space for space, code in machine_code(_copies(), name).items() if any("CALL" in each for each in code)}
    assert called == ({"cluster"} if target(name).bulk_copies == "shared::cta" else set())


def _copies():
    """A kernel for each space that a bulk copy can have as its destination."""
    return "".join(
        f".visible .entry {space}(.param .u64 p) {{\n.shared .align 128 .b8 s[1024];\n.shared .align 8 .b64 m;\n"
        ".reg .b32 %r<2>;\n.reg .b64 %d;\nld.param.u64 %d, [p];\nmov.u32 %r0, s;\nmov.u32 %r1, m;\n"
        f"cp.async.bulk.shared::{space}.global.mbarrier::complete_tx::bytes [%r0], [%d], 512, [%r1];\nret;\n}}\n"
        for space in ("cluster", "cta")
    )


@pytest.mark.parametrize("name", [name for name, machine in TARGETS.items() if not machine.bulk_copies])
def test_older_targets_have_no_bulk_copies(name):
    with pytest.raises(AssemblyError, match="requires .target sm_90 or higher"):
        machine_code(_copies(), name)


@pytest.mark.parametrize("name", TARGETS)
def test_ptxas_agrees_about_setmaxnreg(name):
    body = ".visible .entry k() .maxntid 128 {\nsetmaxnreg.inc.sync.aligned.u32 232;\nret;\n}\n"
    if target(name).setmaxnreg_step:
        assemble(header(NEWEST, name) + body, name)
    else:
        with pytest.raises(AssemblyError, match="setmaxnreg"):
            assemble(header(NEWEST, name) + body, name)
