"""xDSL's parser, which remembers types, constants and locations by their text.

A kernel has hundreds of operations, but few types. To read each one anew takes about half of the time of a reading.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar, cast

from xdsl.context import Context
from xdsl.dialects.builtin import LocationAttr
from xdsl.ir import Attribute, TypeAttribute
from xdsl.parser import Parser

_TENSOR = r"tensor<[^<>]*(?:<[^<>]*>[^<>]*)?>"
_TYPE = re.compile(_TENSOR)
_CONSTANT = re.compile(rf"dense<[^<>\"]*> : {_TENSOR}")
_PLACE = re.compile(r'loc\("(?:[^"\\]|\\.)*":\d+:\d+\)')

Found = TypeVar("Found", bound=Attribute)


class RememberingParser(Parser):
    """Gives the same objects as its base. A text that is not known yet, or has another form, is parsed by the base."""

    def __init__(self, context: Context, text: str, name: str) -> None:
        super().__init__(context, text, name)
        self._text = text
        self._known: dict[str, Attribute] = {}

    def parse_optional_type(self) -> TypeAttribute | None:
        return self._remembered(_TYPE, super().parse_optional_type)

    def parse_optional_attribute(self) -> Attribute | None:
        return self._remembered(_CONSTANT, super().parse_optional_attribute)

    def parse_optional_location(self) -> LocationAttr | None:
        return self._remembered(_PLACE, super().parse_optional_location)

    def _remembered(self, form: re.Pattern[str], parse: Callable[[], Found | None]) -> Found | None:
        match = form.match(self._text, self.pos)
        if match is None:
            return parse()
        if (known := self._known.get(match[0])) is not None:
            self._resume_from(match.end())
            return cast(Found, known)
        found = parse()
        if found is not None:
            self._known[match[0]] = found
        return found
