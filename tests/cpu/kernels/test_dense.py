from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from louver.formats.dtypes import ELEMENT_TYPES
from louver.kernels.dense import as_tokens, check_output, matrix, rows_of, same_place
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
    dense = matrix(view(x), k_axis=0)
    assert dense.layout == layout
    assert (dense.k, dense.n) == x.shape
    assert (dense.k_stride, dense.n_stride) == tuple(stride // 2 for stride in x.strides)
    turned = matrix(view(x.T), k_axis=1)
    assert (turned.k, turned.n, turned.layout) == (dense.k, dense.n, layout)


@pytest.mark.parametrize(
    "x",
    [
        array(7),
        array(3, 7),
        array(2, 3, 7),
        array(2, 1, 3, 7),
        array(1, 1, 7),
        array(2, 3, 14)[..., ::2],
        array(2, 6, 7)[:, ::2],
        array(1, 3, 2, 7).transpose(1, 0, 2, 3),
        array(5, 1, 7)[::2],
        as_strided(array(7), (2, 3, 7), (0, 0, 2)),
    ],
    ids=lambda x: f"{x.shape} by {x.strides}",
)
def test_leading_axes_become_one(x: Any) -> None:
    tokens = as_tokens(view(x), "x")
    whole = np.ascontiguousarray(x).reshape(-1, x.shape[-1])
    assert tokens.shape == whole.shape
    pitch, step = (stride * 2 for stride in tokens.strides)
    walked = as_strided(x, whole.shape, (pitch, step))
    np.testing.assert_array_equal(walked, whole)
    np.testing.assert_array_equal(tokens.host, whole)


@pytest.mark.parametrize("x", [array(3, 2, 7).transpose(1, 0, 2), array(4, 6, 7)[:, ::4], array(2, 3, 4, 7)[:, :, :2]])
def test_leading_axes_that_no_stride_walks(x: Any) -> None:
    with pytest.raises(
        ValueError, match="leading axes of tokens must be walkable by one stride, got shape .*contiguous"
    ):
        as_tokens(view(x), "tokens")


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
    assert rows_of(view(array(4, 9)[:, 2:5])).strides == (9, 1)
    assert rows_of(view(array(4, 9)[:, 2:3])).shape == (4, 1)
    with pytest.raises(ValueError, match=r"rows must be contiguous, got strides \[1, 9\]"):
        rows_of(view(array(4, 9).T))


def test_an_output_of_one_row_may_be_c_itself_whatever_its_stride() -> None:
    base = np.zeros((4, 8), np.float16)
    out, c = view(base[:1]), view(base[:1].reshape(8)[None])
    assert same_place(out, c)
    assert not same_place(view(base[:2]), view(base[:4:2]))
    assert not same_place(view(base[:1]), view(base[1:2]))
