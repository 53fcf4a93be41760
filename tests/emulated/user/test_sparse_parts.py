"""Parts of sparse tensors, and weights [K, N] by strides: right, or refused at the call."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton
import triton.language as tl

from support.triton import parts

ROWS, COLUMNS, DEPTH = 136, 24, 256
PARTS = {
    "first rows": (77, DEPTH, 0, 0),
    "part of K": (ROWS, 136, 0, 0),
    "rows from 64": (70, DEPTH, 64, 0),
    "columns from 64": (ROWS, 128, 0, 64),
    "rows and columns": (72, 128, 64, 128),
    "rows within a block": (64, 128, 8, 64),
    "columns within a word": (64, 128, 0, 36),
}


def part(rng: np.random.Generator, rows: int, depth: int, row: int, column: int, tile: int) -> tuple[Any, Any]:
    """What a kernel computes of part of a tensor, and what it is in float64."""
    w = louver.prune(rng.standard_normal((ROWS, DEPTH)).astype(np.float16), "2:4")
    x, y = rng.standard_normal((depth, COLUMNS)).astype(np.float16), np.full((rows, COLUMNS), np.nan, np.float32)
    grid = (-(-rows // tile), 1)
    louver.jit(parts.part).emulate[grid](
        y, louver.compress(w, "2:4"), x, rows, COLUMNS, depth, DEPTH, row, column, bool(row or column), BM=tile, BN=32, BK=64
    )  # fmt: skip
    return y, w[row : row + rows, column : column + depth].astype(np.float64) @ x.astype(np.float64)


@pytest.mark.parametrize("tile", [32, 64])
@pytest.mark.parametrize("name", PARTS)
def test_parts_of_a_tensor(name: str, tile: int, rng: np.random.Generator) -> None:
    got, expected = part(rng, *PARTS[name], tile)
    np.testing.assert_allclose(got, expected, atol=1e-2)


@pytest.mark.parametrize(
    ("place", "rule"),
    [
        ((ROWS + 8, DEPTH, 0, 0), r"sizes of the dense tensor for 'w', \[136, 256\], got \[144, 256\]"),
        ((ROWS, DEPTH, 64, 0), "reads 200 rows of 'w', which has 136"),
        ((64, DEPTH, 0, 64), "reads rows of 'w', 256 elements, or whole groups of 4 from their start, got 320"),
    ],
)
def test_parts_that_are_none(place: tuple[int, int, int, int], rule: str, rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match=rule):
        part(rng, *place, 64)


@pytest.mark.parametrize("share", [128, 64])
def test_a_share_of_a_row_is_no_matrix(share: int, rng: np.random.Generator) -> None:
    """A program starts at a multiple of some tiles, less than a row, in a tensor that has matrices or is one."""
    w = louver.prune(rng.standard_normal((2, 32, DEPTH)).astype(np.float16), "2:4")
    x, shares = rng.standard_normal((DEPTH, COLUMNS)).astype(np.float16), DEPTH // share
    expected = np.einsum("mrsk,skn->smrn", w.reshape(2, 32, shares, share), x.reshape(shares, share, -1), dtype=float)
    for given in (w, w.reshape(64, DEPTH)):
        y = np.full(expected.shape, np.nan, np.float32)
        louver.jit(parts.share).emulate[(2, shares)](
            y, louver.compress(given, "2:4"), x, COLUMNS, ROWS=32, K=DEPTH, SHARE=share, BN=32, BK=32
        )
        np.testing.assert_allclose(y, expected, atol=1e-2)
        with pytest.raises(ValueError, match="reads 384 elements of each row of 'w', which has 256"):
            louver.jit(parts.share).emulate[(2, shares + 128 // share)](
                y, louver.compress(given, "2:4"), x, COLUMNS, ROWS=32, K=DEPTH, SHARE=share, BN=32, BK=32
            )


def test_strides_are_those_of_the_dense_array(rng: np.random.Generator) -> None:
    from support.triton.forms.sparse_tiles import linear

    w = louver.prune(rng.standard_normal((72, 128)).astype(np.float16), "2:4")
    x, y = rng.standard_normal((40, 128)).astype(np.float16), np.empty((40, 72), np.float16)
    known = {"y": y, "x": x, "M": 40, "N": 72, "K": 128, "MASK_K": True, "BM": 32, "BN": 64, "BK": 64}
    s, kernel = louver.compress(w, "2:4"), louver.jit(linear)
    for given, stride_wk, stride_wn in ((s.T, 72, 1), (s, 1, 128)):
        y[:] = np.nan
        kernel.emulate[2, 2](**known, w=given, stride_wk=stride_wk, stride_wn=stride_wn)
        np.testing.assert_allclose(y, x.astype(np.float64) @ w.T.astype(np.float64), atol=5e-2)
    with pytest.raises(ValueError, match=r"sparse along axis 0: \[72, 1\], got 80 and 1: .* pass the transpose"):
        kernel.emulate[2, 2](**known, w=s.T, stride_wk=80, stride_wn=1)


def test_explain_says_where_sparsity_is_not_used(rng: np.random.Generator) -> None:
    from support.triton.forms.sparse_tiles import backward

    s = louver.compress(louver.prune(rng.standard_normal((64, 64)).astype(np.float16), "2:4"), "2:4")
    dy, dx = np.ones((32, 64), np.float16), np.empty((32, 64), np.float16)
    said = louver.jit(backward).explain(dx=dx, dy=dy, w=s, M=32, N=64, K=64, BM=32, BN=32, BK=64)
    assert "a sparse tile is multiplied as a dense one: the dot sums along the axis that is not sparse" in str(said)
    assert said.warning is not None and "mma.sp" not in said.ptx


@pytest.mark.parametrize(
    ("how", "element"),
    [("columns", "f16"), ("columns", "s8"), ("masked along K", "f16"), ("decaying", "f16"), ("leaky", "f16")],
)
def test_what_leaves_zeros_zero_leaves_a_tile_sparse(how: str, element: str) -> None:
    from louver.measure.forms import bind
    from support.triton.forms.find import forms

    name = f"sparse {'s8 by' if element == 's8' else 'tile'} {how}"
    form = forms("sparse_tiles")[name]
    known, _ = bind(form.call(1, form.small), sparse=True)
    said = louver.jit(form.kernel).explain(**known)
    assert "multiplied as a dense one" not in str(said.warning) and "wgmma.mma_async.sp" in said.ptx


@pytest.mark.parametrize(
    ("file", "name", "warns"), [("chains", "attention of a projection", True), ("layers", "layer by pointers", False)]
)
def test_explain_says_where_dense_products_take_most_of_the_time(file: str, name: str, warns: bool) -> None:
    from louver.measure.forms import bind
    from support.triton.forms.find import forms

    form = forms(file)[name]
    known, _ = bind(form.call(1, form.small), sparse=True)
    said = louver.jit(form.kernel, family="register tiles").explain(**known)
    if warns:
        assert re.search(
            r"products of dense operands at .*chains.py:\d+:\d+.* take \d+% of the tensor cores' time",
            str(said.warning),
        )
    else:
        assert "products of dense operands" not in str(said.warning)


@triton.jit
def product_and_sum(
    y, sums, w, x, N: tl.constexpr, K: tl.constexpr, WHERE: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr
):
    """y [BM, N] = w [BM, K] times x [K, N], and the sums of rows of w: of each tile in the loop, of elements plus 1, or of one tile elsewhere."""
    m, n, k = tl.arange(0, BM), tl.arange(0, N), tl.arange(0, BK)
    total, beside = tl.zeros((BM, N), dtype=tl.float32), tl.zeros((BM,), dtype=tl.float32)
    if WHERE == "before":
        beside += tl.sum(tl.load(w + m[:, None] * K + k[None, :]).to(tl.float32), 1)
    for first in range(0, K, BK):
        tile = tl.load(w + m[:, None] * K + (first + k)[None, :])
        total = tl.dot(tile, tl.load(x + (first + k)[:, None] * N + n[None, :]), total)
        if WHERE == "beside":
            beside += tl.sum(tile.to(tl.float32), 1)
        if WHERE == "beside, with zeros":
            beside += tl.sum(tile.to(tl.float32) + 1.0, 1)
    if WHERE == "in a loop of its own":
        for first in range(0, K, BK):
            beside += tl.sum(tl.load(w + m[:, None] * K + (first + k)[None, :]).to(tl.float32), 1)
    tl.store(sums + m, beside)
    tl.store(y + m[:, None] * N + n[None, :], total)


@pytest.mark.parametrize("where", ["beside", "beside, with zeros", "before", "in a loop of its own", "nowhere"])
def test_explain_says_where_a_step_computes_with_a_whole_sparse_tile(rng: np.random.Generator, where: str) -> None:
    w = louver.prune(rng.standard_normal((64, 192)).astype(np.float16), "2:4")
    x = rng.standard_normal((192, 32)).astype(np.float16)
    y, sums = np.full((64, 32), np.nan, np.float32), np.full(64, np.nan, np.float32)
    known = {"y": y, "sums": sums, "w": louver.compress(w, "2:4"), "x": x, "N": 32, "K": 192, "WHERE": where}
    kernel = louver.jit(product_and_sum, family="register tiles")
    kernel.emulate[1, 1](**known, BM=64, BK=64)
    np.testing.assert_allclose(y, w.astype(np.float64) @ x.astype(np.float64), atol=1e-2)
    summed = {"before": w[:, :64], "nowhere": w[:, :0], "beside, with zeros": w + w.dtype.type(1)}.get(where, w)
    np.testing.assert_allclose(sums, summed.astype(np.float64).sum(1), atol=1e-2)
    said = kernel.explain(**known, BM=64, BK=64)
    assert "wgmma.mma_async.sp" in said.ptx
    if where == "beside, with zeros":
        assert re.search(
            r"test_sparse_parts.py:\d+:\d+: beside the dot threads compute with a whole sparse tile, zeros too: ",
            str(said.warning),
        )
    else:
        assert "zeros too" not in str(said.warning)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("sparse_tiles", "sparse tile summed"),
        ("models", "a weight's tile, summed"),
        ("sparse_tiles", "sparse tile added"),
        ("sparse_tiles", "sparse tile rows"),
        ("sparse_tiles", "sparse tile masked"),
    ],
)
def test_only_a_sparse_tile_whose_zeros_are_used_beside_its_dot_is_a_reason(file: str, name: str) -> None:
    """A tile that is multiplied as a dense one has a reason of its own."""
    from louver.measure.forms import bind
    from support.triton.forms.find import forms

    form = forms(file)[name]
    known, _ = bind(form.call(1, form.small), sparse=True)
    said = louver.jit(form.kernel).explain(**known)
    assert "with a whole sparse tile" not in str(said.warning)


@triton.jit
def rows_by_rows(y, w, K: tl.constexpr, LOOP: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr):
    """y [BM, BM] = w [BM, K] times its transpose, or the first BM columns of w plus their square without a loop."""
    m, k = tl.arange(0, BM), tl.arange(0, BK)
    total = tl.zeros((BM, BM), dtype=tl.float32)
    if LOOP:
        for first in range(0, K, BK):
            tile = tl.load(w + m[:, None] * K + (first + k)[None, :])
            total = tl.dot(tile, tl.trans(tile), total)
    else:
        tile = tl.load(w + m[:, None] * K + k[None, :])
        total = tl.dot(tile, tile, total) + tile.to(tl.float32)
    tl.store(y + m[:, None] * BM + m[None, :], total)


@pytest.mark.parametrize("loop", [True, False])
def test_a_sparse_tile_expanded_as_the_other_operand_or_outside_of_loops_is_a_reason(
    rng: np.random.Generator, loop: bool
) -> None:
    w = louver.prune(rng.standard_normal((64, 128)).astype(np.float16), "2:4")
    y = np.full((64, 64), np.nan, np.float32)
    kernel = louver.jit(rows_by_rows)
    known = {"y": y, "w": louver.compress(w, "2:4"), "K": 128, "LOOP": loop, "BM": 64, "BK": 64}
    kernel.emulate[1, 1](**known)
    wide = w.astype(np.float64)
    expected = wide @ wide.T if loop else wide[:, :64] @ wide[:, :64] + wide[:, :64]
    np.testing.assert_allclose(y, expected, atol=1e-2)
    assert "with a whole sparse tile, zeros too" in str(kernel.explain(**known).warning)


@pytest.mark.parametrize(("name", "waits"), [("stream-K with locks", True), ("split K, scaled", False)])
def test_programs_that_wait_for_others_are_a_reason(name: str, waits: bool) -> None:
    from louver.measure.forms import bind
    from support.triton.forms.find import forms

    form = forms("splits")[name]
    known, _ = bind(form.call(1, form.small), sparse=True)
    said = louver.jit(form.kernel, family="register tiles").explain(**known)
    assert (
        bool(re.search(r"programs wait for each other at \S*splits.py:\d+:\d+: sparsity", str(said.warning))) == waits
    )


def test_parts_of_a_row_are_read_in_whole_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel whose stride of columns is given would read one group at a time: the launch computes addresses with a stride of 1."""
    from louver.measure.forms import Sizes, bind
    from louver.user import jit_kernel as user_kernel
    from support.triton.public.parts import FORMS

    made: list[tuple[str, ...]] = []
    asked: list[str] = []
    real = user_kernel.compile_wanted

    def compile_wanted(wanted: Any) -> Any:
        asked.append(wanted.key)
        found = real(wanted)
        made.append(getattr(found.made, "addressed", ()))
        return found

    monkeypatch.setattr(user_kernel, "compile_wanted", compile_wanted)
    form = next(form for form in FORMS if form.name == "parts of a matrix [N, parts · K], in turn")
    call = form.call(1, Sizes(24, 64, 80, 16, 32, 32))
    known, outs = bind(call, sparse=True)
    louver.jit(form.kernel).emulate[call.grid](**known)
    for name, expected in call.expected().items():
        np.testing.assert_allclose(outs[name], expected, rtol=2e-2, atol=2e-2)
    assert made[-1] == ("w is read at computed addresses, in pieces of 16 bytes of values",)
    assert len(asked) == len(set(asked)), "a kernel that the call does not fit is not read again"


