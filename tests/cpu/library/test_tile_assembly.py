"""Register tiles of the library: each target assembles the tiles that Louver chooses for each of its types, cleanly."""

from __future__ import annotations

import itertools

import pytest

from louver.choose.choose_tiles import check_tiles, choose_tiles, costs, multiplies
from louver.compile.plan.register_tiles import RegisterTiles
from louver.frontend.epilogue import NO_EPILOGUE
from louver.frontend.problem import Problem
from louver.isa.targets import TARGETS
from louver.library.compiled import assemble_tiles
from support.fused import FULL

CARDS = [each for each in TARGETS.values() if not each.has("wgmma.sp") and each.cards and not each.name.endswith("f")]
TYPES = [
    ("f16", "f16"),
    ("bf16", "f32"),
    ("f32", "f32"),
    ("s8", "s32"),
    ("s8", "s8"),
    ("f16", "e4m3"),
    ("e4m3", "bf16"),
]
CASES = [
    (machine.name, a, out, n, epilogue)
    for machine, (a, out), n, epilogue in itertools.product(CARDS, TYPES, (8192, 16), (NO_EPILOGUE, FULL))
    if multiplies(machine, a, a) and (out != "s32" or not epilogue.floating)
]


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("name", "a", "out", "n", "epilogue"), CASES)
def test_chosen_tiles_assemble_cleanly(name: str, a: str, out: str, n: int, epilogue: object) -> None:
    problem = Problem("linear", a, a, out, epilogue=epilogue)  # type: ignore[arg-type]
    schedule = choose_tiles(problem, (4096, n, 4096, 1), TARGETS[name], 100, aligned_output=True)
    made, assembly = assemble_tiles(problem, schedule)
    assert assembly.clean, (schedule, assembly.faults)
    assert made.signature.shared_bytes <= TARGETS[name].max_shared_bytes
    assert made.kernel.name == "linear" and made.tiles.ptx.count("mma.sp::ordered_metadata") > 0


def test_every_card_has_products() -> None:
    assert {each.number for each in CARDS} >= {80, 86, 87, 89, 100, 103, 110, 120, 121}
    assert not multiplies(TARGETS["sm_80"], "e4m3", "e4m3") and multiplies(TARGETS["sm_89"], "e4m3", "e5m2")


def test_patterns_that_register_tiles_lack() -> None:
    problem = Problem("matmul", pattern="4:8@128", b_layout="n_major")
    with pytest.raises(ValueError, match="sm_89 multiplies weights of 2:4, and of 1:2 in f32, by mma.sp, got 4:8@128"):
        check_tiles(problem, TARGETS["sm_89"])


def test_sums_that_register_tiles_lack() -> None:
    problem = Problem("linear", "e4m3", "e4m3", "bf16", accumulate="promoted")
    with pytest.raises(
        ValueError, match=r'sm_89 adds no sums of mma.sp to others in f32, got accumulate="promoted": leave'
    ):
        check_tiles(problem, TARGETS["sm_89"])


def test_more_sms_take_smaller_tiles() -> None:
    """One wave: a launch of few tiles takes smaller ones on a card with more SMs."""
    problem, sizes = Problem("linear"), (4096, 256, 4096, 1)

    def area(sms: int) -> int:
        found = choose_tiles(problem, sizes, TARGETS["sm_80"], sms, aligned_output=True)
        return found.tile_m * found.tile_n

    assert area(8) > area(200)
    best, *others = costs(problem, sizes, TARGETS["sm_80"], 108, aligned_output=True)
    assert all(best.clocks <= each.clocks for each in others) and best.limit in str(best)


def test_tiles_are_halved_until_they_are_small() -> None:
    tile, sizes = RegisterTiles("sm_80", 256, 128, 64), list[tuple[int, int]]()
    while (half := tile.half) is not None:
        sizes.append((half.tile_m, half.tile_n))
        assert (half.warps, half.tile_k) == (tile.warps, tile.tile_k)
        tile = half
    assert sizes == [(128, 128), (64, 128), (64, 64), (32, 64), (32, 32)]
