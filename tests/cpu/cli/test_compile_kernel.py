from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from louver.cli.commands.compile_kernel import KernelArguments, load_kernel
from louver.ptx.assembler import ptxas_version
from louver.runtime.cache import ptx_hash
from louver.user.arguments import classify
from louver.user.compiled import Wanted, apart_of, build_record, multiples_of
from louver.user.hints import Hints
from louver.user.source import TritonSource
from support.triton.cases import CASES
from support.triton.tile_cases import TILE_CASES

if TYPE_CHECKING:
    from support.command_line import Cli

KERNELS = Path(__file__).parents[2] / "support" / "triton" / "kernels.py"


def options(name: str) -> list[str]:
    """The command's options for a kept case."""
    case = CASES[name]
    pairs = {"--arg": case.signature, "--const": case.constexprs, "--sparse": case.sparse}
    return [text for option, of in pairs.items() for key, value in of.items() for text in (option, f"{key}={value}")]


@pytest.mark.parametrize(
    ("level", "signs"),
    [
        ("ttir", ["tt.func public @grouped_pointers", "tt.dot"]),
        ("tile", ["tt.dot", "tt.make_range"]),
        ("canonical", ["tt.dot", "tt.descriptor_load", '#tt.sparse<"NV24">']),
        ("decomposed", ["sparseIndex = 0", "%a_metadata: !tt.ptr<i16>"]),
        ("sched", ["sched.mma", "@grouped_pointers"]),
        ("ptx", [".entry grouped_pointers", "wgmma.mma_async.sp"]),
    ],
)
def test_each_level_of_a_kernel_prints(cli: Cli, level: str, signs: list[str]) -> None:
    pytest.importorskip("triton")
    result = cli("compile", f"{KERNELS}:grouped_pointers", *options("grouped_pointers"), "--emit", level)
    assert result.exit_code == 0, result.output
    assert all(sign in result.output for sign in signs)


def test_all_stages_of_a_kernel_print_in_order(cli: Cli) -> None:
    pytest.importorskip("triton")
    output = cli("compile", f"{KERNELS}:made_descriptors", *options("made_descriptors"), "--emit", "all").output
    places = [
        output.index(f"---- {level} ----")
        for level in ("ttir", "tile", "canonical", "decomposed", "sched", "ptx", "sass")
    ]
    assert places == sorted(places)


def tile_options(name: str) -> list[str]:
    case = TILE_CASES[name]
    pairs = {"--arg": case.signature, "--const": case.constexprs, "--sparse": case.sparse}
    return [text for option, of in pairs.items() for key, value in of.items() for text in (option, f"{key}={value}")]


def test_a_kernel_that_is_no_product_says_why(cli: Cli) -> None:
    pytest.importorskip("triton")
    kernel = (f"{KERNELS.with_name('tile_kernels.py')}:two_dots", *tile_options("two_dots"))
    result = cli("compile", *kernel, "--emit", "all")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("// register tiles: ")
    places = [result.output.index(f"---- {level} ----") for level in ("tile", "decomposed", "encoded", "ptx", "sass")]
    assert places == sorted(places) and "---- sched ----" not in result.output
    assert "got sched: register tiles: " in cli.refused("compile", *kernel, "--emit", "sched")
    product = (f"{KERNELS}:made_descriptors", *options("made_descriptors"))
    assert "a warpgroup product has the levels" in cli.refused("compile", *product, "--emit", "encoded")


@pytest.mark.parametrize(("size", "mark"), [(64, ":16"), (65, "")], ids=["multiples", "other sizes"])
def test_a_command_prints_what_a_call_launches(cli: Cli, size: int, mark: str) -> None:
    pytest.importorskip("triton")
    case = TILE_CASES["dense_f16"]
    given: dict[str, object] = {"M": size, "N": size, "K": size, **case.constexprs}
    given |= {name: np.zeros((64, 64), np.float32 if name == "d" else np.float16) for name in ("d", "a", "b")}
    source = TritonSource(case.function())
    call = classify(source.parameters, given)
    record = build_record(Wanted(source, call.kind, Hints(), "bulk", "sm_90a", multiples_of(call), apart_of(call)))
    options = [text + mark if text.endswith("=i32") else text for text in tile_options("dense_f16")]
    output = cli("compile", f"{KERNELS.with_name('tile_kernels.py')}:{case.kernel}", *options).output
    assert record.ptx_hash == ptx_hash(output.split("\n", 1)[1], ptxas=ptxas_version())


