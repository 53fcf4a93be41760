"""Reads the text of Triton's IR as tile IR.

Each value must stand before its uses, where they see it, and no chain of values may be too long to follow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from xdsl.dialects import cf
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i32
from xdsl.ir import Block, Operation, SSAValue
from xdsl.utils.exceptions import ParseError, VerifyException

from louver.frontend.ttir.batches import split_batches
from louver.frontend.ttir.calls import inline_calls
from louver.frontend.ttir.ends import check_ends
from louver.frontend.ttir.limits import MAX_CHAIN, check_count, check_shape, check_size
from louver.frontend.ttir.locations import resolve_locations
from louver.frontend.ttir.parser import RememberingParser
from louver.frontend.ttir.returns import nest_returns
from louver.frontend.ttir.spelled import OPERATIONS, spell
from louver.ir.computed import LENGTH, TRANSPOSED
from louver.ir.context import make_context, spell_for_xdsl
from louver.ir.refusal import UnsupportedKernelError, together, unsupported
from louver.ir.tile import DescriptorType, FuncOp, SparseAttr
from louver.isa.rule import RuleError


def check_order(function: FuncOp) -> None:
    """Raises UnsupportedKernelError for a value that is used before its definition or outside its region, for too many
    operations, and for a chain of operations that is too long.
    """
    depths: dict[SSAValue, int] = {}
    for number, op in enumerate(function.walk()):
        check_count(number, op)
        depth = 1 + max((_depth(value, op, depths) for value in op.operands), default=0)
        if depth > MAX_CHAIN:
            rule = f"at most {MAX_CHAIN} operations in a row need the one before"
            raise unsupported(rule, op, "make a loop of what repeats")
        for region in op.regions:
            for block in region.blocks:
                depths |= dict.fromkeys(block.args, depth)
        depths |= dict.fromkeys(op.results, depth)
        parent = op.parent_op()
        if op.next_op is None and parent is not None:
            # The results of a loop or a branch come from its end.
            depths |= {result: max(depth, depths.get(result, 0)) for result in parent.results}


def _depth(value: SSAValue, op: Operation, depths: dict[SSAValue, int]) -> int:
    found = depths.get(value)
    place = value.owner if isinstance(value.owner, Block) else value.owner.parent
    if found is None or place is None or not place.is_ancestor(op):
        name = f"%{value.name_hint}" if value.name_hint else "a value"
        raise unsupported(f"a value is used behind its definition, in the same region or inside; {name} is not", op)
    return found


SPARSE_MARK = "louver.sparse."
"""An argument attribute: `louver.sparse.NV24` names the sparse encoding, its value the axis from the end (1 or 2)."""

_OPERATION = re.compile(r'^\s*(?:%[\w.$:#, %-]+ = )?"?([a-z_]\w*(?:\.\w+)+)"?(?=[ ("<]|$)')
_INSTEAD = {
    "tt.int_to_ptr": (
        "a pointer must come from an argument",
        "pass each array as an argument, not a table of addresses",
    ),
    "tt.map_elementwise": ("tl.map_elementwise is not supported", "call the function on the tiles"),
}
"""The rule and the advice for rejected operations that can be written in another way."""

_SIGN = re.compile(r"((?<!tensor)<(?:\d+x)+|tensor<(?:\d+x)+(?=s))[su](?=i\d)")
"""Triton's text before the integers of a descriptor's block; loaded tiles have none. `tensor<16xui8>` is tile IR's own."""

_LONGEST = 300
"""The largest number of characters of a line in a message, with its location."""

_NUMBERS = re.compile(r"(_\d+)*")
_LOCATION = re.compile(r' loc\("((?:[^"\\]|\\.)*)":(\d+):(\d+)\)\s*$')


def sparse_mark(pattern: str) -> str:
    """The attribute of an argument that is sparse in a pattern such as "2:4". Raises ValueError for an unknown pattern."""
    return SPARSE_MARK + SparseAttr.of_pattern(pattern.removesuffix(TRANSPOSED)).format_name.data


def sparse_axis(pattern: str) -> int:
    """The value of that attribute."""
    return 2 if pattern.endswith(TRANSPOSED) else 1


def read_ttir(
    text: str, *, name: str = "<ttir>", sparse: Mapping[str, str] | None = None, names: Sequence[str] | None = None
) -> ModuleOp:
    """A module that Triton (3.4 to 3.9) printed, with or without locations (they are kept), as verified tile IR.

    sparse: patterns by argument name. They become attributes; `propagate_sparsity` makes types of them.
    names: of the kernel's arguments, where a descriptor is one argument; by default those of the text. Sizes and
        strides of a descriptor are named `x.shape.0`, `x.stride.0` and so on.
    Raises UnsupportedKernelError with operation and source line for operations that tile IR lacks, ValueError for
    damaged text, `sparse` or `names`.
    """
    check_size(text)
    resolved = resolve_locations(text)
    check_shape(resolved)
    resolved = _SIGN.sub(r"\1", spell_for_xdsl(resolved))
    context = make_context()
    context.load_dialect(cf.Cf)
    for each in OPERATIONS:
        context.load_op(each)
    unknown = [
        _refused(line, *_INSTEAD.get(found[1], (f"{found[1]} is not supported", "")))
        for line in resolved.splitlines()
        if (found := _OPERATION.match(line)) and context.get_optional_op(found[1]) is None
    ]
    if unknown:
        raise together(unknown)
    parser = RememberingParser(context, resolved, name)
    try:
        module = parser.parse_module()
    except ParseError as error:
        raise _unreadable(resolved, name, error.span.start, error.msg) from error
    except (VerifyException, ValueError, OverflowError) as error:
        # An operation that cannot be made, such as a constant that its type does not hold.
        # The next token is read already: the operation ends before it.
        raise _unreadable(resolved, name, len(resolved[: parser.pos].rstrip()), str(error)) from error
    _drop_numbers(module)
    function = _kernel(module)
    inline_calls(module)
    nest_returns(function)
    spell(module)
    check_order(function)
    split_batches(function)
    _verify(module)
    check_ends(function)
    if names is not None:
        _name_arguments(function, names)
    _name_descriptors(function)
    if sparse:
        _mark(function, sparse)
    _add_lengths(function)
    return module


