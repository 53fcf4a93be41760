"""How kernels describe a sparse argument: as the dense tensor lies, or refused, never anything else.

Each accepted form is run on the emulator and compared with the same kernel on the dense array, at the pitch that it is given.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import louver
from louver.compile.pipeline import compile_tiles
from louver.ir.context import parse_ir
from louver.ir.refusal import UnsupportedKernelError
from louver.user.emulated import EmulatedMemory
from louver.user.hints import Hints
from louver.user.jit_kernel import JitKernel
from support.jit import KeptSource
from support.sizes import sizes

ROWS, COLUMNS, DEPTH = 40, 16, 128

TEXT = """tt.func public @k(%d: !tt.ptr<f32>, %a: !tt.ptr<f16> {mark}, %b: !tt.ptr<f16>, %E: i32, %M: i32, %N: i32, %K: i32, %p: i32) {{
  %zero = arith.constant 0 : i32
  %step = arith.constant 64 : i32
  %rows = arith.constant 16 : i32
  %one64 = arith.constant 1 : i64
  %two = arith.constant 2 : i32
  %program = tt.get_program_id x : i32
  %m = arith.muli %program, %rows : i32
  %entry = tt.get_program_id y : i32
  %N64 = arith.extsi %N : i32 to i64
  %K64 = arith.extsi %K : i32 to i64
  %MN = arith.muli %M, %N : i32
  %MN64 = arith.extsi %MN : i32 to i64
  {setup}
  %pitch64 = arith.extsi %pitch : i32 to i64
  %MK = arith.muli %M, %pitch : i32
  %MK64 = arith.extsi %MK : i32 to i64
  %views = {view}
  %bs = tt.make_tensor_descriptor %b, [%N, %K], [%K64, %one64] : <f16>, <tensor<16x64xf16>>
  %ds = tt.make_tensor_descriptor %d, [%E, %M, %N], [%MN64, %N64, %one64] : <f32>, <tensor<1x16x16xf32>>
  %zeros = arith.constant dense<0.0> : tensor<16x16xf32>
  %total = scf.for %k = %zero to %{end} step %step iter_args(%partial = %zeros) -> (tensor<16x16xf32>) : i32 {{
    {load}
    %y = tt.descriptor_load %bs[%zero, %k] : !tt.tensordesc<tensor<16x64xf16>> -> tensor<16x64xf16>
    %t = tt.trans %y {{order = array<i32: 1, 0>}} : tensor<16x64xf16> -> tensor<64x16xf16>
    %next = tt.dot %x, %t, %partial, inputPrecision = tf32 : tensor<16x64xf16> * tensor<64x16xf16> -> tensor<16x16xf32>
    scf.yield %next : tensor<16x16xf32>
  }}
  %out = tt.reshape %total : tensor<16x16xf32> -> tensor<1x16x16xf32>
  tt.descriptor_store %ds[%entry, %m, %zero], %out : !tt.tensordesc<tensor<1x16x16xf32>>, tensor<1x16x16xf32>
  tt.return
}}"""

DESCRIPTOR = (
    "tt.make_tensor_descriptor %a, [%M, %length], [%pitch64, %one64] : <f16>, <tensor<16x64xf16>>",
    "%x = tt.descriptor_load %views[%m, %k] : !tt.tensordesc<tensor<16x64xf16>> -> tensor<16x64xf16>",
)
BLOCKS = (
    "arith.constant 0 : i32",
    """%length64 = arith.extsi %length : i32 to i64
    %M64 = arith.extsi %M : i32 to i64
    %at = tt.make_tensor_ptr %a, [%M64, %length64], [%pitch64, %one64], [%m, %k] {order = array<i32: 1, 0>} : <tensor<16x64xf16>>
    %x = tt.load %at {boundaryCheck = array<i32: 0, 1>, padding = 1 : i32} : !tt.ptr<tensor<16x64xf16>>""",
)
BATCH = (
    "tt.make_tensor_descriptor %a, [%E, %M, %length], [%MK64, %pitch64, %one64] : <f16>, <tensor<1x16x64xf16>>",
    "%whole = tt.descriptor_load %views[%entry, %m, %k] : !tt.tensordesc<tensor<1x16x64xf16>> -> tensor<1x16x64xf16>\n"
    "    %x = tt.reshape %whole : tensor<1x16x64xf16> -> tensor<16x64xf16>",
)
STYLES = {"descriptor": DESCRIPTOR, "blocks": BLOCKS, "batch": BATCH}

BROKEN = "read a sparse tensor at a computed address against this rule"
"""A description that no tensor has is dropped, and the tiles are addressed at run time. Then this rule holds."""

FORMS: dict[str, tuple[str, Callable[[int, int], tuple[int, int]]]] = {
    "K": ("%pitch = arith.muli %K, %unit : i32", lambda k, p: (k, k)),
    "an argument": ("%pitch = arith.muli %p, %unit : i32", lambda k, p: (p, k)),
    "twice K": ("%pitch = arith.muli %K, %two : i32", lambda k, p: (2 * k, k)),
    "twice an argument": ("%pitch = arith.muli %p, %two : i32", lambda k, p: (2 * p, k)),
    "half of K": ("%pitch = arith.divsi %K, %two : i32", lambda k, p: (k // 2, k)),
    "part of a row": (
        "%pitch = arith.muli %K, %unit : i32\n  %half = arith.divsi %K, %two : i32",
        lambda k, p: (k, k // 2),
    ),
}
"""What computes the pitch, and, by K and p, the pitch and the length of a row that the kernel reads."""


def text_of(style: str, form: str, *, marked: bool = True, end: str = "K") -> str:
    setup = "%unit = arith.constant 1 : i32\n  " + FORMS[form][0]
    length = "%half" if "%half" in setup else "%K"
    view, load = (part.replace("%length", length) if "%length64" not in part else part for part in STYLES[style])
    load = load.replace("%length :", f"{length} :")
    mark = "{louver.sparse.NV24 = 1 : i32}" if marked else ""
    return TEXT.format(mark=mark, setup=setup, view=view, load=load, end=end)


def kernel(text: str) -> JitKernel:
    return JitKernel(KeptSource("k", text, ("d", "a", "b", "E", "M", "N", "K", "p")), Hints(family="register tiles"))


def laid_out(w: np.ndarray, pitch: int, rng: np.random.Generator) -> np.ndarray:
    """The matrices of `w`, and noise behind them, as far as rows `pitch` apart reach."""
    memory = rng.standard_normal(w[..., 0].size * max(pitch, w.shape[-1]) + 4 * w.shape[-1]).astype(np.float16)
    memory[: w.size] = w.ravel()
    return memory


def run(style: str, form: str, k: int, p: int, depth: int, rng: np.random.Generator, end: str = "K") -> tuple[Any, Any]:
    """What the kernel computes of a dense array and of a sparse tensor with rows of `depth` elements."""
    entries = 3 if style == "batch" else 1
    pitch, _ = FORMS[form][1](k, p)
    w = louver.prune(rng.standard_normal((entries, ROWS, depth)).astype(np.float16), "2:4")
    s = louver.compress(w if style == "batch" else w[0], "2:4")
    b = rng.standard_normal((COLUMNS, k)).astype(np.float16)
    numbers = {"E": entries, "M": ROWS, "N": COLUMNS, "K": k, "p": p}
    outs = [np.full((entries, ROWS, COLUMNS), np.nan, np.float32) for _ in range(2)]
    grid = (-(-ROWS // 16), entries)
    kernel(text_of(style, form, marked=False, end=end))[grid](d=outs[0], a=laid_out(w, pitch, rng), b=b, **numbers)
    kernel(text_of(style, form, end=end)).emulate[grid](d=outs[1], a=s, b=b, **numbers)
    return outs[0], outs[1]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("form", FORMS)
def test_rows_are_where_they_are_in_the_dense_tensor_or_refused(
    style: str, form: str, rng: np.random.Generator
) -> None:
    seen = 0
    for k, p, depth in [
        (DEPTH, DEPTH, DEPTH),
        (104, 104, 104),
        (64, 64, 128),
        (128, 160, 128),
        (128, 160, 160),
        (256, 32, 128),
    ]:
        pitch, length = FORMS[form][1](k, p)
        right = pitch == depth and (length == depth or (length < depth and length % 4 == 0))
        try:
            dense, got = run(style, form, k, p, depth, rng)
        except ValueError as error:
            assert not right, error
            assert re.search(f"must be given the strides|reads rows of 'a'|{BROKEN}", str(error))
            continue
        # Addresses that are not those of rows may still be those of whole pieces.
        np.testing.assert_allclose(got, dense, atol=2e-2)
        seen += 1
    assert seen or form == "half of K"


def test_a_loop_over_part_of_k_runs_by_register_tiles(rng: np.random.Generator) -> None:
    dense, got = run("descriptor", "K", 192, 128, 192, rng, end="p")
    np.testing.assert_allclose(got, dense, atol=2e-2)


REFUSED = [
    (
        "%pitch = arith.addi %K, %rows : i32",
        DESCRIPTOR[0],
        "a stride of a sparse tensor must be an argument, a number, a product",
    ),
    (
        "%pitch = arith.subi %p, %rows : i32",
        DESCRIPTOR[0],
        "a stride of a sparse tensor must be an argument, a number, a product",
    ),
    (
        "%pitch = arith.muli %K, %two : i32\n  %some = arith.subi %K, %two : i32",
        DESCRIPTOR[0].replace("%length", "%some"),
        "the length of rows of a sparse tensor must be an argument, a number, a product",
    ),
    (
        "%pitch = arith.muli %K, %two : i32\n  %from = tt.addptr %a, %rows : !tt.ptr<f16>, i32",
        DESCRIPTOR[0].replace("%a", "%from"),
        "offsets count from an argument's first element, or from a matrix of a batch",
    ),
    (
        "%pitch = arith.muli %K, %two : i32\n  %by = arith.muli %entry, %K : i32\n"
        "  %far = arith.addi %by, %m : i32\n  %from = tt.addptr %a, %far : !tt.ptr<f16>, i32",
        DESCRIPTOR[0].replace("%a", "%from"),
        "a matrix of a batch is selected by one index times one stride",
    ),
]


@pytest.mark.parametrize(("setup", "view", "rule"), REFUSED)
def test_what_no_launch_could_check_is_not_described(setup: str, view: str, rule: str) -> None:
    text = TEXT.format(
        mark="{louver.sparse.NV24 = 1 : i32}",
        setup=setup,
        view=view.replace("%length", "%K"),
        load=DESCRIPTOR[1],
        end="K",
    )
    with pytest.raises(UnsupportedKernelError, match=rule):
        compile_tiles(parse_ir(text), computed=frozenset())
    assert compile_tiles(parse_ir(text)).addressed


def test_matrices_are_counted_from_the_last_one() -> None:
    """(E - 1 - entry) * M * pitch: not only the part that a program's number is in moves the pointer."""
    setup = (
        "%one = arith.constant 1 : i32\n  %pitch = arith.muli %K, %one : i32\n  %last = arith.subi %E, %one : i32\n"
        "  %count = arith.subi %last, %entry : i32\n  %apart = arith.muli %M, %pitch : i32\n"
        "  %far = arith.muli %count, %apart : i32\n  %from = tt.addptr %a, %far : !tt.ptr<f16>, i32"
    )
    text = TEXT.format(
        mark="{louver.sparse.NV24 = 1 : i32}",
        setup=setup,
        view=DESCRIPTOR[0].replace("%length", "%K").replace("%a", "%from"),
        load=DESCRIPTOR[1],
        end="K",
    )
    (view,) = compile_tiles(parse_ir(text)).checked.views
    assert str(view.strides[0]) == "K*M" and view.sizes == sizes(None, "M")


