"""The signature of a kernel of register tiles: JSON round trip, and parameters that cannot be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from louver.compile.signature import ArgumentParameter, BoxParameter, Signature, copied_box, with_tails
from louver.library.compiled import from_json, to_json
from support.sizes import sizes

SIGNATURE = Signature(
    "kernel",
    with_tails(
        (
            ArgumentParameter("a", "a", "values", None, "u64", "f16"),
            ArgumentParameter("a_metadata", "a", "metadata", None, "u64", "i16"),
            ArgumentParameter("x_shape_0", "x", "size", 0, "u32", "i32"),
            ArgumentParameter("scale", "scale", "value", None, "f32", "f32"),
            BoxParameter("a_box", "a", "values", 2, sizes("K", "M"), sizes("K/2"), (32, 64), 64, tailed=True),
            BoxParameter("a_metadata_box", "a", "metadata", 2, (None, None), sizes("K"), (64, 4), 128),
        )
    ),
    128,
    4096,
)


def test_json_round_trip() -> None:
    assert from_json(Signature, json.loads(json.dumps(to_json(SIGNATURE)))) == SIGNATURE
    assert SIGNATURE.metadata == (("a", "i16"),)


def test_a_box_with_a_tail_has_two_more_parameters() -> None:
    box = SIGNATURE.parameters[4]
    assert isinstance(box, BoxParameter)
    assert [(each.name, each.type) for each in SIGNATURE.parameters[6:]] == [
        ("a_box_tail", "tensormap"),
        ("a_box_rows", "u32"),
    ]
    for rows, left in ((1, 1), (63, 63), (64, 64), (65, 1), (130, 2)):
        assert copied_box(box, {"M": rows}) == (32, 64)
        assert copied_box(box.tail, {"M": rows}) == (32, left)


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


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"part": "value"}, "boxes are of an array, got 'value' of 'x'"),
        ({"strides": ()}, "a box has a size for each dimension, and strides but for the first"),
        ({"sizes": sizes("K")}, "a box has a size for each dimension"),
    ],
)
def test_a_box_that_cannot_be_is_an_error(changes: dict[str, Any], rule: str) -> None:
    box = {
        "part": "address",
        "element_bytes": 2,
        "sizes": sizes("K", "N"),
        "strides": sizes("K"),
        "box": (64, 64),
        "swizzle": 128,
    }
    with pytest.raises(ValueError, match=rule):
        BoxParameter(name="x_box", argument="x", **(box | changes))  # type: ignore[arg-type]
