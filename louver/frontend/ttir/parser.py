"""xDSL's parser, which remembers types, constants and locations by their text.

A kernel has hundreds of operations, but few types. To read each one anew takes about half of the time of a reading.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar, cast

from xdsl.context import Context
from xdsl.dialects.builtin import AnyFloat, FileLineColLoc, IntAttr, IntegerType, LocationAttr, StringAttr, TensorType
from xdsl.ir import Attribute, TypeAttribute
from xdsl.parser import Parser

_TENSOR = r"tensor<[^<>]*(?:<[^<>]*>[^<>]*)?>"
_TYPE = re.compile(_TENSOR)
_CONSTANT = re.compile(rf"dense<[^<>\"]*> : ({_TENSOR})")
_PLACE = re.compile(r'loc\("([^"\\]*)":(\d+):(\d+)\)')

Found = TypeVar("Found", bound=Attribute)


class RememberingParser(Parser):
    """Gives the same objects as its base. A text that is not known yet, or has another form, is parsed by the base."""

    def __init__(self, context: Context, text: str, name: str) -> None:
        super().__init__(context, text, name)
        self._text = text
        self._known: dict[str, Attribute] = {}

    def parse_optional_type(self) -> TypeAttribute | None:
        return self._remembered(_TYPE, super().parse_optional_type, self._parsed)

    def parse_optional_attribute(self) -> Attribute | None:
        return self._remembered(_CONSTANT, super().parse_optional_attribute, self._constant)

    def parse_optional_location(self) -> LocationAttr | None:
        return self._remembered(_PLACE, super().parse_optional_location, self._place)

    def _remembered(
        self,
        form: re.Pattern[str],
        parse: Callable[[], Found | None],
        make: Callable[[re.Match[str], Callable[[], Found | None]], Found | None],
    ) -> Found | None:
        """make: the object of a text that is seen for the first time; parse: of another form."""
        match = form.match(self._text, self.pos)
        if match is None:
            return parse()
        found = cast("Found | None", self._known.get(match[0]))
        if found is None:
            found = make(match, parse)
        if found is not None:
            self._known[match[0]] = found
            self._resume_from(match.end())
        return found

    def _parsed(self, match: re.Match[str], parse: Callable[[], Found | None]) -> Found | None:
        return parse()

    def _constant(self, match: re.Match[str], parse: Callable[[], Attribute | None]) -> Attribute | None:
        """With a known type, xDSL does not derive anew what it may be, which takes longer than all else of a constant."""
        type_ = cast("TensorType[IntegerType | AnyFloat] | None", self._known.get(match[1]))
        if type_ is None:
            return parse()
        self.parse_keyword("dense")
        return self.parse_dense_int_or_fp_elements_attr(type_)

    def _place(self, match: re.Match[str], parse: Callable[[], LocationAttr | None]) -> LocationAttr:
        file, line, column = match.groups()
        return FileLineColLoc(StringAttr(file), IntAttr(int(line)), IntAttr(int(column)))
