"""The signature of a kernel of register tiles: JSON round trip, and parameters that cannot be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from louver.passes.tile_signature import ArgumentParameter, TileSignature

SIGNATURE = TileSignature(
    "kernel",
    (
        ArgumentParameter("a", "a", "values", None, "u64", "f16"),
        ArgumentParameter("a_metadata", "a", "metadata", None, "u64", "i16"),
        ArgumentParameter("x_shape_0", "x", "size", 0, "u32", "i32"),
        ArgumentParameter("scale", "scale", "value", None, "f32", "f32"),
    ),
    128,
    4096,
)


def test_json_round_trip() -> None:
    assert TileSignature.from_json(json.loads(json.dumps(SIGNATURE.to_json()))) == SIGNATURE
    assert SIGNATURE.arguments == ("a", "x", "scale")


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"part": "pitch"}, "parts of an argument are value, .*got 'pitch'"),
        ({"type": "u32"}, "the type of a address is u64, got 'u32'"),
        ({"dimension": 1}, "sizes and strides, and nothing else, have a dimension, got address, 1"),
    ],
)
def test_a_parameter_that_cannot_be_is_an_error(changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        ArgumentParameter(
            **(
                {"name": "d", "argument": "d", "part": "address", "dimension": None, "type": "u64", "element": "f16"}
                | changes
            )
        )
