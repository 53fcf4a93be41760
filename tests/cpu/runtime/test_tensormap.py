from __future__ import annotations

import ctypes
from typing import Any

import pytest

from louver.formats.dtypes import element_type
from louver.isa.bulk import TensorMap
from louver.runtime import tensormap
from louver.runtime.driver import DriverError
from louver.runtime.tensormap import encode

MAP = TensorMap(0x7F0000000040, 2, (1000, 77, 3), (2048, 2048 * 80), (64, 128, 1), 128, 256)


@pytest.fixture
def seen(fake: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arguments that the driver's encoder was given, in C's terms; it answers with a pattern, and fails for 8-byte elements."""
    given: list[Any] = []
    pointer = ctypes.c_void_p

    def encoder(out: int, kind: int, rank: int, address: int, shape: int, strides: int, box: int, steps: int, *modes: int) -> int:  # fmt: skip
        given.append(
            (
                kind,
                rank,
                address,
                list((ctypes.c_uint64 * rank).from_address(shape)),
                list((ctypes.c_uint64 * (rank - 1)).from_address(strides)),
                list((ctypes.c_uint32 * rank).from_address(box)),
                list((ctypes.c_uint32 * rank).from_address(steps)),
                modes,
                out % 64,
            )
        )
        ctypes.memmove(out, bytes(range(128)), 128)
        return int(kind == 4)

    signature = [pointer, ctypes.c_int, ctypes.c_uint32, *[pointer] * 5, *[ctypes.c_int] * 4]
    callback = ctypes.CFUNCTYPE(ctypes.c_int, *signature)(encoder)
    address = ctypes.cast(callback, pointer).value
    monkeypatch.setattr(fake, "_cuGetProcAddress", lambda *_: (address, 0), raising=False)
    given.append(callback)
    return given


def test_a_map_is_given_to_the_driver_as_it_takes_it(seen: list[Any]) -> None:
    assert encode(MAP) == bytes(range(128))
    assert seen[1] == (
        1,
        3,
        0x7F0000000040,
        [1000, 77, 3],
        [2048, 2048 * 80],
        [64, 128, 1],
        [1, 1, 1],
        (0, 3, 3, 0),
        0,
    )


@pytest.mark.parametrize(("swizzle", "mode"), [(0, 0), (32, 1), (64, 2), (128, 3)])
@pytest.mark.parametrize(("element_bytes", "kind"), [(1, 0), (2, 1), (4, 2)])
def test_sizes_and_swizzles_have_their_numbers(
    seen: list[Any], swizzle: Any, mode: int, element_bytes: int, kind: int
) -> None:
    encode(TensorMap(0x100, element_bytes, (4096,), (), (32 // element_bytes,), swizzle, 0))
    assert seen[1][0] == kind
    assert seen[1][7] == (0, mode, 0, 0)


@pytest.mark.parametrize(("adds", "kind"), [("s32", 3), ("f16", 6), ("f32", 7), ("bf16", 9)])
def test_types_that_are_added_have_their_numbers(seen: list[Any], adds: str, kind: int) -> None:
    size = element_type(adds).bytes
    encode(TensorMap(0x100, size, (4096,), (), (32 // size,), adds=adds))
    assert seen[1][0] == kind
    with pytest.raises(ValueError, match=f"of their own size, got {adds} of 8 bytes"):
        TensorMap(0x100, 8, (4096,), (), (8,), adds=adds)


def test_every_rank_is_passed(seen: list[Any]) -> None:
    for rank in range(1, 6):
        strides = tuple(16 * 10**i for i in range(1, rank))
        encode(TensorMap(0x100, 4, tuple(range(5, 5 + rank)), strides, (4,) * rank))
        assert seen[-1][1] == rank
        assert seen[-1][3] == list(range(5, 5 + rank))
        assert seen[-1][4] == list(strides)
        assert seen[-1][5] == [4] * rank
        assert seen[-1][8] == 0


def test_a_refused_map_is_shown(seen: list[Any]) -> None:
    with pytest.raises(
        DriverError, match=r"encoding TensorMap\(address=256, element_bytes=8.* CUDA_ERROR_INVALID_VALUE"
    ):
        encode(TensorMap(0x100, 8, (64,), (), (4,)))


def test_the_encoder_is_looked_up_once(seen: list[Any], fake: Any) -> None:
    for _ in range(3):
        encode(MAP)
    assert len(fake.called("cuGetProcAddress")) == 1
    assert tensormap._encode_tiled.cache_info().hits == 2
