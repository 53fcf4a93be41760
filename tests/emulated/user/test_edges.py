"""Calls at the edges of what is read of sparse tensors: right in every element, or refused by a rule; never anything else.

The reference is the same kernel interpreted on dense arrays, which refuses what lies outside of them.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import louver
from louver.emulator.errors import EmulationError
from louver.formats.dtypes import element_type
from support.triton import require_block_pointers

RIGHT = ""
"""In the place of a refusal's rule: the call is right."""

SMALL = {"BM": 32, "BN": 32, "BK": 64}
LARGE = {"BM": 128, "BN": 64, "BK": 64}

M, N, K = 48, 24, 128

WHOLE_GROUPS = "reads rows of 'a', 128 elements, or whole groups of 4 from their start, got 98"
STEPS = "multiples of 64, got"
ROWS_IN_SIXTEENS = "multiples of 16, got"
BROKEN = "read a sparse tensor at a computed address against this rule"
RACE = "nothing orders that write first"
STRIDES = "must be given the strides of the dense tensor, contiguous, for 'a'"


@pytest.fixture(scope="module")
def edges() -> Any:
    pytest.importorskip("triton", reason="Triton is not installed: pip install 'louver[triton]'")
    from support.triton import edges

    return edges


def pruned(rng: np.random.Generator, *shape: int, element: str = "f16", pattern: str = "2:4") -> np.ndarray[Any, Any]:
    if element == "s8":
        return louver.prune(rng.integers(-20, 20, shape).astype(np.int8), pattern)
    return louver.prune(rng.standard_normal(shape, np.float32).astype(element_type(element).numpy), pattern)


def check(kernel: Any, grid: tuple[int, ...], rule: str, pattern: str = "2:4", **known: Any) -> None:
    """a is compressed. Outputs are arrays of NaN; those of zeros are added to. Small tiles go by register tiles."""
    arrays = {name: value for name, value in known.items() if isinstance(value, np.ndarray)}
    dense, sparse = ({**known, **{name: value.copy() for name, value in arrays.items()}} for _ in range(2))
    sparse["a"] = louver.compress(known["a"], pattern)
    family = {"family": "register tiles"} if known.get("BM") == SMALL["BM"] else {}
    emulate = louver.jit(kernel, **family).emulate[grid]
    if rule:
        with pytest.raises((ValueError, EmulationError), match=re.compile(rule, re.DOTALL)):
            emulate(**sparse)
        if rule not in (BROKEN, RACE):
            changed = [name for name, before in arrays.items() if name != "a" and not same(before, sparse[name])]
            assert not changed
        return
    louver.jit(kernel)[grid](**dense)
    emulate(**sparse)
    outs = [name for name, before in arrays.items() if not same(before, dense[name])]
    assert outs
    for name in outs:
        expected, given = (each[name].astype(np.float64) for each in (dense, sparse))
        scale = np.abs(expected[np.isfinite(expected)]).max()
        np.testing.assert_allclose(given, expected, rtol=2.0**-7, atol=2.0**-8 * scale)


