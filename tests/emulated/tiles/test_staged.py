"""Tiles through shared memory, from every layout in which they are loaded to those in which products take them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from louver.emulator import Seeded
from louver.ir.tile import BlockedAttr, DotOperandAttr, MmaAttr, SharedAttr
from support.copied_tiles import compiled
from support.emulate_tiles import emulate_tiles

WARPS = 4
ELEMENTS = {"f16": np.float16, "i8": np.int8, "f32": np.float32, "f8E4M3FN": np.uint8, "bf16": np.uint16}
BITS = {"f16": 16, "i8": 8, "f32": 32, "f8E4M3FN": 8, "bf16": 16}


def operands(bits: int) -> dict[str, DotOperandAttr]:
    return {
        "a": DotOperandAttr.of(0, MmaAttr.of(2, 2), bits),
        "b": DotOperandAttr.of(1, MmaAttr.of(2, 2), bits),
        "a of few rows": DotOperandAttr.of(0, MmaAttr.of(1, 4), bits),
        "transposed b": DotOperandAttr.of(0, MmaAttr.of(2, 2, transposed=True), bits),
        "transposed a": DotOperandAttr.of(1, MmaAttr.of(4, 1, transposed=True), bits),
    }


@pytest.mark.parametrize(
    ("t", "along", "name", "shape"),
    [
        *product(ELEMENTS, (0, 1), operands(16), [(64, 64)]),
        *product(("f16", "i8"), (0, 1), ("a", "b"), [(16, 128), (128, 16), (32, 32)]),
    ],
    ids=lambda each: "x".join(map(str, each)) if isinstance(each, tuple) else str(each),
)
def test_tiles_keep_their_elements(
    rng: np.random.Generator, t: str, along: int, name: str, shape: tuple[int, int]
) -> None:
    bits = BITS[t]
    encoding = operands(bits)[name]
    loaded = BlockedAttr.default(shape, WARPS, 128 // bits, (along, 1 - along))
    made = compiled(t, *shape, (loaded, SharedAttr.along(along), encoding))
    x = rng.integers(0, 256, (*shape, bits // 8), dtype=np.uint8).view(ELEMENTS[t])[..., 0]
    x = np.nan_to_num(x) if t in ("f16", "f32") else x
    out = np.zeros_like(x)
    arguments = {"out": out, "x": x}
    emulate_tiles(made, (1,), arguments, order=Seeded(3), uninitialised=["out"])  # type: ignore[arg-type]
    np.testing.assert_array_equal(out, x)
    k_is_along = (along == 1) == (encoding.index.data == 0)
    assert (".trans" in made.ptx) == (bits == 16 and not k_is_along)
    assert ("ldmatrix" in made.ptx) == (k_is_along or bits == 16)


def test_what_shares_memory_waits_for_all_threads() -> None:
    made = compiled(
        "f16",
        64,
        64,
        (BlockedAttr.default((64, 64), WARPS, 8), SharedAttr.along(1), operands(16)["a"]),
    )
    lines = [line for line in made.ptx.splitlines() if any(word in line for word in ("st.shared", "bar", "ldmatrix"))]
    kinds = ["put" if "st.shared" in line else "take" if "ldmatrix" in line else "meet" for line in lines]
    assert [kind for number, kind in enumerate(kinds) if number == 0 or kinds[number - 1] != kind] == [
        "put",
        "meet",
        "take",
    ]
    assert made.signature.shared_bytes == 64 * 64 * 2
