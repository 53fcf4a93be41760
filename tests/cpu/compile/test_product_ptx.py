"""The PTX of a product, whole: of one block of rows and the fewest columns, without an epilogue."""

from __future__ import annotations

from louver.compile.plan.schedule import Schedule
from louver.frontend.problem import Problem
from louver.ptx.assembler import assemble
from support.compiled import compiled_product
from support.golden import Golden

SMALLEST = Schedule.of(tile_m=64, tile_n=8, tile_k=64, consumers=1, stages=2)


def test_the_smallest_product(golden: Golden) -> None:
    ptx = compiled_product(Problem("linear"), SMALLEST).ptx
    golden.check("ptx/product.ptx", ptx)
    assert assemble(ptx, "sm_90a").clean
