"""`louver compile` of files of IR, in both families, without Triton."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from louver.cli.commands.compile_kernel import ir_source
from louver.ir.refusal import UnsupportedKernelError
from louver.isa.targets import TARGETS, target
from louver.ptx.assembler import ptxas_version
from louver.runtime.cache import ptx_hash
from louver.user.arguments import Kind
from louver.user.compiled import UncleanKernelError, Wanted, build_record
from louver.user.hints import Hints
from support.golden import ROOT as GOLDEN
from support.jit import KeptSource

if TYPE_CHECKING:
    from support.command_line import Cli

LAYER = GOLDEN / "ttir" / "3.6" / "weight_descriptors.ttir"
"""A product, as Triton printed it."""

DOCUMENTED = Path(__file__).parents[1] / "ir" / "inputs" / "simplified_sparse_dot.mlir"
"""The 32×16×64 product in which sparse encodings were first documented: no warpgroup product is so small."""


@pytest.mark.parametrize(
    ("level", "signs"),
    [
        ("ttir", ["tt.func public @weight_descriptors", "#loc = loc("]),
        ("tile", ["louver.sparse.NV24", "tt.trans"]),
        ("canonical", ['!tt.ptr<f16, #tt.sparse<"NV24">>', "%bias_tensor = tt.make_tensor_descriptor"]),
        ("decomposed", ["%w_metadata: !tt.ptr<i16>", "sparseIndex = 0"]),
        ("sched", ["sched.kernel @weight_descriptors", "sched.bulk_store"]),
        ("ptx", [".entry weight_descriptors", "wgmma.mma_async.sp"]),
        ("sass", ["HGMMA.SP"]),
    ],
)
def test_each_level_of_a_product(cli: Cli, level: str, signs: list[str]) -> None:
    result = cli("compile", LAYER, "--emit", level)
    assert result.exit_code == 0, result.output
    assert all(sign in result.output for sign in signs)
    assert "register tiles" not in result.output


@pytest.mark.parametrize(
    ("level", "signs"),
    [
        ("tile", ['tensor<32x64xf16, #tt.sparse<"NV24">>', "tt.make_tensor_ptr"]),
        ("decomposed", ["%arg1_metadata: !tt.ptr<i16>", "sparseIndex = 0"]),
        ("encoded", ["#tt.dot_op<{opIdx = 0", "meta = 1"]),
        ("ptx", [".entry dot_kernel", "mma.sp::ordered_metadata.sync.aligned.m16n8k32"]),
        ("sass", ["HMMA.SP"]),
    ],
)
def test_each_level_of_register_tiles(cli: Cli, level: str, signs: list[str]) -> None:
    result = cli("compile", DOCUMENTED, "--emit", level)
    assert result.exit_code == 0, result.output
    assert all(sign in result.output for sign in signs)
    # What the kernel's text says comes before anyone asks for a family.
    assert result.output.startswith("// register tiles: a warpgroup multiplies whole blocks") == (level != "tile")


def test_ptx_is_printed_by_default(cli: Cli) -> None:
    assert cli("compile", DOCUMENTED).output == cli("compile", DOCUMENTED, "--emit", "ptx").output


@pytest.mark.sampled(7, every=2)
@pytest.mark.parametrize("file", sorted(GOLDEN.rglob("*.ttir")), ids=lambda file: str(file.relative_to(GOLDEN)))
def test_what_is_printed_is_what_a_launch_runs(file: Path) -> None:
    wanted = Wanted(KeptSource(file.stem, file.read_text("utf-8"), ()), Kind((), (), (), ()), Hints(), "bulk", "sm_90a")
    source = ir_source(str(file), {}, "sm_90a")
    try:
        record = build_record(wanted)
    except (UnsupportedKernelError, UncleanKernelError) as refused:
        with pytest.raises(type(refused)):
            source.text("ptx")
        return
    printed = source.text("ptx")
    assert printed.startswith("// register tiles: ") == (record.resources["refusal"] is not None)
    assert record.ptx_hash == ptx_hash(
        printed.split("\n", 1)[1] if printed[0] == "/" else printed, ptxas=ptxas_version()
    )


@pytest.mark.parametrize(
    ("file", "levels"),
    [
        (LAYER, ["ttir", "tile", "canonical", "decomposed", "sched", "ptx", "sass"]),
        (LAYER.with_suffix(".mlir"), ["tile", "canonical", "decomposed", "sched", "ptx", "sass"]),
        (DOCUMENTED, ["tile", "decomposed", "encoded", "ptx", "sass"]),
    ],
    ids=["ttir", "tile", "register tiles"],
)
def test_all_prints_the_levels_that_there_are(cli: Cli, file: Path, levels: list[str]) -> None:
    output = cli("compile", file, "--emit", "all").output
    assert re.findall(r"^// ---- (\w+) ----$", output, re.M) == levels
    assert output.startswith("// register tiles: ") == ("encoded" in levels)


@pytest.mark.parametrize("level", ["canonical", "sched"])
def test_a_level_of_products_alone_is_refused_with_the_reason(cli: Cli, level: str) -> None:
    line = cli.refused("compile", DOCUMENTED, "--emit", level)
    assert f"the kernel has the levels tile, decomposed, encoded, ptx, sass, got {level}: register tiles: " in line
    # The reason names what is allowed and the operation.
    assert line.split("register tiles: ")[1] and "got" in line.split("register tiles: ")[1]


def test_a_stage_of_register_tiles_alone_is_refused(cli: Cli) -> None:
    assert "a warpgroup product has the levels" in cli.refused("compile", LAYER, "--emit", "encoded")


@pytest.mark.parametrize(
    ("file", "signs"),
    [
        (
            LAYER,
            ["holds 2:4, promised by its type", "the kernel's own tile: its sizes are not known", "wgmma.sp on sm_90a"],
        ),
        (
            DOCUMENTED,
            ["holds 2:4, promised by its type", "registers of a thread", "because it is no product", "mma.sp of"],
        ),
    ],
    ids=["product", "register tiles"],
)
def test_the_reasons_for_a_file_of_ir(cli: Cli, file: Path, signs: list[str]) -> None:
    output = cli("compile", file, "--emit", "reasons").output
    assert [line.split(":")[0] for line in output.splitlines()] == ["detect", "cost", "select"]
    assert all(sign in output for sign in signs)


def test_a_file_of_tile_ir_has_no_ttir(cli: Cli) -> None:
    assert "only a Triton kernel has a TTIR" in cli.refused("compile", DOCUMENTED, "--emit", "ttir")


def test_the_target_chooses_the_family(cli: Cli) -> None:
    output = cli("compile", LAYER, "--target", "sm_80", "--emit", "all").output
    assert output.startswith("// register tiles: products are scheduled for sm_90a, got sm_80")
    assert ".target sm_80" in output and "mma.sp::ordered_metadata" in output


def test_arguments_are_marked_as_sparse(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "plain.ttir"
    file.write_text(LAYER.read_text(encoding="utf-8").replace("{louver.sparse.NV24 = 1 : i32} ", ""), encoding="utf-8")
    sparse = cli("compile", file, "--sparse", "w=2:4", "--emit", "sched")
    assert sparse.output == cli("compile", LAYER, "--emit", "sched").output
    assert "a sparse argument is one of y, x, w, bias" in cli.refused("compile", file, "--sparse", "q=2:4")


def test_a_refusal_of_both_families_says_both_reasons(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "kernel.mlir"
    text = DOCUMENTED.read_text(encoding="utf-8")
    # Metadata are of 16 columns at least, and a warpgroup has 64 rows.
    for old, new in (
        ("32x64", "32x8"),
        ("64x16", "8x16"),
        ("32, 64", "32, 8"),
        ("64, 1]", "8, 1]"),
        ("[64, 16", "[8, 16"),
    ):
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")
    refused = cli.refused("compile", file)
    tiles, product = refused.split(". As a warpgroup product it is refused too: ")
    assert "16 at least), not 32 x 8" in tiles and "blocks of 64 rows" in product
    assert cli("compile", file, "--emit", "tile").exit_code == 0


@pytest.mark.parametrize(("option", "given"), [("--arg", "BM=i32"), ("--const", "BM=64")])
def test_a_file_says_its_types_itself(cli: Cli, option: str, given: str) -> None:
    refused = cli.refused("compile", LAYER, option, given)
    assert f"a file of IR says its types and constants itself, got {given}" in refused


@pytest.mark.parametrize(
    ("name", "content", "rule"),
    [
        ("empty.mlir", b" \n", "is empty: it should hold a kernel"),
        ("binary.ttir", b"\x7fELF\xff\xfe", "TTIR and tile IR are text in UTF-8"),
        ("notes.mlir", b"Dear reader,\n", "a kernel's text must be tile IR"),
        ("none.mlir", b"builtin.module {\n}\n", "holds no kernel as TTIR or tile IR: a module holds one kernel, got 0"),
        ("gpu.mlir", b"module {\n  ttg.warp_specialize()\n}\n", "ttg.warp_specialize is not supported"),
    ],
)
def test_what_is_no_kernel(cli: Cli, tmp_path: Path, name: str, content: bytes, rule: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    assert rule in cli.refused("compile", file, "--emit", "tile")


def test_schedule_ir_is_no_kernel_s_beginning(cli: Cli) -> None:
    refused = cli.refused("compile", GOLDEN / "sched" / "linear-f16-bias.mlir")
    assert "linear-f16-bias.mlir holds no kernel as TTIR or tile IR" in refused


def test_what_is_no_file(cli: Cli) -> None:
    assert "missing.ttir is no file" in cli.refused("compile", "missing.ttir")


def test_an_unknown_level() -> None:
    with pytest.raises(ValueError, match="levels are ttir, tile, canonical, .*, all or reasons, got 'cubin'"):
        ir_source(str(DOCUMENTED), {}, "sm_90a").text("cubin")


@pytest.mark.parametrize("name", TARGETS)
def test_a_sparse_kernel_compiles_for_every_target(cli: Cli, name: str) -> None:
    result = cli("compile", DOCUMENTED, "--target", name, "--emit", "sass")
    assert result.exit_code == 0, result.output
    assert re.search(r"\bHMMA\.SP\.16832\.F32 ", result.output) and f"sm_{target(name).number}" in result.output


def test_an_unknown_target_names_the_known_ones(cli: Cli) -> None:
    result = cli("compile", DOCUMENTED, "--target", "sm_75")
    assert result.exit_code == 2 and re.search("the targets are sm_80, .*, got 'sm_75'", result.output)