@pytest.mark.parametrize("depth", [128, 144])
@pytest.mark.parametrize(
    ("stored", "computed"),
    [("[parts · K, N]", True), ("[K, parts · N]", True), ("[N, parts · K]", True), ("[parts · N, K]", False)],
)
@pytest.mark.parametrize("turns", ["", ", in turn"])
def test_parts_of_a_matrix_are_boxes_if_masks_exclude_nothing(
    stored: str, computed: bool, turns: str, depth: int
) -> None:
    """Parts below or beside each other have boxes for any K where they do not move along K: a mask ends with the matrix."""
    from louver.measure.forms import Sizes, bind
    from support.triton.public.parts import FORMS

    form = next(form for form in FORMS if form.name == f"parts of a matrix {stored}{turns}")
    call = form.call(1, Sizes(40, 96, depth, 32, 32, 64))
    known, outs = bind(call, sparse=True)
    kernel = louver.jit(form.kernel)
    report = kernel.emulate[call.grid](**known)
    for name, expected in call.expected().items():
        np.testing.assert_allclose(outs[name], expected, rtol=2e-2, atol=2e-2)
    apart = computed and depth % 64 > 0 and stored != "[K, parts · N]"
    assert ("at computed addresses" in str(kernel.explain[call.grid](**known))) == apart
    assert report.bulk_loads or apart


