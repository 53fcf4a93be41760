from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from louver.formats.dtypes import ELEMENT_TYPES
from louver.library.dense import check_output, matrices, merged, same_place, stored
from louver.runtime.arrays import view

F16 = ELEMENT_TYPES["f16"]


def array(*shape: int) -> Any:
    return np.arange(np.prod(shape, dtype=int)).astype(np.float16).reshape(shape)


@pytest.mark.parametrize(
    ("x", "layout"),
    [
        (array(6, 5), "n_major"),
        (array(5, 6).T, "k_major"),
        (array(12, 5)[::2], "n_major"),
        (array(6, 10)[:, ::2], "copy"),
        (array(1, 10)[:, ::2], "k_major"),
        (array(6, 10)[:, :1], "n_major"),
        (array(6, 1), "k_major"),
        (array(1, 1), "k_major"),
    ],
)
def test_the_contiguous_dimension_is_found(x: Any, layout: str) -> None:
    dense = matrices(view(x), k_axis=-2)
    assert dense.layout == layout
    assert (dense.k, dense.n) == x.shape
    assert (dense.k_stride, dense.n_stride) == tuple(stride // 2 for stride in x.strides)
    turned = matrices(view(x.T), k_axis=-1)
    assert (turned.k, turned.n, turned.layout) == (dense.k, dense.n, layout)


@pytest.mark.parametrize(
    ("axes", "fewest"),
    [
        ((), ()),
        (((1, 5),), ()),
        (((2, 21), (3, 7)), ((6, 7),)),
        (((2, 21), (1, 99), (3, 7)), ((6, 7),)),
        (((4, 42), (2, 21), (3, 7)), ((24, 7),)),
        (((2, 7), (3, 14)), ((2, 7), (3, 14))),
        (((5, 0), (3, 7)), ((5, 0), (3, 7))),
        (((2, 0), (3, 0)), ((6, 0),)),
        (((4, 100), (2, 21), (3, 7)), ((4, 100), (6, 7))),
    ],
)
def test_axes_become_as_few_as_one_stride_walks(axes: Any, fewest: Any) -> None:
    assert merged(axes) == fewest


@pytest.mark.parametrize(
    ("x", "leading", "rows", "batch"),
    [
        (array(7), 0, (1, 7), (1, 0)),
        (array(3, 7), 0, (3, 7), (1, 0)),
        (array(4, 9)[:, 2:5], 0, (4, 9), (1, 0)),
        (array(4, 9)[:, 2:3], 0, (4, 9), (1, 0)),
        (array(2, 3, 7), 0, (6, 7), (1, 0)),
        (array(2, 3, 7), 1, (3, 7), (2, 21)),
        (array(2, 5, 9)[:, :3, :7], 1, (3, 9), (2, 45)),
        (array(3, 2, 7).transpose(1, 0, 2), 1, (3, 14), (2, 7)),
        (array(2, 3, 4, 7), 2, (4, 7), (6, 28)),
        (array(2, 3, 4, 7), 1, (12, 7), (2, 84)),
        (array(1, 3, 7), 1, (3, 7), (1, 0)),
        (array(2, 1, 7), 1, (1, 7), (2, 7)),
    ],
)
def test_outputs_are_matrices_of_a_batch(x: Any, leading: int, rows: Any, batch: Any) -> None:
    found = stored(view(x), leading, "out")
    assert found is not None
    assert ((found.rows, found.pitch), (found.batch, found.batch_pitch)) == (rows, batch)
    assert found.columns == x.shape[-1]


@pytest.mark.parametrize(
    ("x", "leading"),
    [(array(3, 2, 7).transpose(1, 0, 2), 0), (array(4, 6, 7)[:, ::4], 0), (array(5, 4, 3, 7)[:, :3, :2], 2)],
)
def test_outputs_that_no_stride_walks_are_no_matrices(x: Any, leading: int) -> None:
    assert stored(view(x), leading, "out") is None


def test_outputs_are_checked_against_every_source() -> None:
    whole = array(8, 6)
    out, before, after = view(whole[2:5]), view(whole[:2]), view(whole[5:])
    assert check_output(out, (3, 6), F16, (before, after)) is out
    with pytest.raises(ValueError, match=r"shape \[3, 5\], got \[3, 6\]"):
        check_output(out, (3, 5), F16, (before,))
    with pytest.raises(ValueError, match="element type f32, got f16"):
        check_output(out, (3, 6), ELEMENT_TYPES["f32"], (before,))
    with pytest.raises(ValueError, match="must not overlap an input"):
        check_output(out, (3, 6), F16, (before, view(whole[4:])))
    whole.flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        check_output(view(whole[2:5]), (3, 6), F16, (before,))


def test_rows_of_outputs_are_contiguous() -> None:
    with pytest.raises(ValueError, match=r"rows must be contiguous, got strides \[1, 9\]"):
        stored(view(array(4, 9).T), 0, "out")
    # What is only read may be one matrix for all entries.
    c = as_strided(array(100), (3, 4, 9), (0, 18, 2))
    found = stored(view(c), 1, "c")
    assert found is not None and (found.batch, found.batch_pitch) == (3, 0)


def strided(shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    return as_strided(array(400), shape, tuple(2 * stride for stride in strides))


@pytest.mark.parametrize(
    ("shape", "strides"), [((4, 9), (8, 1)), ((2, 4, 9), (18, 9, 1)), ((2, 4, 9), (8, 20, 1)), ((4, 6), (1, 3))]
)
def test_outputs_do_not_overlap_themselves(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    out = view(strided(shape, strides))
    with pytest.raises(
        ValueError, match=r"elements must not overlap each other, got .* of shape .* strides of .* elements"
    ):
        check_output(out, shape, F16, ())


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((2, 3), (3, 2)),
        ((3, 2, 4), (8, 12, 1)),
        ((2, 4, 9), (9, 20, 1)),
        ((3, 4), (-4, 1)),
        ((4, 9), (9, 1)),
        ((3, 4), (1, 3)),
    ],
)
def test_outputs_whose_axes_interleave_are_legal(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    out = view(strided(shape, strides) if min(strides) > 0 else array(*shape)[::-1])
    assert check_output(out, shape, F16, ()) is out


def test_an_output_of_one_row_may_be_c_itself_whatever_its_stride() -> None:
    base = np.zeros((4, 8), np.float16)
    out, c = view(base[:1]), view(base[:1].reshape(8)[None])
    assert same_place(out, c)
    assert not same_place(view(base[:2]), view(base[:4:2]))
    assert not same_place(view(base[:1]), view(base[1:2]))
