"""`tt.dot_scaled` in Triton's text: the operations that replace it, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from louver.frontend.ttir import read_ttir
from louver.ir.refusal import UnsupportedKernelError


def kernel(
    a: str = "32x64xf8E4M3FN", of_a: str = "32x2xi8", b: str = "64x16xbf16", of_b: str = "", d: str = "32x16xf32",
    formats: tuple[str, str] = ("e4m3", "bf16"), more: str = "",
) -> str:  # fmt: skip
    """A kernel with one dot of tiles without a value of their own: shapes with elements, "" for no scales."""
    scales = [f", tensor<{each}>" if each else "" for each in (of_a, of_b)]
    values = [f" scale %{name}" if each else "" for name, each in (("s", of_a), ("t", of_b))]
    tiles = {"a": a, "s": of_a, "b": b, "t": of_b}
    arguments = ", ".join(f"%{name}0: {each.rpartition('x')[2]}" for name, each in tiles.items() if each)
    splats = "".join(
        f"    %{name} = tt.splat %{name}0 : {each.rpartition('x')[2]} -> tensor<{each}>\n"
        for name, each in tiles.items()
        if each
    )
    return (
        f"module {{\n  tt.func public @k(%y: !tt.ptr<f32>, {arguments}) {{\n{splats}"
        f"    %c = arith.constant dense<0.000000e+00> : tensor<{d}>\n    %at = tt.splat %y : !tt.ptr<f32> -> "
        f"tensor<{d.replace('f32', '!tt.ptr<f32>')}>\n"
        f"    %d = tt.dot_scaled %a{values[0]}, %b{values[1]}, %c lhs = {formats[0]} rhs = {formats[1]} "
        f"{{fastMath = false{more}}} : tensor<{a}>{scales[0]} * tensor<{b}>{scales[1]} -> tensor<{d}>\n"
        f"    tt.store %at, %d : tensor<{d.replace('f32', '!tt.ptr<f32>')}>\n    tt.return\n  }}\n}}\n"
    )


def names(text: str) -> list[str]:
    return [op.name for op in read_ttir(text).walk()]


def test_operands_become_numbers_of_16_bits() -> None:
    text = str(read_ttir(kernel()))
    assert "tt.dot_scaled" not in text
    assert "tensor<32x64xbf16> * tensor<64x16xbf16> -> tensor<32x16xf32>" in text
    halves = str(read_ttir(kernel(b="64x16xf16", formats=("e4m3", "fp16"))))
    # The scaled numbers are rounded once.
    assert "arith.mulf" in halves and "tensor<32x64xf32> -> tensor<32x64xf16>" in halves


def test_an_operand_that_fits_is_taken_as_it_is() -> None:
    found = names(kernel(a="32x64xbf16", of_a="", formats=("bf16", "bf16")))
    assert found[2:] == ["tt.splat", "tt.splat", "arith.constant", "tt.splat", "tt.dot", "tt.store", "tt.return"]


@pytest.mark.parametrize("more", ["", ", rhs_k_pack = true"])
def test_bytes_of_pairs_along_k_unless_told_otherwise(more: str) -> None:
    found = str(read_ttir(kernel(b="32x16xi8", formats=("e4m3", "e2m1"), of_b="16x2xi8", more=more)))
    assert "-> tensor<16x64xi8>" in found
    across = kernel(b="64x8xi8", formats=("e4m3", "e2m1"), of_b="16x2xi8", more=", rhs_k_pack = false")
    assert "-> tensor<64x16xi8>" in str(read_ttir(across))


def test_a_batch_is_a_dot_for_each_matrix() -> None:
    text = kernel("2x32x64xf8E4M3FN", "2x32x2xi8", "2x64x16xf8E5M2", "2x16x2xi8", "2x32x16xf32", ("e4m3", "e5m2"))
    assert names(text).count("tt.dot") == 2


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"formats": ("e5m2", "bf16")}, "operands of tl.dot_scaled are e2m1, e4m3, e5m2, bf16, fp16, .*tt.dot_scaled .*convert"),
    ({"a": "32x64xi8", "formats": ("e3m2", "bf16")}, "operands of tl.dot_scaled are e2m1"),
    ({"of_a": "32x2xi32"}, r"scales of tl.dot_scaled are bytes \(tl.uint8\), x for 2\^\(x - 127\), or tl.float8e4nv"),
    ({"of_a": "2x32xi8"}, "rows of 64 columns has scales .*: give each row a scale for every block"),
    ({"of_a": "32x3xi8"}, "rows of 64 columns has scales"),
    ({"of_a": "32x0xi8"}, "rows of 64 columns has scales"),
    ({"of_a": "32x128xi8"}, "rows of 64 columns has scales"),
    ({"of_b": "2x16xi8"}, "those of the right operand are not transposed"),
    ({"a": "64xf8E4M3FN", "of_a": ""}, "tl.dot_scaled multiplies matrices, or batches of them"),
    ({"b": "32x16xbf16"}, r"a dot is \[M, K\] \* \[K, N\]"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "message"), REFUSED)
def test_refusals(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedKernelError, match=message):
        read_ttir(kernel(**changed))
