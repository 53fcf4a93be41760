"""Operations that convert a sparse tile to a dense one, and select the kept elements of a dense tile."""

from __future__ import annotations

from xdsl.dialects.builtin import I32, IntegerAttr, TensorType, i16, i32
from xdsl.ir import SSAValue
from xdsl.irdl import (
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from louver.ir.tile.metadata import METADATA_ROWS, WORD_ENTRIES, divides, metadata_shape
from louver.ir.tile.parts import KEPT, Parts
from louver.ir.tile.types import AnyTensor, element_bits, sparse_encoding, tensor_of
from louver.isa.metadata import MAPS


@irdl_op_definition
class DecompressOp(IRDLOperation):
    """Convert a sparse tile, with a sparse type or decomposed, to the dense tile.

    A decomposed tile has `metadata` and `columns`. Then `src` has only the kept values.

    src: [M, K/2], or [K/2, M] if `columns` is 0.
    columns: the dimension of K.
    metadata: i16, `metadata_shape(M, K)` of the same elements, or its transpose, as for a dot.
    bits: the bits of the elements of the dots for which it is laid out, if they differ from those of the values.
    """

    name = "tt.decompress"
    src = operand_def(TensorType)
    metadata = opt_operand_def(TensorType)
    columns = opt_prop_def(IntegerAttr[I32])
    bits = opt_prop_def(IntegerAttr[I32])
    result = result_def(TensorType)
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$src (`,` $metadata^)? attr-dict `:` type($src) (`,` type($metadata)^)? `->` type($result)"

    def __init__(self, src: SSAValue, metadata: SSAValue | None = None, columns: int | None = None) -> None:
        tensor = tensor_of(src)
        shape = list(tensor.get_shape())
        properties: dict[str, IntegerAttr[I32]] = {}
        if columns is not None:
            shape[columns] *= KEPT
            properties["columns"] = IntegerAttr(columns, i32)
        super().__init__(
            operands=[src, metadata],
            properties=properties,
            result_types=[TensorType(tensor.element_type, shape)],
        )

    @property
    def parts(self) -> Parts:
        """The layouts of values and metadata of a decomposed tile."""
        assert self.columns is not None
        bits = element_bits(self.src.type) if self.bits is None else self.bits.value.data
        return Parts.of(bits, self.columns.value.data)

    def verify_(self) -> None:
        source, result = tensor_of(self.src), tensor_of(self.result)
        if (self.metadata is None) != (self.columns is None):
            raise VerifyException(
                "a tile is decompressed with metadata and the dimension of its columns, or with neither of the two"
            )
        if self.metadata is None or self.columns is None:
            if sparse_encoding(source) is None:
                raise VerifyException(f"a tile that is decompressed is sparse, got {source}")
            expected = list(source.get_shape())
        else:
            expected = self._decomposed(source, tensor_of(self.metadata), self.columns.value.data)
        if sparse_encoding(result) or (source.element_type, expected) != (
            result.element_type,
            list(result.get_shape()),
        ):
            raise VerifyException(f"a decompressed tile is dense, {expected} of {source.element_type}, got {result}")

    @staticmethod
    def _decomposed(values: AnyTensor, metadata: AnyTensor, columns: int) -> list[int]:
        expected = list(values.get_shape())
        if len(expected) != 2 or columns not in (0, 1):
            raise VerifyException(f"a matrix is decompressed along dimension 0 or 1, got {values} and {columns}")
        expected[columns] *= KEPT
        size = expected[1 - columns], expected[columns]
        if not divides(size, values.element_type):
            raise VerifyException(
                f"metadata is for whole rows of 16 and whole words of K, got {list(size)} of {values.element_type}"
            )
        shape = metadata_shape(*size, values.element_type)
        wanted = TensorType(i16, shape if columns else shape[::-1], metadata.encoding)
        if metadata != wanted:
            raise VerifyException(f"the metadata of this tile is {wanted}, got {metadata}")
        return expected


@irdl_op_definition
class CompressOp(IRDLOperation):
    """Select the elements of a dense tile at the places where a sparse tile keeps elements.

    The result is [M, K/2] for a tile [M, K], or [K/2, N] for [K, N] if `columns` is 0.

    metadata: the metadata of the sparse tile, as for `DecompressOp`.
    bits: the bits of the elements for which it is laid out.
    """

    name = "tt.compress"
    src = operand_def(TensorType)
    metadata = operand_def(TensorType)
    columns = prop_def(IntegerAttr[I32])
    bits = prop_def(IntegerAttr[I32])
    result = result_def(TensorType)
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "$src `,` $metadata attr-dict `:` type($src) `,` type($metadata) `->` type($result)"

    def __init__(self, src: SSAValue, metadata: SSAValue, columns: int, bits: int) -> None:
        tensor = tensor_of(src)
        shape = list(tensor.get_shape())
        shape[columns] //= KEPT
        super().__init__(
            operands=[src, metadata],
            properties={"columns": IntegerAttr(columns, i32), "bits": IntegerAttr(bits, i32)},
            result_types=[TensorType(tensor.element_type, shape)],
        )

    @property
    def parts(self) -> Parts:
        """The layouts of the kept elements and of the metadata."""
        return Parts.of(self.bits.value.data, self.columns.value.data)

    def verify_(self) -> None:
        source, result, metadata = map(tensor_of, (self.src, self.result, self.metadata))
        columns, bits = self.columns.value.data, self.bits.value.data
        if source.get_num_dims() != 2 or columns not in (0, 1) or bits not in MAPS:
            raise VerifyException(
                f"a matrix is compressed along dimension 0 or 1, by the metadata of {list(MAPS)} bits, got {source}"
            )
        expected = list(source.get_shape())
        words = -(-expected[1 - columns] // METADATA_ROWS), -(-expected[columns] // MAPS[bits].columns) * WORD_ENTRIES
        expected[columns] //= KEPT
        if (source.element_type, expected) != (result.element_type, list(result.get_shape())):
            raise VerifyException(f"a compressed tile is {expected} of {source.element_type}, got {result}")
        if (metadata.element_type, tuple(metadata.get_shape())) != (i16, words if columns else words[::-1]):
            raise VerifyException(
                f"the metadata of this tile is {list(words)} of i16, or its transpose, got {metadata}"
            )
