"""Types of arrays in annotations: a result is an array of the library of its operand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    class DLPackArray(Protocol):
        """An array of another library, such as CuPy's, JAX's and Louver's own."""

        def __dlpack__(self, *, stream: Any = None) -> Any: ...

    Array = TypeVar("Array", NDArray[Any], Tensor, DLPackArray)
    """The type of an operand and of the result. Element types are of the call, so NumPy's have none here."""
