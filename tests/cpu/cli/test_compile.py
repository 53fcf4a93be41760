from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from louver.cli.commands.compile import parse_sizes

if TYPE_CHECKING:
    from support.command_line import Cli


@pytest.mark.parametrize(
    ("level", "signs"),
    [
        ("tile", ["#tt.sparse", "tt.dot"]),
        ("canonical", ["tt.make_tensor_descriptor", "scf.for"]),
        ("decomposed", ["sparseIndex = 0", "xi16>"]),
        ("sched", ["sched."]),
        ("ptx", [".target sm_90a", "wgmma.mma_async.sp", "setmaxnreg"]),
    ],
)
def test_each_level_prints(cli: Cli, level: str, signs: list[str]) -> None:
    result = cli("compile", "--problem", "300,40,136", "--dtype", "bf16", "--emit", level)
    assert result.exit_code == 0, result.output
    assert all(sign in result.output for sign in signs)


@pytest.mark.parametrize(("dtype", "opcode"), [("f16", "HGMMA.SP"), ("e4m3", "QGMMA.SP"), ("s8", "IGMMA.SP")])
def test_sass_is_the_machine_code(cli: Cli, dtype: str, opcode: str) -> None:
    result = cli("compile", "--problem", "300,40,136", "--dtype", dtype, "--emit", "sass")
    assert result.exit_code == 0, result.output
    assert opcode in result.output and "USETMAXREG" in result.output


def test_rows_of_whole_chunks_are_stored_in_bulk(cli: Cli) -> None:
    aligned, odd = (cli("compile", "--problem", f"{m},64,136", "--emit", "sched").output for m in (304, 301))
    assert "sched.bulk_store" in aligned and "sched.bulk_store" not in odd


def test_all_prints_the_levels_in_order(cli: Cli) -> None:
    output = cli("compile", "--problem", "128,8,64", "--product", "matmul", "--emit", "all").output
    places = [
        output.index(f"---- {level} ----") for level in ("tile", "canonical", "decomposed", "sched", "ptx", "sass")
    ]
    assert places == sorted(places)


def test_the_sizes_choose_the_tile(cli: Cli) -> None:
    few, many = (cli("compile", "--problem", f"4096,{n},4096", "--emit", "sched").output for n in (8, 8192))
    assert few != many


@pytest.mark.parametrize("text", ["1,2", "1,2,3,4", "a,b,c", "0,5,7", "-1,2,3", "1.5,2,3", ""])
def test_a_problem_is_three_positive_integers(cli: Cli, text: str) -> None:
    assert "three positive integers" in cli.refused("compile", f"--problem={text}")


@pytest.mark.parametrize("size", ["2147483648", "1" + 400 * "0", "9" * 5000])
def test_sizes_beyond_32_bits(cli: Cli, size: str) -> None:
    refused = cli.refused("compile", f"--problem=64,{size},64")
    assert (
        "sizes of a problem M,N,K are at most 2,147,483,647, got" in refused and "kernels count in 32 bits" in refused
    )


def test_ways_to_accumulate(cli: Cli) -> None:
    options = ("compile", "--problem", "4096,8192,4096", "--dtype", "e4m3", "--emit", "ptx", "--accumulate")
    assert "k64.f16.e4m3.e4m3" in cli(*options, "f16").output
    assert "add.rn.f32" in cli(*options, "promoted").output
    refused = cli.refused("compile", "--problem", "64,64,64", "--dtype", "bf16", "--accumulate", "f16")
    assert "accumulate must be one of" in refused


def test_the_levels_of_a_product(cli: Cli) -> None:
    refused = cli.refused("compile", "--problem", "64,64,64", "--emit", "encoded")
    assert "a warpgroup product has the levels tile, canonical, decomposed, sched, ptx, sass, got encoded" in refused
    assert "only a Triton kernel has a TTIR" in cli.refused("compile", "--problem", "64,64,64", "--emit", "ttir")


@pytest.mark.parametrize("option", ["--arg", "--const", "--sparse"])
def test_a_problem_has_no_arguments(cli: Cli, option: str) -> None:
    refused = cli.refused("compile", "--problem", "64,64,64", option, "a=2:4")
    assert "--arg, --const and --sparse are for kernels, got a=2:4" in refused


def test_sizes_may_have_spaces() -> None:
    assert parse_sizes(" 4, 5 ,6") == (4, 5, 6)


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_100a", "sm_120a"])
def test_products_of_targets_without_warpgroups_are_register_tiles(cli: Cli, target: str) -> None:
    first, *lines = cli("compile", "--problem", "128,8,64", "--target", target).stdout.splitlines()
    assert first == f"// register tiles: {target} has no warpgroup products"
    assert f".target {target}" in lines and any("mma.sp::ordered_metadata" in line for line in lines)


@pytest.mark.parametrize("target", ["sm_75", "sm_13", "hopper"])
def test_only_targets_with_a_kernel(cli: Cli, target: str) -> None:
    assert target in cli.refused("compile", "--problem", "128,8,64", "--target", target)


def test_unknown_choices_are_usage_errors(cli: Cli) -> None:
    for option in (["--dtype", "f64"], ["--emit", "llvm"], ["--product", "conv"]):
        result = cli("compile", "--problem", "128,8,64", *option)
        assert result.exit_code == 2 and option[1] in result.stderr


def test_four_bits(cli: Cli) -> None:
    problem = ("compile", "--problem", "64,16,128", "--dtype", "u4x2")
    assert "m16n8k128.row.col.s32.u4.u4.s32" in cli(*problem, "--target", "sm_86").output
    refused = cli.refused(*problem, "--target", "sm_90a")
    assert (
        "sm_90a has no sparse product of u4x2×u4x2 that is one instruction; the first target with one is sm_80"
        in refused
    )


def test_floats_below_eight_bits(cli: Cli) -> None:
    problem = ("compile", "--problem", "64,16,128", "--dtype", "e3m2")
    assert "m16n8k64.row.col.kind::f8f6f4.f32.e3m2.e3m2.f32" in cli(*problem, "--target", "sm_121a").output
    assert "of e3m2×e3m2 that is one instruction; the first target with one is sm_120a" in cli.refused(*problem)
