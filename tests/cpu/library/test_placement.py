"""Places of views: every product's operand, output and `c` found at the addresses that its kernel is given."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import louver
from louver.formats.dtypes import element_type
from louver.formats.tensor import SparseTensor
from louver.library import copied
from louver.library.batch import Placement, placed
from louver.library.copied import RowCopy
from louver.library.fused import NOTHING, Given
from louver.library.request import Request, request
from louver.library.rows import Rows, output_rows
from louver.runtime.arrays import ArrayView, repeats

Array = np.ndarray[Any, Any]

K, M = 24, 40


def on_device(x: Array) -> ArrayView:
    """The array as if its memory were a device's."""
    strides = tuple(stride // x.itemsize for stride in x.strides)
    writable = not repeats(x.shape, strides)
    return ArrayView(element_type(x.dtype), x.shape, strides, x.ctypes.data, 0, x, "louver", 0, None, writable)


def weights(*leading: int) -> SparseTensor:
    return louver.compress(louver.prune(np.ones((*leading, M, K), np.float16), "2:4"), "2:4")


def numbered(*shape: int) -> Array:
    """Distinct numbers, in aligned memory."""
    size = int(np.prod(shape, dtype=int))
    memory = np.zeros(size + 32, np.uint16)
    start = -memory.ctypes.data % 16 // 2
    whole = memory[start : start + size]
    whole[:] = np.arange(size)
    return whole.view(np.float16).reshape(shape)


def at(address: int, shape: tuple[int, ...], pitches: tuple[int, ...]) -> Array:
    """The 16-bit words in memory there; pitches in bytes."""
    last = sum((size - 1) * pitch for size, pitch in zip(shape, pitches, strict=True)) + 2
    data = np.frombuffer((ctypes.c_char * last).from_address(address), np.uint16)
    return as_strided(data, shape, pitches).copy()


def read(rows: Rows) -> Array:
    """All entries' rows, [batch, rows, inner]."""
    return at(rows.address, (rows.batch, rows.rows, rows.inner), (rows.batch_pitch, rows.pitch, 2))


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Copies by NumPy, recorded."""
    made: list[dict[str, Any]] = []

    def copy(how: dict[str, Any]) -> None:
        made.append(how)
        (rows, columns), size = how["shape"], how["element_bytes"]
        pitches = (how["entry_stride"] * size, *(stride * size for stride in how["strides"]))
        values = at(how["source"], (how["entries"], rows, columns), pitches)
        last = (how["entries"] * rows - 1) * how["pitch"] + columns * size
        target = np.frombuffer((ctypes.c_char * last).from_address(how["destination"]), np.uint16)
        as_strided(target, values.shape, (rows * how["pitch"], how["pitch"], size))[...] = values

    monkeypatch.setattr(copied, "bound_copy", lambda **how: lambda: copy(how))
    return made


def asked(kind: Any, s: SparseTensor, x: Array, out: Array, c: Array | None = None) -> Request:
    given = NOTHING if c is None else Given(c=on_device(c))
    return request(kind, s, on_device(x), given, None, on_device(out), None)


def operand(found: Placement) -> tuple[bool, Rows, Array]:
    """Whether the operand's rows are along K, the rows, and their memory."""
    there = found.in_place
    if there is not None:
        return found.layout == "k_major", there, BIG
    copy = RowCopy.of(found.dense, found.copied_layout)
    memory = np.zeros(copy.nbytes + 128, np.uint8)
    address = memory.ctypes.data + -memory.ctypes.data % 128
    for launch in copy.bound(found.dense.array.address, address, 0, 0):
        launch()
    rows = found.regrouped(copy.rows.moved(address))
    assert not rows.row_clocks or rows.inner < 64
    return found.copied_layout == "k_major", rows, memory


def check(kind: Any, s: SparseTensor, x: Array, out: Array, c: Array | None = None) -> Placement:
    """Each product's row or column of the output has its own operand's, and `c` its own too."""
    wanted = asked(kind, s, x, out, c)
    found = placed(wanted, on_device(out))
    (k_major, rows, memory), result = operand(found), output_rows(found.out)
    assert rows.aligned and rows.inner == (K if k_major else found.n)
    shape = (found.batch, found.n, M) if kind == "linear" else (found.batch, M, found.n)
    assert (result.batch, result.rows, result.inner) == shape
    np.testing.assert_array_equal(read(result), np.ascontiguousarray(out).view(np.uint16).reshape(shape))
    if c is not None:
        assert found.c is not None
        pitches = (2 * found.c.batch_pitch, 2 * found.c.pitch, 2)
        np.testing.assert_array_equal(
            at(c.ctypes.data, shape, pitches), np.ascontiguousarray(c).view(np.uint16).reshape(shape)
        )
    whole = np.ascontiguousarray(x).view(np.uint16)
    got = read(rows)
    del memory
    dense = got if k_major else got.swapaxes(1, 2)
    columns = whole if kind == "linear" else whole.swapaxes(-1, -2)
    expected = columns.reshape(-1, found.n, K)
    if found.own:
        assert rows.batch == found.batch
    else:
        # All products read one operand.
        assert rows.batch == 1 and (expected == expected[0]).all()
        expected = expected[:1]
    np.testing.assert_array_equal(dense, expected)
    return found


def out_of(x: Array) -> Array:
    return numbered(*x.shape[:-1], M)


BIG = numbered(4, 6, 200, 48)

TOKENS: dict[str, tuple[Array, tuple[int, int], str | None, int]] = {
    # tokens, (n, batch), kind, copies
    "contiguous": (BIG[0, :, :100, :24].copy(), (600, 1), None, 0),
    "padded rows": (BIG[0, 0, :, :24], (200, 1), None, 0),
    "rows of each entry": (BIG[0, :, 3:150, :24], (147, 6), "dense", 0),
    "heads of tokens": (BIG.transpose(2, 1, 0, 3)[:, 0, :, :24].transpose(1, 0, 2), (200, 4), "dense", 0),
    "a few tokens of each entry": (BIG[0, :, 3:50, :24], (282, 1), None, 1),
    "three axes, inner ones joined": (BIG[:, 1:, :, :24], (1000, 4), "dense", 0),
    "three axes that nothing joins": (BIG[:, 1:, :150, :24], (3000, 1), None, 4),
    "every other token": (BIG[0, :, ::2, :24], (600, 1), None, 0),
    "every other element": (BIG[0, :, :, ::2], (1200, 1), None, 1),
    "transposed": (numbered(3, 24, 40).transpose(0, 2, 1), (120, 1), None, 1),
    "columns of tokens": (numbered(24, 40).T, (40, 1), None, 0),
    "columns of many tokens in each entry": (numbered(2, 24, 136).transpose(0, 2, 1), (136, 2), "dense", 0),
    "columns at an odd pitch": (numbered(24, 41).T, (41, 1), None, 1),
    "an odd start": (BIG[0, :, :150, 1:25], (900, 1), None, 1),
    "one token repeated": (np.broadcast_to(BIG[0, 0, :1, :24], (5, 24)), (5, 1), None, 1),
    "entries repeated": (np.broadcast_to(BIG[0, 0, :150, :24], (3, 150, 24)), (450, 1), None, 1),
    "one token": (BIG[0, 0, 0, :24], (1, 1), None, 0),
    "axes of one element": (BIG[:1, :, :1, :24], (6, 1), None, 0),
}


@pytest.mark.parametrize("name", TOKENS)
def test_tokens_of_linear(copies: list[Any], name: str) -> None:
    x, sizes, kind, made = TOKENS[name]
    found = check("linear", weights(), x, out_of(x))
    assert ((found.n, found.batch), found.kind, len(copies)) == (sizes, kind, made)


def test_outputs_of_linear_decide_how_tokens_are_divided(copies: list[Any]) -> None:
    # Entries of few tokens too: the output is not copied.
    out = numbered(3, 50, 96)[:, 2:40, :M]
    found = check("linear", weights(), numbered(3, 38, K), out)
    assert (found.n, found.batch, found.kind, len(copies)) == (38, 3, "dense", 0)
    turned = numbered(38, 3, K).transpose(1, 0, 2)
    assert check("linear", weights(), turned, out, numbered(38, 3, 48)[:, :, :M].transpose(1, 0, 2)).batch == 3
    assert not copies
    # x is copied where only the output can be walked.
    found = check("linear", weights(), BIG[:3, 1:3, ::11, :24], numbered(3, 2, 19, 48)[..., :M])
    assert (found.n, found.batch, len(copies)) == (114, 1, 3)


COLUMNS: dict[str, tuple[Array, tuple[int, int], str | None, int]] = {
    "contiguous": (numbered(3, K, 16), (16, 3), "dense", 0),
    "padded rows": (numbered(3, K, 24)[:, :, :13], (13, 3), "dense", 0),
    "transposed": (numbered(3, 13, K).swapaxes(1, 2), (13, 3), "dense", 0),
    "rows of many": (numbered(3, 50, 16)[:, 7 : 7 + K], (16, 3), "dense", 0),
    "entries between columns": (numbered(K, 3, 16).transpose(1, 0, 2), (16, 3), "dense", 0),
    "odd rows, one copy for all": (numbered(3, K, 13), (13, 3), "dense", 1),
    "every other column": (numbered(3, K, 32)[:, :, ::2], (16, 3), "dense", 1),
    "two axes in one": (numbered(2, 3, K, 16), (16, 6), "dense", 0),
    "two axes apart": (numbered(2, 5, K, 16)[:, :3], (16, 6), "dense", 1),
    "three axes apart": (numbered(2, 5, 4, K, 16)[:, :3, :3], (16, 18), "dense", 2),
    "repeated": (np.broadcast_to(numbered(K, 16), (3, K, 16)), (16, 3), "dense", 1),
    "one of a batch": (numbered(1, K, 16), (16, 1), None, 0),
    "one": (numbered(K, 16), (16, 1), None, 0),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_matmul(copies: list[Any], name: str) -> None:
    b, sizes, kind, made = COLUMNS[name]
    out = numbered(*b.shape[:-2], M, b.shape[-1])
    found = check("matmul", weights(), b, out)
    assert ((found.n, found.batch), found.kind, len(copies)) == (sizes, kind, made)


def test_batches_of_weights(copies: list[Any]) -> None:
    s, b = weights(3), numbered(3, K, 16)
    assert check("matmul", s, b, numbered(3, M, 16)).kind == "both"
    assert check("matmul", s, b[0], numbered(3, M, 16)).kind == "sparse"
    assert check("matmul", s, np.broadcast_to(b[0], b.shape), numbered(3, M, 16)).kind == "sparse"
    x = numbered(3, 16, K)
    assert check("linear", s, x, numbered(3, 16, M)).kind == "both"
    assert check("linear", s, x[0], numbered(3, 16, M)).kind == "sparse"
    assert not copies
    assert check("linear", s, numbered(3, 16, K + 1)[:, :, :K], numbered(3, 16, M)).kind == "both"
    assert check("matmul", weights(2, 3), numbered(2, 3, K, 8), numbered(2, 3, M, 8)).batch == 6
    assert check("matmul", weights(1), b[:1], numbered(1, M, 16)).kind is None
    assert len(copies) == 1


def test_random_views(copies: list[Any], rng: np.random.Generator) -> None:
    for _ in range(150):
        leading = [int(size) for size in rng.integers(1, 5, rng.integers(1, 4))]
        order = rng.permutation(len(leading))

        def viewed(inner: int, order: Any = order, leading: Any = leading) -> Array:
            """An array in another order of axes, each of them part of a larger one."""
            gaps = [int(rng.choice([0, 0, 1])) for _ in leading]
            sizes = [leading[axis] + gaps[axis] for axis in order]
            whole = numbered(*sizes, inner + int(rng.choice([0, 0, 8, 3])))
            part = whole[(*(slice(leading[axis]) for axis in order), slice(inner))]
            return part.transpose(*(int(axis) for axis in np.argsort(order)), len(leading))

        x, out = viewed(K), viewed(M) if rng.random() < 0.5 else numbered(*leading, M)
        try:
            check("linear", weights(), x, out)
        except ValueError as error:
            assert "tokens are one axis" in str(error)
        check("matmul", weights(), viewed(K * 16).reshape(*leading, K, 16)[..., :9], numbered(*leading, M, 9))


REFUSED: list[tuple[str, SparseTensor, Array, Array, Array | None, str]] = [
    ("linear", weights(), numbered(2, 3, 4, K), numbered(2, 5, 5, M)[:, :3, :4], None, "tokens are one axis, or a batch and"),
    ("linear", weights(), numbered(6, K), numbered(6, 2 * M)[:, ::2], None, "rows must be contiguous"),
    ("linear", weights(), numbered(2, 3, K), numbered(2, 3, M), numbered(2, 3, 2 * M)[..., ::2], "c's rows must be contiguous"),
    ("matmul", weights(), numbered(2, 3, K, 8), numbered(2, 5, M, 8)[:, :3], None, "a batch is one axis"),
    ("matmul", weights(), numbered(2, K, 8), numbered(2, 8, M).swapaxes(1, 2), None, "rows must be contiguous"),
    ("matmul", weights(), numbered(2, K, 8), as_strided(numbered(2, M, 8), (2, M, 8), (16 * M - 16, 16, 2)), None, "must not overlap each other"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "s", "x", "out", "c", "rule"), REFUSED)
def test_outputs_that_no_launch_writes(
    kind: str, s: SparseTensor, x: Array, out: Array, c: Array | None, rule: str
) -> None:
    with pytest.raises(ValueError, match=rule):
        placed(asked(kind, s, x, out, c), on_device(out))


def test_what_goes_with_tokens_wants_them_on_one_axis() -> None:
    x, out = numbered(200, 2, K).swapaxes(0, 1), numbered(2, 200, M)
    assert placed(asked("linear", weights(), x, out), on_device(out)).batch == 2
    given = Given(dense_bias=on_device(numbered(400)))
    flat = request("linear", weights(), on_device(x), given, None, on_device(out), None)
    assert placed(flat, on_device(out)).batch == 1
    turned = numbered(200, 2, M).swapaxes(0, 1)
    wanted = request("linear", weights(), on_device(x), given, None, on_device(turned), None)
    with pytest.raises(ValueError, match="tokens are one axis"):
        placed(wanted, on_device(turned))


def test_parts_of_one_array_may_be_operand_and_output() -> None:
    whole = numbered(3, 4, 2 * (K + M))
    for x, out in (
        (whole[..., :K], whole[..., K : K + M]),
        (whole[:, :2, :K], whole[:, 2:, :M]),
        (whole[:, ::2, :K], whole[:, 1::2, :M]),
        (whole[:1, :, :K], whole[1:2, :, :M]),
    ):
        asked("linear", weights(), x, out)
    for x, out in (
        (whole[..., :K], whole[..., K - 1 : K - 1 + M]),
        (whole[:, :3, :K], whole[:, 1:, :M]),
        (whole[:2, :, :K], whole[1:, :, :M]),
    ):
        with pytest.raises(ValueError, match="out must not overlap an input"):
            asked("linear", weights(), x, out)