TYPES = {
    **dict.fromkeys(("d", "a", "b"), "*fp16"),
    **dict.fromkeys(("M", "N", "K", "stride_d", "stride_a", "stride_b"), "i32"),
}
AUTOTUNED = ["--sparse", "a=2:4", *(text for name in TYPES for text in ("--arg", f"{name}={TYPES[name]}"))]


@pytest.mark.parametrize(
    ("more", "tile"),
    [
        (("--config", "1"), (64, 32, 64)),
        (("--const", "BM=128", "--const", "BK=64"), (128, 16, 64)),
    ],
)
def test_configs_set_what_is_not_given(cli: Cli, more: tuple[str, ...], tile: tuple[int, int, int]) -> None:
    pytest.importorskip("triton")
    kernel = f"{KERNELS.with_name('autotuned.py')}:below"
    result = cli("compile", kernel, *AUTOTUNED, "--const", "EVEN_K=False", *more, "--emit", "tile")
    assert result.exit_code == 0, result.output
    m, n, k = tile
    assert f"tensor<{m}x{k}xf16>" in result.output and f"tensor<{k}x{n}xf16>" in result.output


def test_configs_and_heuristics_that_are_missing(cli: Cli) -> None:
    pytest.importorskip("triton")
    kernel = f"{KERNELS.with_name('autotuned.py')}:below"
    rule = "triton.heuristics compute EVEN_K from a call's arguments, got none: give --const EVEN_K=VALUE"
    assert rule in cli.refused("compile", kernel, *AUTOTUNED)
    assert "the configs 0 to 3, got --config 4" in cli.refused("compile", kernel, *AUTOTUNED, "--config", "4")
    plain = f"{KERNELS}:made_descriptors"
    rule = "--config is for kernels under triton.autotune"
    assert rule in cli.refused("compile", plain, *options("made_descriptors"), "--config", "0")
    assert rule in cli.refused("compile", "--problem", "64,64,64", "--config", "0")
    assert rule in cli.refused("compile", "kernel.ttir", "--config", "0")


def test_arguments_are_parsed() -> None:
    given = KernelArguments.parse(
        ["a=*fp16", "n=i32:16", "d=*fp16"], ["B=128", "S=0.5", "ON=True", "ACT=leaky"], ["a=2:4"]
    )
    assert given.signature == {"a": "*fp16", "n": "i32", "d": "*fp16"} and given.sparse == {"a": "2:4"}
    assert given.multiples == ("n",) and given.arrays == ("d",)
    assert given.constexprs == {"B": 128, "S": 0.5, "ON": True, "ACT": "leaky"}


@pytest.mark.parametrize("text", ["a", "=1", "a=", ""])
def test_arguments_are_pairs(text: str) -> None:
    with pytest.raises(ValueError, match="an argument is NAME=VALUE, got"):
        KernelArguments.parse([text], [], [])


@pytest.mark.parametrize(
    ("place", "rule"),
    [
        ("kernel", "a kernel is FILE.py:name"),
        ("file.txt:kernel", "a kernel is FILE.py:name"),
        ("file.py:not a name", "a kernel is FILE.py:name"),
        ("missing.py:kernel", "missing.py is no file"),
    ],
)
def test_a_place_names_a_file_and_a_function(cli: Cli, place: str, rule: str) -> None:
    assert rule in cli.refused("compile", place)


def test_a_file_without_the_function_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="has no 'kernel'"):
        load_kernel(f"{tmp_path / 'empty.py'}:kernel")


def test_what_is_no_kernel_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("def kernel(a):\n    return a\n", encoding="utf-8")
    assert "decorated with triton.jit" in cli.refused("compile", f"{tmp_path / 'plain.py'}:kernel", "--arg", "a=*fp16")


def test_elements_have_louver_s_names_too() -> None:
    given = ["a=*f16", "b=*e4m3", "K=i32:16", "x=f32", "y=tensordesc<fp16[64,64]>", "n=1"]
    signature = {"a": "*fp16", "b": "*fp8e4nv", "K": "i32", "x": "fp32", "y": "tensordesc<fp16[64,64]>"}
    assert KernelArguments.parse(given[:-1], [], []).signature == signature
    for wrong in ("a=*half", "n=1"):
        with pytest.raises(ValueError, match=re.escape(f"got {wrong}: use one of fp16, bf16")):
            KernelArguments.parse([wrong], [], [])


@pytest.mark.parametrize("more", [(), ("x.py:k", "--problem", "64,64,64")])
def test_a_kernel_or_a_problem(cli: Cli, more: tuple[str, ...]) -> None:
    assert "one of the two" in cli.refused("compile", *more)
