"""A call of a kernel of register tiles: its parameters' values, where they are no addresses."""

from __future__ import annotations

from louver.passes.tile_signature import ArgumentParameter, TileSignature
from louver.user.arguments import Call, Number
from louver.user.sizes import size as size_of

ADDRESSES = ("address", "values", "metadata")
"""Parts of an argument that are addresses."""

_PARTS = {"size": "shape", "stride": "stride"}


def check_tiles(name: str, signature: TileSignature, call: Call) -> None:
    """Raises ValueError for sparse tensors that register tiles do not read, or descriptors over them that are not the whole."""
    for argument in dict.fromkeys(each.argument for each in signature.parameters if each.part == "values"):
        s = call.sparse.get(argument)
        if s is None:
            raise ValueError(f"{name} reads {argument!r} as a sparse tensor, got an array: compress it")
        if s.size % s.pattern.m:
            raise ValueError(
                f"K of {name}'s sparse argument {argument!r} is a multiple of {s.pattern.m}, got {s.size}: pad it with zeros"
            )
        for stride in [size_of(text, call.numbers) for of, text in signature.pitches if of == argument]:
            if s.rows > 1 and stride != s.size:
                raise ValueError(
                    f"{name} is given the strides of the dense tensor, contiguous, for {argument!r}: rows are {s.size} elements "
                    f"apart, got a stride of {stride}"
                )
        given = {part: _described(call, argument, part) for part in ("shape", "stride")}
        if given["shape"] and (given["shape"] != tuple(s.shape) or given["stride"] != _contiguous(s.shape)):
            raise ValueError(
                f"{name} is given the sizes and strides of the dense tensor for {argument!r}, {list(s.shape)} and "
                f"{list(_contiguous(s.shape))}, got {list(given['shape'])} and {list(given['stride'])}"
            )


def number(parameter: ArgumentParameter, call: Call) -> Number:
    """What a parameter that is no address is bound to: unsigned, or an f32."""
    name = parameter.argument
    if parameter.dimension is not None:
        name = f"{name}.{_PARTS[parameter.part]}.{parameter.dimension}"
    value = call.numbers[name]
    if parameter.type == "f32":
        return float(value)
    if isinstance(value, float):
        # A number that the user's annotation makes an integer type of other bits is not one.
        raise ValueError(f"{parameter.argument!r} is an integer, {parameter.element}, got {value}")
    return int(value) & ((1 << (64 if parameter.type == "u64" else 32)) - 1)


def _described(call: Call, argument: str, part: str) -> tuple[int, ...]:
    found: list[int] = []
    while (key := f"{argument}.{part}.{len(found)}") in call.numbers:
        found.append(int(call.numbers[key]))
    return tuple(found)


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    steps = [1]
    for size in reversed(shape[1:]):
        steps.insert(0, steps[0] * size)
    return tuple(steps)
