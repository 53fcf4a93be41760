"""Kept texts with parts replaced: kernels that users might have written otherwise."""

from __future__ import annotations

import re

from xdsl.dialects.builtin import ModuleOp

from louver.frontend.ttir import read_ttir
from louver.passes.canonicalize import canonicalize
from louver.passes.nest import read_nest
from louver.passes.product import ProductNest
from support.triton.cases import kept


def changed(name: str, *changes: tuple[str, str], version: str = "3.6") -> ModuleOp:
    """The kept text of a case, read after each first pattern (a regular expression that matches once) is replaced.

    New lines need no location: they get one of their own, kernel.py:1:0.
    """
    text = kept(name, version)
    for old, new in changes:
        assert len(re.findall(old, text)) == 1, (old, re.findall(old, text))
        text = re.sub(old, new, text)
    return read_ttir(text)


def nest(name: str, *changes: tuple[str, str], version: str = "3.6") -> ProductNest:
    """What the changed kernel computes."""
    return read_nest(canonicalize(changed(name, *changes, version=version)))