def _unreadable(text: str, name: str, position: int, reason: str) -> UnsupportedKernelError:
    """The error for a text that is no tile IR, with the line at a position."""
    lines = text.splitlines()
    # An error at the end of the text, such as an undefined value, lies past the last line.
    line = min(text[:position].count("\n"), len(lines) - 1)
    return _refused(lines[line][:_LONGEST], f"a kernel's text must be tile IR ({name}: {reason})")


def _drop_numbers(module: ModuleOp) -> None:
    """Drop name hints that are only numbers: xDSL drops a suffix `_1` in each copy, and cannot copy such a value."""
    for op in module.walk():
        arguments = [each for region in op.regions for block in region.blocks for each in block.args]
        for value in (*op.results, *arguments):
            if _NUMBERS.fullmatch(value.name_hint or ""):
                value.name_hint = None


def _verify(module: ModuleOp) -> None:
    """Reject the innermost invalid operation."""
    try:
        module.verify()
    except VerifyException:
        for op in module.walk(reverse=True):
            try:
                op.verify(verify_nested_ops=False)
            except VerifyException as error:
                raise unsupported(str(error), op) from error
        raise


def _refused(line: str, rule: str, advice: str = "") -> UnsupportedKernelError:
    found = _LOCATION.search(line)
    where = None if found is None else ":".join(found.groups())
    return UnsupportedKernelError(rule, _LOCATION.sub("", line).strip(), where, advice)


def _kernel(module: ModuleOp) -> FuncOp:
    kernels = [op for op in module.body.ops if isinstance(op, FuncOp) and op.is_public]
    if len(kernels) != 1:
        raise RuleError(f"a module holds one kernel, got {len(kernels)}: compile one kernel at a time")
    for op in module.body.ops:
        if not isinstance(op, FuncOp):
            raise unsupported("operations are in a function", op, "put it in the kernel, or leave it out")
    return kernels[0]


def _groups(function: FuncOp) -> list[list[int]]:
    """Argument numbers in groups: a descriptor with its sizes and strides, or a single other argument."""
    types = [argument.type for argument in function.body.block.args]
    groups: list[list[int]] = []
    index = 0
    while index < len(types):
        type_ = types[index]
        count = 1 + 2 * type_.block.get_num_dims() if isinstance(type_, DescriptorType) else 1
        groups.append(list(range(index, index + count)))
        index += count
    if index != len(types):
        raise RuleError("a descriptor argument is followed by its sizes and strides, got too few arguments")
    return groups


def _name_arguments(function: FuncOp, names: Sequence[str]) -> None:
    groups = _groups(function)
    if len(groups) != len(names):
        raise RuleError(f"names are given for each of {len(groups)} arguments, got {len(names)}: {', '.join(names)}")
    function.name_arguments({group[0]: name for group, name in zip(groups, names, strict=True)})


def _name_descriptors(function: FuncOp) -> None:
    names = list(function.argument_names.values())
    parts: dict[int, str] = {}
    for first, *others in _groups(function):
        rank = len(others) // 2
        for position, index in enumerate(others):
            part = "shape" if position < rank else "stride"
            parts[index] = f"{names[first]}.{part}.{position % rank}"
    function.name_arguments(parts)


def _mark(function: FuncOp, sparse: Mapping[str, str]) -> None:
    known = list(function.argument_names.values())
    marks = function.argument_attributes
    for name, pattern in sparse.items():
        if name not in known:
            raise RuleError(f"a sparse argument is one of {', '.join(known)}, got {name!r}")
        marks[known.index(name)][sparse_mark(pattern)] = IntegerAttr(sparse_axis(pattern), 32)
    function.argument_attributes = marks


def _add_lengths(function: FuncOp) -> None:
    """Add the length of each sparse axis that is not the last: the kernel may lack it, and stored rows depend on it."""
    names = list(function.argument_names.values())
    for name, attributes in zip(names, function.argument_attributes, strict=True):
        marks = [mark for key, mark in attributes.items() if key.startswith(SPARSE_MARK)]
        if any(isinstance(mark, IntegerAttr) and mark.value.data == 2 for mark in marks):
            block = function.body.block
            given = [*function.argument_attributes, {}]
            block.insert_arg(i32, len(block.args))
            function.take_types()
            function.argument_attributes = given
            function.name_arguments({len(given) - 1: name + LENGTH})