def test_parts_of_some_of_the_rows_are_computed(rng: np.random.Generator) -> None:
    """A mask that excludes rows of the matrix is none of its end."""
    from support.triton.public.parts import parts_in_turn

    parts, m, n, k, rows = 2, 40, 96, 144, 192
    w = louver.prune(rng.integers(-3, 4, (rows, parts * n)).astype(np.float16), "2:4", axis=-2)
    x = rng.integers(-3, 4, (m, k)).astype(np.float16)
    y = np.full((parts, m, n), np.nan, np.float32)
    given = x, louver.compress(w, "2:4", axis=-2), y, m, n, k, n, parts * n, 1, parts, 32, 32, 64
    kernel, grid = louver.jit(parts_in_turn), (2, 3)
    assert "computed" in str(kernel.explain[grid](*given))
    kernel.emulate[grid](*given)
    wide = w[:k].astype(np.float64).reshape(k, parts, n).transpose(1, 0, 2)
    np.testing.assert_array_equal(y, x.astype(np.float64) @ wide)


@pytest.mark.parametrize("n", [96, 80])
@pytest.mark.parametrize(
    ("stored", "any_rows"), [("[parts · K, N]", True), ("[N, parts · K]", True), ("[K, parts · N]", False)]
)
def test_a_mask_of_rows_may_exclude_some_where_parts_lie_along_k(stored: str, any_rows: bool, n: int) -> None:
    from dataclasses import replace

    from louver.measure.forms import Sizes, bind
    from support.triton.public.parts import FORMS

    form = next(form for form in FORMS if form.name == f"parts of a matrix {stored}")
    call = replace(form, constants={"MASK_N": True}).call(1, Sizes(40, n, 128, 32, 32, 64))
    known, outs = bind(call, sparse=True)
    kernel = louver.jit(form.kernel)
    kernel.emulate[call.grid](**known)
    np.testing.assert_allclose(outs["y"], call.expected()["y"], rtol=2e-2, atol=2e-2)
    computed = n % 32 > 0 and not any_rows
    assert ("at computed addresses" in str(kernel.explain[call.grid](**known))) == computed


