"""The API reference as Markdown, for the pages below docs/reference: what `louver`, `louver.torch` and `louver.models` export.

griffe2md writes it. Of the generators that are maintained, pdoc, Sphinx and mkdocstrings make sites; lazydocs imports the
package, and so needs torch. griffe2md reads the source by griffe and gives Markdown. Two things are ours: the docstrings'
lines "name: meaning" become lists, and signatures are broken at commas, however the machine is equipped.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
from griffe2md import ConfigDict, prepare_context, prepare_env

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 100
"""Columns of a signature's lines."""

CONFIG: ConfigDict = {
    "docstring_style": None,
    "filters": ["!^_(?!_call__|_getitem__)"],
    "heading_level": 2,
    "inherited_members": False,
    "show_bases": False,
    "show_if_no_docstring": False,
    "show_object_full_path": False,
    "show_root_full_path": False,
    "show_root_heading": True,
    "show_root_members_full_path": False,
    "show_submodules": False,
    "summary": False,
}

RETURNED = {"louver": ("louver.user.jit_kernel.JitKernel", "louver.user.finding.FindingKernel")}
"""Types that calls return and that have no public name, by module."""

_NAMES = re.compile(r"([a-z*]\w*(?:(?:, | or | )[\w()*]+){0,5}): (\S.*)")


class Lists(griffe.Extension):
    """Makes lists of a docstring's lines `name: meaning`, and ends a paragraph before "Raises"."""

    def on_instance(self, *, node: Any, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = "\n".join(listed(obj.docstring.value.splitlines()))


def listed(lines: list[str]) -> Iterator[str]:
    """The lines with `- **name**: meaning` for `name: meaning`, and blank lines around each list."""
    inside = False
    before = ""
    for line in lines:
        # A name stands at a line's begin, behind a whole sentence, an item or an empty line.
        named = _NAMES.fullmatch(line) if not before or before.endswith((".", ":")) or before[:1] == " " else None
        if named:
            if before and not inside:
                yield ""
            inside = True
            yield f"- **{named[1].replace('*', chr(92) + '*')}**: {named[2]}"
        elif inside and line and (line[:1] == " " or not before.endswith((".", ":"))):
            yield f"  {line.strip()}"
        else:
            if (inside and line) or (before and line.startswith("Raises ")):
                yield ""
            inside = False
            yield line
        before = line


def reference(name: str) -> str:
    """The public names of a module in alphabetical order, each with its signature and docstring."""
    modules: Any = _modules(name.partition(".")[0])
    module = modules[name]
    found = {each: _named(module, each) for each in sorted(map(str, module.exports), key=str.lower)}
    found |= {path.rpartition(".")[2]: modules[path] for path in RETURNED.get(name, ())}
    links = ", ".join(f"[`{each}`](#{each.lower()})" for each in found)
    return "\n".join([links, "", *(_rendered(each) for each in found.values())])


@functools.cache
def _modules(package: str) -> griffe.ModulesCollection:
    loader = griffe.GriffeLoader(
        search_paths=[ROOT], extensions=griffe.load_extensions(Lists), docstring_parser=None, allow_inspection=False
    )
    loader.load(package)
    loader.resolve_aliases()
    return loader.modules_collection


def _named(module: Any, name: str) -> Any:
    """What `from module import name` gives: of a submodule and a function of one name, the function."""
    found = module.members[name]
    found = found.final_target if found.is_alias else found
    return found.members[name] if found.is_module else found


def _rendered(found: Any) -> str:
    environment = prepare_env()
    environment.filters["format_signature"] = _signature
    template = environment.get_template(f"{found.kind.value}.md.jinja")
    return template.render(**prepare_context(found, CONFIG)).strip() + "\n"


def _signature(name: str, function: griffe.Function, *_: object, **__: object) -> str:
    """`name(a: A, b: B = …) -> C`, an argument a line where one line is too long."""
    text = function.signature(name=name.strip())
    text = text.replace("(self, ", "(", 1).replace("(self)", "()", 1).replace("(cls, ", "(", 1)
    if len(text) <= WIDTH:
        return text
    head, _, rest = text.partition("(")
    inside, arrow, result = rest.rpartition(") -> ") if ") -> " in rest else (rest.rstrip(")"), ")", "")
    arguments = re.split(r", (?![^\[(]*[\])])", inside)
    return f"{head}(\n" + "".join(f"    {each},\n" for each in arguments) + f"{arrow}{result}"
