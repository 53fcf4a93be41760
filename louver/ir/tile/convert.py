"""The conversion of a tile to another encoding."""

from __future__ import annotations

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition
from xdsl.utils.exceptions import VerifyException

from louver.ir.tile.compute import Moving
from louver.ir.tile.encodings import Encoding
from louver.ir.tile.types import register_encoding, tensor_of


@irdl_op_definition
class ConvertLayoutOp(Moving):
    """The same elements in other registers, lanes and warps, or in shared memory."""

    name = "ttg.convert_layout"

    def __init__(self, src: SSAValue, encoding: Encoding) -> None:
        tensor = tensor_of(src)
        result: TensorType[Attribute] = TensorType(tensor.element_type, tensor.get_shape(), encoding)
        super().__init__(operands=[src], result_types=[result])

    def verify_(self) -> None:
        source, result = tensor_of(self.src), tensor_of(self.result)
        if (source.element_type, source.get_shape()) != (result.element_type, result.get_shape()):
            raise VerifyException(f"a tile keeps its elements in other registers, got {source} to {result}")
        if register_encoding(source) is None or register_encoding(result) is None:
            raise VerifyException(f"tiles in registers have encodings, got {source} to {result}")
