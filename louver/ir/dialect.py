"""Makes a dialect of the modules that define its parts."""

from __future__ import annotations

import sys
from importlib import import_module
from pkgutil import iter_modules

from xdsl.ir import Attribute, Dialect, Operation


def dialect(name: str, package: str) -> Dialect:
    """The dialect of all operations and attributes that the modules of a package define and name."""
    modules = [import_module(f"{package}.{each.name}") for each in iter_modules(sys.modules[package].__path__)]
    defined = [
        each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and each.__module__ == module.__name__ and "name" in vars(each)
    ]
    return Dialect(
        name,
        [each for each in defined if issubclass(each, Operation)],
        [each for each in defined if issubclass(each, Attribute)],
    )
