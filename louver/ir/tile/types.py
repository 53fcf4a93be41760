"""Types and attributes of tile IR: pointers and descriptors of Triton, and the sparse encoding of a tensor type.

A sparse tensor is a dense tensor type with an encoding: `tensor<32x64xf16, #tt.sparse<"NV24">>` has 32×64 elements, of
which only some are stored.

The number of a constant tensor is read from its bytes. xDSL would decode every element, and a tile has thousands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    FixedBitwidthType,
    NoneAttr,
    StringAttr,
    TensorType,
)
from xdsl.ir import Attribute, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from louver.formats.pattern import KERNELS, Pattern, kind_of
from louver.ir.tile.elements import BYTE_FLOATS, ELEMENTS
from louver.ir.tile.encodings import Encoding
from louver.isa.rule import RuleError

AnyTensor: TypeAlias = TensorType[Attribute]


def as_tensor(type_: Attribute) -> AnyTensor | None:
    """The type if it is a ranked tensor; else None."""
    return cast(AnyTensor, type_) if isinstance(type_, TensorType) else None


def element_of(type_: Attribute) -> Attribute:
    """A tensor's element type, or the type of a scalar."""
    tensor = as_tensor(type_)
    return type_ if tensor is None else tensor.element_type


def element_bits(type_: Attribute) -> int:
    """Bits of a number, or of each number of a tensor, with unused ones of a float's byte."""
    element = element_of(type_)
    assert isinstance(element, FixedBitwidthType)
    return 8 if element in BYTE_FLOATS else element.bitwidth


def memory_bytes(type_: Attribute) -> int:
    """Bytes of a scalar in memory, or of each element of a tensor. Types of no fixed width count as pointers."""
    element = element_of(type_)
    return element.size if isinstance(element, FixedBitwidthType) else 8


def tensor_of(value: SSAValue) -> AnyTensor:
    """The type of a value that must be a ranked tensor. Raises TypeError for others."""
    tensor = as_tensor(value.type)
    if tensor is None:
        raise TypeError(f"expected a tensor, got {value.type}")
    return tensor


def register_encoding(type_: Attribute) -> Encoding | None:
    """The encoding of a tensor; None before `assign-encodings` has set it, and for other types."""
    tensor = as_tensor(type_)
    return tensor.encoding if tensor is not None and isinstance(tensor.encoding, Encoding) else None


def tensor_like(tensor: AnyTensor, element: Attribute) -> AnyTensor:
    """A dense tensor type with another element type, and the same shape and registers."""
    return TensorType(element, tensor.get_shape(), register_encoding(tensor) or NoneAttr())


@dataclass(frozen=True, slots=True)
class SparseFormat:
    """The meaning of the name of a sparse encoding.

    pattern: the name in Louver. The pattern is along the axis that a product sums.
    group: elements of a group along that axis.
    elements: the element types that are multiplied in this pattern.
    length: rows that keep the same elements of a group.
    """

    pattern: str
    group: int
    elements: tuple[str, ...]
    length: int = 1


FORMATS: dict[str, SparseFormat] = {
    "NV24": SparseFormat("2:4", 4, tuple(each for each in KERNELS["products"]["2:4"] if each in ELEMENTS)),
    "NV12": SparseFormat("1:2", 2, KERNELS["products"]["1:2"]),
}
"""Sparse encodings that the hardware multiplies, by name.

Source: PTX ISA, sparse matrix storage of wgmma (tf32 is 1:2, all others are 2:4).
"""


def vector_format(name: str) -> SparseFormat | None:
    """The format of a vector pattern, in the notation of `louver.formats.pattern` ("2:4@16", "2:8"); None for other
    texts.

    It is also None for patterns that the hardware multiplies.
    """
    try:
        pattern = Pattern.parse(name)
    except ValueError:
        return None
    if str(pattern) != name or any(format_.pattern == name for format_ in FORMATS.values()):
        return None
    return SparseFormat(name, pattern.m, KERNELS["products"][kind_of(pattern)], pattern.length)


@irdl_attr_definition
class SparseAttr(ParametrizedAttribute):
    """The encoding of a sparse tensor or of a pointer to one: `#tt.sparse<"NV24">`, or `#tt.sparse<"2:4@16">` for
    vectors.
    """

    name = "tt.sparse"
    format_name: StringAttr

    @classmethod
    def of_pattern(cls, pattern: str) -> SparseAttr:
        """The encoding of a pattern such as "2:4". Raises ValueError for a pattern without an encoding."""
        for name, format_ in FORMATS.items():
            if format_.pattern == pattern:
                return cls(StringAttr(name))
        if vector_format(pattern) is not None:
            return cls(StringAttr(pattern))
        known = ", ".join(format_.pattern for format_ in FORMATS.values())
        raise RuleError(f"the patterns with an encoding are {known} and vectors N:M@L, got {pattern!r}")

    @property
    def format(self) -> SparseFormat:
        """The format of the name."""
        name = self.format_name.data
        found = FORMATS.get(name) or vector_format(name)
        if found is None:
            raise VerifyException(
                f"a sparse encoding is one of {', '.join(map(repr, FORMATS))} or of vectors, such as '2:4@16', got {name!r}"
            )
        return found

    def verify(self) -> None:
        _ = self.format

    def verify_element(self, element: Attribute) -> None:
        """Raise VerifyException unless tensors of `element` may have this encoding."""
        allowed = self.format.elements
        if element not in [ELEMENTS[name] for name in allowed]:
            raise VerifyException(f"{self} is for elements of {', '.join(allowed)}, got {element}")