@pytest.mark.parametrize(("checked", "reached"), [("0, 1", ()), ("0", ("64*((K + 63)/64)",)), ("1", ())])
def test_blocks_that_are_not_checked_leave_their_columns_to_the_launch(checked: str, reached: tuple[str, ...]) -> None:
    text = text_of("blocks", "K").replace("boundaryCheck = array<i32: 0, 1>", f"boundaryCheck = array<i32: {checked}>")
    reaches = compile_tiles(parse_ir(text)).checked.reaches
    assert tuple(str(each.end) for each in reaches if each.of == "columns") == reached


def test_pointers_move_to_a_matrix_of_a_batch(rng: np.random.Generator) -> None:
    pytest.importorskip("triton", reason="Triton is not installed: pip install 'louver[triton]'")
    from support.triton.experts import by_pointers, unmasked

    w = louver.prune(rng.standard_normal((3, 32, 128)).astype(np.float16), "2:4")
    b = rng.standard_normal((128, 16)).astype(np.float16)
    for kernel_, wrong in ((by_pointers, 64), (unmasked, 256)):
        d = np.full((3, 32, 16), np.nan, np.float32)
        known = {"a": louver.compress(w, "2:4"), "b": b, "d": d, "M": 32, "K": 128}
        louver.jit(kernel_).emulate[(1, 1, 3)](**known, stride=128)
        np.testing.assert_allclose(d, w.astype(np.float64) @ b.astype(np.float64), atol=2e-2)
        at = (np.arange(3) * (32 * wrong if kernel_ is by_pointers else 4096))[:, None, None] + np.arange(32)[
            :, None
        ] * wrong
        if at.max() + 128 > w.size:
            with pytest.raises(ValueError, match=BROKEN):
                louver.jit(kernel_).emulate[(1, 1, 3)](**known, stride=wrong)
        else:
            louver.jit(kernel_).emulate[(1, 1, 3)](**known, stride=wrong)
            read = w.ravel()[at + np.arange(128)].astype(np.float64)
            np.testing.assert_allclose(d, read @ b.astype(np.float64), atol=2e-2)


