"""Prints IR with encodings. Each encoding gets a name, which is defined at the top."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute

from louver.ir.tile.encodings import DotOperandAttr, Encoding, SliceAttr
from louver.ir.tile.types import register_encoding


def text_with_aliases(module: ModuleOp) -> str:
    """Text that `parse_ir` reads as the same module.

    Names are `#mma`, `#dot_op_1` and so on, by first use, parents first.
    """
    names: dict[Attribute, str] = {}
    counts: dict[str, int] = {}
    for encoding in _encodings(module):
        kind = encoding.name.removeprefix("tt.")
        number = counts[kind] = counts.get(kind, -1) + 1
        names[encoding] = f"#{kind}_{number}" if number else f"#{kind}"
    text, lines = str(module), list[str]()
    # The text of a child contains that of its parent, so children are replaced first.
    for encoding, name in reversed(names.items()):
        text = text.replace(str(encoding), name)
    for encoding, name in names.items():
        written = str(encoding)
        if isinstance(encoding, DotOperandAttr | SliceAttr):
            written = written.replace(str(encoding.parent), names[encoding.parent])
        lines.append(f"{name} = {written}")
    return "\n".join([*lines, text])


def _encodings(module: ModuleOp) -> Iterator[Encoding]:
    """Each encoding once, after its parents."""
    seen: set[Encoding] = set()

    def with_parents(encoding: Encoding) -> Iterator[Encoding]:
        if encoding in seen:
            return
        seen.add(encoding)
        if isinstance(encoding, DotOperandAttr | SliceAttr):
            yield from with_parents(encoding.parent)
        yield encoding

    for op in module.walk():
        values = [
            *op.results,
            *(argument for region in op.regions for block in region.blocks for argument in block.args),
        ]
        for value in values:
            encoding = register_encoding(value.type)
            if encoding is not None:
                yield from with_parents(encoding)
