"""Runs a kernel over a grid: binds its arguments, and runs each program in turn."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation

from louver.formats.dtypes import element_type
from louver.formats.tensor import SparseTensor, stored_elements
from louver.ir.interpret.program import Program, Turns, require_known
from louver.ir.interpret.values import Fault, InterpretationError, Memory, Pointers, Shaded, Value, View, dtype_of
from louver.ir.refusal import unsupported
from louver.ir.tile import DescriptorType, FuncOp, LoadOp, PointerType, sparse_encoding

Argument: TypeAlias = "NDArray[Any] | SparseTensor | int | float"
"""The value of a kernel argument: an array for a pointer or descriptor, a number for others."""

AXES = 3
"""The largest number of axes of a grid."""

MOST_TURNS = 10_000
"""How often each program may read memory in a loop while no program ends."""


def run_kernel(module: ModuleOp, grid: Sequence[int], arguments: Mapping[str, Argument]) -> None:
    """Run the module's only kernel for each program of `grid`, x first. Its stores change the given arrays.

    arguments: values by name (`arg0` and so on for arguments without a name).

    - A pointer takes an array of its element type, with contiguous memory and any shape. Offsets count its elements.
    - A descriptor takes an array too. Its sizes and strides are the arguments after it.
    - A sparse tensor represents its dense array, contiguous and read only. Arguments with an encoding accept only a
      sparse tensor.

    Programs run one after another, x fastest. A kernel must not depend on this order. While a program waits in a loop
    that reads memory, others run.

    - A masked element of a load without `other` is zero, as in compiled kernels. Triton leaves it undefined. There is a
      warning for the load if a store or a branch depends on it.
    - A dot sums the elements that a sparse operand stores. Its sum is computed in float64, and rounded once to the
      accumulator type. Integers wrap. f32 operands are read as tf32 unless the dot asks for more.
    - 8-bit floats saturate.

    Raises ValueError for arguments that do not fit. Raises UnsupportedKernelError, before anything runs, for an
    operation that cannot be interpreted. Raises InterpretationError for undefined behaviour: an access outside its
    array that is not masked, a division by zero, or an assumption that is false. The last two name the operation and
    its line.
    """
    function = _kernel(module)
    require_known(function)
    warned: set[Operation] = set()

    def seen(value: Shaded, op: Operation) -> None:
        for load in value.loads - warned:
            given = "other=0" if isinstance(load, LoadOp) and load.mask is not None else 'padding_option="zero"'
            rule = (
                f"in {function.sym_name.data}, {op.name} depends on elements that a load leaves out; they are "
                f"zero in Louver and undefined in Triton"
            )
            warnings.warn(str(unsupported(rule, load, f"give the load {given}")), stacklevel=2)
        warned.update(value.loads)

    sizes = _grid(grid)
    block = function.body.block
    values = _bind(function, arguments)
    numbers = product(*(range(size) for size in reversed(sizes)))
    _take_turns(Program((x, y, z), sizes, seen).run(block, values) for z, y, x in numbers)


def _take_turns(programs: Iterator[Turns]) -> None:
    """Run each program to its end, or to a loop that reads memory.

    Then the next one begins, and all that have begun continue in turn.
    """
    begun: deque[Turns] = deque()
    in_vain = 0
    while True:
        if in_vain >= len(begun):
            begun.extendleft(islice(programs, 1))
        if not begun:
            return
        try:
            waits = next(begun[0])
        except StopIteration:
            begun.popleft()
            in_vain = 0
            continue
        begun.rotate(-1)
        in_vain += 1
        if in_vain > MOST_TURNS * len(begun):
            raise InterpretationError(f"{len(begun)} programs poll memory that none of them changes", waits)


def _kernel(module: ModuleOp) -> FuncOp:
    kernels = [op for op in module.body.ops if isinstance(op, FuncOp) and op.is_public]
    if len(kernels) != 1:
        raise ValueError(f"a module holds one kernel, got {len(kernels)}: run one kernel at a time")
    return kernels[0]


def _grid(grid: Sequence[int]) -> tuple[int, ...]:
    if not 1 <= len(grid) <= AXES or min(grid) < 1:
        raise ValueError(f"a grid has 1 to {AXES} axes of at least one program, got {tuple(grid)}")
    return (*grid, *(1,) * (AXES - len(grid)))


def _bind(function: FuncOp, arguments: Mapping[str, Argument]) -> list[Value]:
    names = list(function.argument_names.values())
    if set(names) != set(arguments):
        raise ValueError(f"the kernel's arguments are {', '.join(names)}, got {', '.join(arguments)}")
    types = function.body.block.arg_types
    values = [_value(name, type_, arguments[name]) for name, type_ in zip(names, types, strict=True)]
    return [_described(values, index, type_) for index, type_ in enumerate(types)]


def _value(name: str, type_: Attribute, given: Argument) -> Value:
    if isinstance(type_, PointerType | DescriptorType):
        return Pointers(_memory(name, type_, given), np.asarray(0, np.int64))
    if not isinstance(given, int | float | np.number):
        raise ValueError(f"{name!r} is a number, {type_}, got {type(given).__name__}")
    dtype = _dtype(name, type_)
    if dtype.kind in "iub" and (isinstance(given, float | np.floating) or not _fits(int(given), dtype)):
        raise ValueError(f"{name!r} is an integer, {type_}, got {given}")
    return np.asarray(given).astype(dtype)


def _fits(number: int, dtype: np.dtype[Any]) -> bool:
    if dtype == np.bool_:
        return number in (0, 1)
    limits = np.iinfo(dtype)
    return int(limits.min) <= number <= int(limits.max)


def _memory(name: str, type_: PointerType | DescriptorType, given: Argument) -> Memory:
    encoding = sparse_encoding(type_)
    element = type_.block.element_type if isinstance(type_, DescriptorType) else type_.pointee
    dtype, stored = _dtype(name, element), None
    if isinstance(given, SparseTensor):
        if encoding is not None and str(given.pattern) != encoding.format.pattern:
            raise ValueError(f"{name!r} is sparse in {encoding.format.pattern}, got {given.pattern}")
        given, stored = np.asarray(given), stored_elements(given).reshape(-1)
        given.flags.writeable = False
    elif encoding is not None:
        raise ValueError(f"{name!r} is a sparse tensor, {type_}, got {type(given).__name__}: compress it")
    if isinstance(given, np.ndarray) and (given.dtype.kind, dtype.kind) == ("u", "i"):
        # Integers of tile IR have no sign: each operation says how it reads their bits.
        given = given.view(np.dtype(f"i{given.dtype.itemsize}"))
    if not isinstance(given, np.ndarray) or given.dtype != dtype or not given.flags.c_contiguous:
        what = f"{given.dtype}, strides {given.strides}" if isinstance(given, np.ndarray) else type(given).__name__
        raise ValueError(f"{name!r} is a contiguous array of {element_type(dtype)}, got {what}: pass a copy")
    return Memory(name, given.reshape(-1), stored)


def _dtype(name: str, type_: Attribute) -> np.dtype[Any]:
    try:
        return dtype_of(type_)
    except Fault as fault:
        raise ValueError(f"{name!r}: {fault}") from None


def _described(values: Sequence[Value], index: int, type_: Attribute) -> Value:
    """A descriptor, with the sizes and strides of the arguments after it. Other values do not change."""
    value = values[index]
    if not isinstance(type_, DescriptorType):
        return value
    block = type_.block.get_shape()
    rank = len(block)
    follow = [int(cast(Any, each)) for each in values[index + 1 : index + 1 + 2 * rank]]
    if len(follow) != 2 * rank:
        raise ValueError("a descriptor argument is followed by its sizes and strides, got too few arguments")
    memory = cast(Pointers, value).single
    return View(memory, 0, tuple(follow[:rank]), tuple(follow[rank:]), block, (0,) * rank)