@pytest.mark.parametrize(
    ("strides", "rule"),
    [
        ({"wb": 4 * 88 * 136 + 68}, "must be given the strides of the dense tensor for 'w', .*: those between matrices are multiples"),
        ({"wb": 6 * 80 * 136, "wh": 80 * 136}, BROKEN),
    ],
)  # fmt: skip
def test_a_batch_of_two_dimensions_has_no_gaps(strides: dict[str, int], rule: str) -> None:
    known, kernel_, grid = form_call("batches", "heads of a batch")
    with pytest.raises(ValueError, match=rule):
        kernel_.emulate[grid](**{**known, **strides})


def test_heads_may_share_a_matrix() -> None:
    """A stride of 0 is no batch without gaps: addresses are computed."""
    known, kernel_, grid = form_call("batches", "heads of a batch")
    kernel_.emulate[grid](**{**known, "wh": 0})
    shared = known["w"].dense()[:, :1].astype(np.float64)
    np.testing.assert_allclose(known["y"], known["x"] @ shared.swapaxes(2, 3), rtol=2e-2, atol=2e-2)


def test_steps_that_are_numbered_through_all_tiles_end_with_the_row() -> None:
    known, kernel_, grid = form_call("splits", "stream-K by numbers, whole steps")
    with pytest.raises(ValueError, match="reads 384 elements of each row of 'w', which has 320"):
        kernel_.emulate[grid](**{**known, "steps": known["steps"] + 1})


@pytest.mark.parametrize("name", ["experts of the second layer", "experts of a layer"])
def test_a_layer_by_its_number_needs_no_boxes(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Of arrays that bulk copies cannot read, also where the number is 1."""

    def refused(*_: object) -> None:
        refusals.append(1)
        raise ValueError("boxes reach too far")

    refusals: list[int] = []
    known, kernel_, grid = form_call("batches", name, n=128, k=128)
    kernel_.emulate[grid](**known)
    expected = known["y"].copy()
    known["y"][:] = math.nan
    monkeypatch.setattr(EmulatedMemory, "tensor_map", refused)
    kernel_.emulate[grid](**known)
    np.testing.assert_array_equal(known["y"], expected)
    assert refusals


def form_call(file: str, name: str, **other: int) -> tuple[dict[str, Any], JitKernel, tuple[int, ...]]:
    """The small call of a form, with its sparse arguments compressed. other: sizes in place of its own."""
    pytest.importorskip("triton", reason="Triton is not installed: pip install 'louver[triton]'")
    from louver.measure.forms import bind
    from support.triton.forms.find import forms

    form = forms(file)[name]
    call = form.call(1, replace(form.small, **other))
    return bind(call, sparse=True)[0], louver.jit(form.kernel), call.grid
