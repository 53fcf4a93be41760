"""Source locations of operations and of the lines of a module's text."""

from __future__ import annotations

from xdsl.dialects.builtin import UnknownLoc

from louver.compile.canonical.canonicalize import canonicalize
from louver.frontend.builder import build_tile_ir
from louver.frontend.problem import Problem, Tile
from louver.ir.refusal import adopt_places, number_places, source_location, text_places
from louver.ir.sched import ops
from louver.ir.tile import DotOp
from support.triton.products import compiled
from support.triton.texts import changed


def test_a_line_has_the_place_of_its_operation_and_a_region_that_of_the_one_around_it() -> None:
    module = build_tile_ir(Problem("linear"), Tile(64, 8, 64))
    text = str(module).split("\n")
    assert text_places(module) == [None] * len(text)
    number_places(module, "own")
    places = text_places(module)
    assert len(places) == len(text)
    loop = next(index for index, line in enumerate(text) if "scf.for" in line)
    closing = next(index for index, line in enumerate(text) if index > loop and line == "    }")
    assert places[loop] == places[closing] == f"own:{loop + 1}:1"
    inner = [index for index, line in enumerate(text) if loop < index < closing]
    assert [places[index] for index in inner] == [f"own:{index + 1}:1" for index in inner]


def test_operations_adopt_the_place_of_their_users_through_others() -> None:
    module = build_tile_ir(Problem("linear"), Tile(64, 8, 64))
    (dot,) = (op for op in module.walk() if isinstance(op, DotOp))
    number_places(module, "own")
    place = dot.location
    for op in module.walk():
        op.location = place if op is dot else UnknownLoc()
    adopt_places(module)
    assert dot.a.owner.location == place and dot.b.owner.operands[0].owner.location == place
    assert isinstance(module.location, UnknownLoc)


def test_schedule_ir_has_the_lines_of_the_kernel_that_it_carries_out() -> None:
    product = compiled("grouped_pointers")
    tile = canonicalize(product.tile)
    (dot,) = (op for op in tile.walk() if isinstance(op, DotOp))
    found = {source_location(op.location) for op in product.sched.walk() if isinstance(op, ops.MmaOp)}
    assert found == {source_location(dot.location)} != {None}
    copies = {
        op.ring.data: source_location(op.location) for op in product.sched.walk() if isinstance(op, ops.BulkLoadOp)
    }
    assert len(set(copies.values())) == 2 and None not in copies.values()
    unknown = {op.name for op in product.sched.walk() if source_location(op.location) is None}
    assert unknown == {"builtin.module", "sched.role"}


def test_reading_keeps_the_place_of_most_operations() -> None:
    module = changed("grouped_pointers")
    places = text_places(module)
    assert sum(place is not None for place in places) > 0.9 * len(places)