def same(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    return one.tobytes() == other.tobytes()


def matrices(rng: np.random.Generator, m: int = M, k: int = K, rows: int | None = None) -> dict[str, Any]:
    """a of as many rows, of which the kernel reads m, b and c."""
    b = rng.standard_normal((k, N), np.float32).astype(np.float16)
    c = np.full((m, N), np.nan, np.float32)
    return {"a": pruned(rng, rows or m, k), "b": b, "c": c, "M": m, "N": N, "K": k}


PARTS = [
    ({}, RIGHT),
    ({"STOP": 100, "LEFT": 100, "RIGHT": 100}, RIGHT),
    ({"STOP": 98, "LEFT": 98, "RIGHT": 98}, WHOLE_GROUPS),
    ({"STOP": 98, "LEFT": 98}, WHOLE_GROUPS),
    ({"STOP": 98, "RIGHT": 98}, RIGHT),
    ({"START": 64}, RIGHT),
    ({"START": 32}, RIGHT),
    ({"STEP": 128}, RIGHT),
    ({"STEP": 32}, RIGHT),
    ({"SHIFT": 64, "STOP": 64}, RIGHT),
    ({"SHIFT": 32, "STOP": 64}, RIGHT),
    ({"SHIFT": 2, "STOP": 64}, "SHIFT in " + STEPS + " 2"),
    ({"OTHER": 1.0}, "a masked load must give zeros where its mask is false"),
    ({"MASKED": False}, RIGHT),
]


@pytest.mark.parametrize(("change", "rule"), PARTS, ids=str)
def test_parts_of_rows(change: dict[str, Any], rule: str, rng: np.random.Generator, edges: Any) -> None:
    known = matrices(rng, k=change.get("K", K))
    known |= {"START": 0, "STOP": K, "LEFT": K, "RIGHT": known["K"], "SHIFT": 0, "STEP": 64, "MASKED": True}
    check(edges.part_of_k, (2, 1), rule, **known | {"OTHER": 0.0} | SMALL | change)


@pytest.mark.parametrize(
    ("rows", "stride_m", "stride_k", "rule"),
    [
        (M, K, 1, RIGHT),
        (M, 0, 1, RIGHT),
        (2 * M, 2 * K, 1, RIGHT),
        (2 * M, K, 2, BROKEN),
    ],
)
def test_strides(rows: int, stride_m: int, stride_k: int, rule: str, rng: np.random.Generator, edges: Any) -> None:
    known = matrices(rng, rows=rows)
    check(edges.pitched, (2,), rule, **known, stride_m=stride_m, stride_k=stride_k, **SMALL)


SUMS = {
    "last tile first": RIGHT,
    "rows from memory": RIGHT,
    "a row from memory": RIGHT,
    "a tile from memory": RIGHT,
    "the last row again": RIGHT,
    "a length from memory": RIGHT,
    "columns from memory": RIGHT,
    "steps from memory": RIGHT,
    "from one": RIGHT,
    "scaled": RIGHT,
    "summed": RIGHT,
    "there and back": RIGHT,
    "times itself": RIGHT,
    "turned": RIGHT,
    "decaying": RIGHT,
    "taken away": RIGHT,
    "the last one": RIGHT,
    "some steps": RIGHT,
    "below the diagonal": RIGHT,
    "upside down": RIGHT,
}


@pytest.mark.parametrize("tile", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("form", SUMS)
def test_sums_and_offsets(form: str, tile: dict[str, int], rng: np.random.Generator, edges: Any) -> None:
    m = tile["BM"] + 16
    # Tiles, and steps of K, from the second to the first.
    where = np.array([1, 0], np.int32) if form in ("a tile from memory", "steps from memory") else np.arange(256)
    if form == "times itself":
        tile = tile | {"BN": tile["BM"]}
    known = matrices(rng, m) | {"where": where.astype(np.int32), "FORM": form}
    check(edges.sums, (2,), SUMS[form], **known, **tile)


BATCHES = [
    ("plain", {}, RIGHT),
    ("plain", {"E": 1, "stride_a": 0}, RIGHT),
    ("plain", {"E": 1, "stride_a": 7}, RIGHT),
    ("plain", {"stride_a": 0}, STRIDES + ": (matrices|entries) are [0-9]+ elements apart, got a stride of 0"),
    ("from the last", {}, RIGHT),
    ("from memory", {}, RIGHT),
    ("in groups", {"L": 2}, RIGHT),
    ("in turns", {"L": 2}, RIGHT),
    ("every other", {"matrices": 6}, RIGHT),
    ("from L on", {"L": 1, "matrices": 4}, RIGHT),
    ("but the first", {"matrices": 4}, RIGHT),
    ("up to L", {"L": 1}, RIGHT),
    ("counted by rows", {}, RIGHT),
    ("wrapped in all rows", {}, RIGHT),
    ("unmasked columns", {}, RIGHT),
    ("unmasked columns", {"K": 100}, "reads 128 elements of each row of 'a', which has 100"),
]


@pytest.mark.parametrize("tile", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize(("form", "change", "rule"), BATCHES, ids=str)
def test_matrices_of_a_batch(
    form: str, change: dict[str, int], rule: str, tile: dict[str, int], rng: np.random.Generator, edges: Any
) -> None:
    number, k, m = change.get("E", 3), change.get("K", K), tile["BM"] + 8
    if tile is LARGE and "which has 100" in rule:
        pytest.skip("a product reads no further than its rows")
    if tile is SMALL and rule.startswith(STRIDES):
        # Register tiles follow any address.
        rule = RIGHT
    a = pruned(rng, change.get("matrices", number), m, k)
    b = rng.standard_normal((number, k, N), np.float32).astype(np.float16)
    known = {"a": a, "b": b, "c": np.full((number, m, N), np.nan, np.float32), "where": np.array([2, 0, 1], np.int32)}
    known |= {"E": number, "M": m, "N": N, "K": k, "L": change.get("L", 2), "stride_a": change.get("stride_a", m * k)}
    check(edges.entries, (2, 1, number), rule, **known, FORM=form, **tile)


WRAPPED = {
    "sums of rows": RIGHT,
    "sums of columns": RIGHT,
    "a second dot": RIGHT,
    "a dot along the rows": RACE,
    "sums in memory": RIGHT,
    "sums in memory, more rows": RIGHT,
    "sums in memory, wrapped": RIGHT,
    "transposed": RIGHT,
    "transposed, unmasked": RIGHT,
    "a descriptor": RIGHT,
    "a descriptor of more rows": RIGHT,
    "a descriptor further up": RIGHT,
    "at most": RIGHT,
    "more rows": RIGHT,
    "either": RACE,
    "a branch": RIGHT,
}


@pytest.mark.parametrize("form", WRAPPED)
def test_rows_that_wrap_and_who_sees_them(form: str, rng: np.random.Generator, edges: Any) -> None:
    w = rng.standard_normal((32, 32), np.float32).astype(np.float16)
    out = np.full(64 * 64, 0.0 if "memory" in form else np.nan, np.float32)
    check(edges.wrapped, (2,), WRAPPED[form], **matrices(rng, k=72), out=out, w=w, FORM=form, **SMALL)


BLOCKS = [
    ("plain", 0, RIGHT),
    ("rows above", 0, RIGHT),
    ("columns before", 0, RIGHT),
    ("columns from L on", 64, RIGHT),
    ("columns from L on", 32, RIGHT),
    ("moved", 16 * 72, "the sizes of .a., matrices of 16 rows at most, got 48"),
    ("moved", 64, RIGHT),
    ("moved", M * 72, RIGHT),
    ("L columns", 64, RIGHT),
    ("L columns", 62, "whole groups of 4 from their start, got 62"),
    ("half steps", 0, RIGHT),
]


@pytest.mark.parametrize(("form", "length", "rule"), BLOCKS, ids=str)
def test_block_pointers(form: str, length: int, rule: str, rng: np.random.Generator, edges: Any) -> None:
    require_block_pointers()
    check(edges.blocks, (2,), rule, **matrices(rng, k=72, rows=2 * M), L=length, FORM=form, **SMALL)


@pytest.mark.parametrize(("k", "rule"), [(128, RIGHT), (72, "reads 128 elements of each row of 'a', which has 72")])
def test_blocks_that_are_not_checked_end_with_their_rows(
    k: int, rule: str, rng: np.random.Generator, edges: Any
) -> None:
    """In a dense array what is behind a row is the next one."""
    require_block_pointers()
    known = matrices(rng, 64, k, rows=66) | {"b": rng.standard_normal((128, N), np.float32).astype(np.float16)}
    check(edges.blocks, (2,), rule, **known, L=0, FORM="unchecked", **SMALL)


DESCRIPTORS = [
    ("plain", 16, (1, 0), RIGHT),
    ("plain", -16, (1, 0), RIGHT),
    ("plain", 5, (1, 0), "L in " + ROWS_IN_SIXTEENS + " 5"),
    ("plain", 64, (0, 1), RIGHT),
    ("plain", -64, (0, 1), RIGHT),
    ("plain", 32, (0, 1), RIGHT),
    ("moved", 16, (0, 0), "the sizes of .a., matrices of 16 rows at most, got 48"),
    ("moved", M, (0, 0), RIGHT),
    ("L rows", 33, (0, 0), RIGHT),
    ("L columns", 64, (0, 0), RIGHT),
    ("L columns", 66, (0, 0), "whole groups of 4 from their start, got 66"),
]


@pytest.mark.parametrize(("form", "length", "further", "rule"), DESCRIPTORS, ids=str)
def test_descriptors(
    form: str, length: int, further: tuple[int, int], rule: str, rng: np.random.Generator, edges: Any
) -> None:
    known = matrices(rng, rows=2 * M) | {"L": length, "ROWS": further[0], "COLUMNS": further[1]}
    check(edges.descriptors, (2,), rule, **known, FORM=form, **SMALL)


TYPES = [
    ("f32", "1:2", 32, RIGHT),
    ("f32", "1:2", 16, RIGHT),
    ("f32", "2:4", 32, 'sparse<"NV24"> is for elements of'),
    ("f16", "1:2", 64, 'sparse<"NV12"> is for elements of f32'),
    ("f16", "2:4", 32, RIGHT),
    ("bf16", "2:4", 64, RIGHT),
    ("e4m3", "2:4", 64, RIGHT),
    ("e5m2", "2:4", 64, RIGHT),
    ("s8", "2:4", 64, RIGHT),
    ("s8", "1:2", 64, 'sparse<"NV12"> is for elements of f32'),
]
SIZES = [(1, 1, 4), (7, 16, 8), (15, 17, 16), (17, 15, 20), (16, 7, 68)]


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
@pytest.mark.parametrize(("element", "pattern", "step", "rule"), TYPES)
def test_types_and_small_sizes(
    element: str, pattern: str, step: int, rule: str, m: int, n: int, k: int, rng: np.random.Generator, edges: Any
) -> None:
    from support.triton.tile_kernels import any_dot

    integers = element == "s8"
    b = pruned(rng, n, k, element=element, pattern="2:4").T.copy()
    d = np.full((m, n), -7, np.int32) if integers else np.full((m, n), np.nan, np.float32)
    known = {"d": d, "a": pruned(rng, m, k, element=element, pattern=pattern), "b": b, "M": m, "N": n, "K": k}
    constants = {"BM": 32, "BN": 32, "BK": step, "SUM": "int32" if integers else "fp32", "ZERO": 0 if integers else 0.0}
    check(any_dot, (1, 1), rule, pattern, **known, **constants)


@pytest.mark.parametrize(("element", "pattern", "group"), [("f16", "2:4", 4), ("f32", "1:2", 2)])
def test_rows_of_parts_of_groups(element: str, pattern: str, group: int, rng: np.random.Generator, edges: Any) -> None:
    from support.triton.tile_kernels import any_dot

    known = {"a": pruned(rng, 17, 17, element=element, pattern=pattern), "b": np.ones((17, 15), np.float32)}
    known |= {"b": known["b"].astype(element_type(element).numpy), "d": np.full((17, 15), np.nan, np.float32)}
    rule = f"sparse argument 'a' is a multiple of {group}, got 17: pad it with zeros"
    sizes = {"M": 17, "N": 15, "K": 17, "SUM": "fp32", "ZERO": 0.0}
    check(any_dot, (1, 1), rule, pattern, **known, **sizes, **SMALL)


@pytest.mark.parametrize("floored", [True, False])
def test_columns_before_a_row(floored: bool, rng: np.random.Generator, edges: Any) -> None:
    """Before a row stands the one before it, which a mask leaves out or the dense kernel reads."""
    check(edges.moved_left, (2,), RIGHT, **matrices(rng, m=48), FLOORED=floored, **SMALL)
