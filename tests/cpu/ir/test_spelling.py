"""Constants are spelled so that xDSL reads them quickly, and are the same constants."""

from __future__ import annotations

import pytest
from xdsl.ir import Attribute
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError

from louver.ir.context import make_context, spell_for_xdsl

INTEGERS = ("0", "1", "-1", "5", "127", "128", "255", "-128", "32767", "65535", "4294967295", "-2147483648", "300")
FLOATS = ("0.000000e+00", "-0.000000e+00", "1.500000e+00")


def parsed(text: str) -> Attribute | str:
    try:
        return Parser(make_context(), text).parse_attribute()
    except (ParseError, ValueError) as error:
        return type(error).__name__


@pytest.mark.parametrize("type_", ["i1", "i8", "i16", "i32", "i64", "ui8", "index", "f16", "bf16", "f32", "f8E4M3FN"])
def test_one_value_for_all_elements_is_the_same_in_bytes(type_: str) -> None:
    values = (("true", "false", *INTEGERS) if type_ == "i1" else INTEGERS) if "f" not in type_ else FLOATS
    for value in values:
        text = f"dense<{value}> : tensor<4x2x{type_}>"
        assert parsed(spell_for_xdsl(text)) == parsed(text), text


@pytest.mark.parametrize("value", ["5", "true", "0.000000e+00"])
def test_one_value_takes_no_number_for_each_element(value: str) -> None:
    type_ = {"5": "i32", "true": "i1"}.get(value, "bf16")
    assert 'dense<"0x' in spell_for_xdsl(f"%0 = arith.constant dense<{value}> : tensor<128x128x{type_}>")