@triton.jit
def some_parts(y, w, x, K, PARTS, apart, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Parts beside each other, [BM, parts · K], times x [K, BN]. Those from PARTS on are masked, though the matrix has them."""
    m, n, part = tl.arange(0, BM), tl.arange(0, BN), tl.program_id(0)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        inside = (k < K)[None, :] & (part < PARTS)
        tile = tl.load(w + part * K + m[:, None] * apart + k[None, :], mask=inside, other=0.0)
        total = tl.dot(tile, tl.load(x + k[:, None] * BN + n[None, :], mask=(k < K)[:, None], other=0.0), total)
    tl.store(y + (part * BM + m[:, None]) * BN + n[None, :], total)


def test_a_mask_of_the_number_of_a_part_gives_zeros(rng: np.random.Generator) -> None:
    w = louver.prune(rng.standard_normal((64, 3 * 128)).astype(np.float16), "2:4")
    x, y = rng.standard_normal((128, 16)).astype(np.float16), np.full((3, 64, 16), np.nan, np.float32)
    louver.jit(some_parts).emulate[(3,)](y, louver.compress(w, "2:4"), x, 128, 2, 384, BM=64, BN=16, BK=64)
    parts = w.reshape(64, 3, 128).swapaxes(0, 1).astype(np.float64)
    parts[2] = 0
    np.testing.assert_allclose(y, parts @ x.astype(np.float64), atol=2e-2)


@triton.jit
def windows(y, w, x, K, apart, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Rows of w from `window · apart / K` on, times x [K, BN]: windows of BM rows may overlap."""
    m, n, window = tl.arange(0, BM), tl.arange(0, BN), tl.program_id(0)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        tile = tl.load(w + window * apart + m[:, None] * K + k[None, :], mask=(k < K)[None, :], other=0.0)
        total = tl.dot(tile, tl.load(x + k[:, None] * BN + n[None, :], mask=(k < K)[:, None], other=0.0), total)
    tl.store(y + (window * BM + m[:, None]) * BN + n[None, :], total)


@pytest.mark.parametrize("depth", [128, 80])
@pytest.mark.parametrize("rows", [64, 32, 16])
def test_windows_of_rows_may_overlap(rng: np.random.Generator, rows: int, depth: int) -> None:
    """A window that is as far from the next one as it is high is a matrix of a batch. Others go on in the next one."""
    w = louver.prune(rng.standard_normal((128, depth)).astype(np.float16), "2:4")
    x, y = rng.standard_normal((depth, 16)).astype(np.float16), np.full((2, 64, 16), np.nan, np.float32)
    louver.jit(windows).emulate[(2,)](y, louver.compress(w, "2:4"), x, depth, rows * depth, BM=64, BN=16, BK=64)
    expected = [w[first : first + 64].astype(np.float64) @ x.astype(np.float64) for first in (0, rows)]
    np.testing.assert_allclose(y, expected, atol=2e-2)


def test_explain_with_a_grid_says_what_a_launch_runs() -> None:
    from louver.measure.forms import Sizes, bind
    from support.triton.public.parts import FORMS

    form = next(form for form in FORMS if form.name == "parts of a matrix [parts · N, K]")
    call = form.call(1, Sizes(40, 128, 128, 64, 64, 64))
    known, _ = bind(call, sparse=True)
    kernel = louver.jit(form.kernel)
    said = kernel.explain[call.grid](**known)
    assert (said.family, kernel.explain(**known).family) == ("register tiles", "product")
    assert (
        said.refusal == "the call multiplies parts of its arrays, and the kernel describes a product of whole matrices"
    )
    with pytest.raises(ValueError, match="a grid has 1 to 3 axes"):
        kernel.explain[()](**known)
    with pytest.raises(ValueError, match=r"sizes of the dense tensor for 'w', \[384, 128\], got \[3, 128, 132\]"):
        kernel.explain[call.grid](**known | {"K": 132})