@irdl_attr_definition
class CachePolicyAttr(ParametrizedAttribute):
    """The cache policy of an access, as in Triton 3.9. Louver ignores it.

    `#tt.cache_policy<cache_modifier = none, eviction_policy = evict_last>`.
    """

    name = "tt.cache_policy"
    words: DictionaryAttr

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> tuple[DictionaryAttr]:
        """Parse the words, by name."""
        pairs = parser.parse_comma_separated_list(parser.Delimiter.ANGLE, lambda: _parse_word(parser))
        return (DictionaryAttr(dict(pairs)),)

    def print_parameters(self, printer: Printer) -> None:
        """Print the words with their names."""
        words = cast("dict[str, StringAttr]", self.words.data)
        with printer.in_angle_brackets():
            printer.print_list(words.items(), lambda pair: printer.print_string(f"{pair[0]} = {pair[1].data}"))


def _parse_word(parser: AttrParser) -> tuple[str, StringAttr]:
    name = parser.parse_identifier()
    parser.parse_punctuation("=")
    return name, StringAttr(parser.parse_identifier())


def sparse_encoding(type_: Attribute) -> SparseAttr | None:
    """The sparse encoding of a tensor, pointer or descriptor type; None for dense ones and for other types."""
    match type_:
        case DescriptorType():
            return sparse_encoding(type_.block)
        case PointerType() if isinstance(type_.encoding, NoneAttr):
            return sparse_encoding(type_.pointee)
        case PointerType():
            encoding = type_.encoding
        case _:
            tensor = as_tensor(type_)
            encoding = None if tensor is None else tensor.encoding
    return encoding if isinstance(encoding, SparseAttr) else None


def _verify_tensor(tensor: AnyTensor) -> None:
    if encoding := sparse_encoding(tensor):
        encoding.verify_element(tensor.element_type)


@irdl_attr_definition
class PointerType(ParametrizedAttribute, TypeAttribute):
    """A pointer to global memory: `!tt.ptr<f16>`, `!tt.ptr<f16, #tt.sparse<"NV24">>`, or to a tile,
    `!tt.ptr<tensor<…>>`.

    For a pointer to a tile, the tensor type has the encoding.
    """

    name = "tt.ptr"
    pointee: Attribute
    encoding: Attribute

    def __init__(self, pointee: Attribute, encoding: Attribute | None = None) -> None:
        super().__init__(pointee, NoneAttr() if encoding is None else encoding)

    def verify(self) -> None:
        if tensor := as_tensor(self.pointee):
            if not isinstance(self.encoding, NoneAttr):
                raise VerifyException("a pointer to a tile has its encoding in the tensor type, got one after it")
            _verify_tensor(tensor)
        elif isinstance(self.encoding, SparseAttr):
            self.encoding.verify_element(self.pointee)
        elif not isinstance(self.encoding, NoneAttr):
            raise VerifyException(f"a pointer's encoding is #tt.sparse<…>, got {self.encoding}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            pointee = parser.parse_type()
            encoding = parser.parse_attribute() if parser.parse_optional_punctuation(",") else NoneAttr()
        return [pointee, encoding]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_attribute(self.pointee)
            if not isinstance(self.encoding, NoneAttr):
                printer.print_string(", ")
                printer.print_attribute(self.encoding)


@irdl_attr_definition
class DescriptorType(ParametrizedAttribute, TypeAttribute):
    """A tensor in global memory that is accessed by blocks: `!tt.tensordesc<tensor<128x64xf16>>`.

    The form of newer versions of Triton, `!tt.tensordesc<128x64xf16>`, is read too.
    """

    name = "tt.tensordesc"
    block: AnyTensor

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            full = parser.parse_optional_type()
            if full is None:
                shape, element = parser.parse_ranked_shape()
                full = TensorType(element, shape)
            return [full]

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_attribute(self.block)

    def verify(self) -> None:
        rank = self.block.get_num_dims()
        if not 1 <= rank <= 5:
            raise VerifyException(f"a descriptor has 1 to 5 dimensions, got {rank}")
        _verify_tensor(self.block)


def loaded_type(pointer: Attribute) -> Attribute:
    """The type of a load through `pointer`: a tile for a block pointer, a tensor for a tensor of pointers, or a scalar.

    Raises VerifyException for a type that is not a pointer.
    """
    if isinstance(pointer, PointerType):
        return pointer.pointee
    if tensor := as_tensor(pointer):
        element = tensor.element_type
        if isinstance(element, PointerType):
            encoding = register_encoding(tensor) or element.encoding
            return TensorType(element.pointee, tensor.get_shape(), encoding)
    raise VerifyException(f"memory is reached by !tt.ptr<…> or by a tensor of such pointers, got {pointer}")


def is_splat(numbers: DenseIntOrFPElementsAttr) -> bool:
    """Whether all elements have the same bits."""
    data: bytes = numbers.data.data
    first = data[: _size(numbers)]
    return data == first * (len(data) // len(first))


def first_of(numbers: DenseIntOrFPElementsAttr) -> int | float:
    """The first element."""
    return cast(Any, numbers.get_element_type()).unpack(numbers.data.data[: _size(numbers)], 1)[0]


def splat_of(numbers: DenseIntOrFPElementsAttr) -> int | float | None:
    """The number of all elements; None if their bits differ."""
    return first_of(numbers) if is_splat(numbers) else None


def _size(numbers: DenseIntOrFPElementsAttr) -> int:
    """Bytes of an element."""
    return cast(Any, numbers.get_element_type()).compile_time_size
