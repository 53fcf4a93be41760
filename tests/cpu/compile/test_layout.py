from __future__ import annotations

import pytest

from louver.compile.plan.layout import output_layout, stageable
from louver.compile.plan.schedule import Schedule

WIDE = Schedule()


@pytest.mark.parametrize(
    ("element", "transposed", "columns", "box", "swizzle", "buffers"),
    [
        ("f32", False, 32, (32, 64), 128, 2),
        ("f32", True, 32, (32, 32), 128, 2),
        ("s32", True, 32, (32, 32), 128, 2),
        ("f16", False, 256, (64, 64), 128, 1),
        ("bf16", True, 256, (64, 256), 128, 1),
        ("e4m3", False, 256, (128, 64), 128, 1),
        ("e4m3", True, 256, (64, 256), 64, 1),
    ],
)
def test_the_widest_tile(
    element: str, transposed: bool, columns: int, box: tuple[int, int], swizzle: int, buffers: int
) -> None:
    layout = output_layout(WIDE, element, transposed=transposed)
    assert (layout.columns, layout.box, layout.swizzle, layout.buffers) == (columns, box, swizzle, buffers)
    assert layout.bytes <= 64 << 10


@pytest.mark.parametrize(
    ("schedule", "columns", "buffers", "size"),
    [
        (Schedule.of(staging=32), 32, 2, 2 * 2 * 64 * 32 * 2),
        (Schedule.of(staging=256), 256, 1, 2 * 64 * 256 * 2),
        (Schedule.of(staging=192), 192, 2, 2 * 2 * 64 * 192 * 2),
        (Schedule.of(tile_m=256, tile_n=128), 128, 2, 2 * 2 * 64 * 128 * 2),
        (Schedule.of(tile_m=192, tile_n=192, consumers=3), 192, 1, 3 * 64 * 192 * 2),
    ],
)
def test_every_warpgroup_has_two_buffers_unless_there_is_one_chunk(
    schedule: Schedule, columns: int, buffers: int, size: int
) -> None:
    layout = output_layout(schedule, "f16", transposed=True)
    assert (layout.columns, layout.buffers, layout.bytes) == (columns, buffers, size)


@pytest.mark.parametrize(("tile_n", "swizzle"), [(16, 32), (32, 64), (48, 32), (64, 128), (96, 64), (192, 128)])
def test_lines_are_the_widest_span_that_divides_a_row(tile_n: int, swizzle: int) -> None:
    layout = output_layout(Schedule.of(tile_n=tile_n), "bf16", transposed=False)
    assert (layout.swizzle, layout.box) == (swizzle, (swizzle // 2, 64))


@pytest.mark.parametrize(
    ("element", "transposed", "box", "swizzle"),
    [
        ("f16", True, (64, 16), 128),
        ("f16", False, (16, 64), 32),
        ("s32", True, (32, 16), 128),
        ("s32", False, (16, 64), 64),
    ],
)
def test_boxes_divide_the_last_chunk_too(element: str, transposed: bool, box: tuple[int, int], swizzle: int) -> None:
    layout = output_layout(Schedule.of(tile_m=256, tile_n=176, staging=96), element, transposed=transposed)
    assert (layout.columns, layout.box, layout.swizzle) == (96, box, swizzle)


def test_what_is_stageable() -> None:
    def widths(element: str, *, transposed: bool = False, gated: bool = False) -> list[int]:
        return [n for n in (8, 16, 24, 32, 64) if stageable(n, element, transposed=transposed, gated=gated)]

    assert widths("s32") == widths("f32", gated=True) == [8, 16, 24, 32, 64]
    assert widths("f16") == [16, 32, 64]
    assert widths("e4m3") == widths("f16", gated=True) == [32, 64]
    assert widths("e4m3", gated=True) == [64]
    assert widths("e4m3", gated=True, transposed=True) == []
