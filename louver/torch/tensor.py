"""`louver.torch.SparseTensor`: a sparse matrix as a PyTorch tensor, for inference and gradients of the dense operand."""

# pyright: reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from louver.formats.pattern import Pattern
from louver.torch.columns import check_arrays
from louver.torch.core import compressed
from louver.torch.known import known_products
from louver.torch.operators import OPS, multiply

_ATEN: Any = torch.ops.aten

# PyTorch 2.6 has no such question.
_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", lambda: False)


class SparseTensor(Tensor):
    """A matrix [rows, columns] that keeps a pattern along its last axis, or the transpose of one.

    values, indices: as in Louver's files. pattern: as text. turned: whether it is the transpose [columns, rows].

    It may be an `nn.Parameter` without gradient, as the weight of `torch.nn.Linear`. Products: `F.linear(x, s, bias)`,
    `x @ s.t()`, `s @ b`, `torch.mm`, `torch.addmm`. Also: `to`, `clone`, `t`, `copy_`, rows and columns by slices,
    `narrow` and `torch.cat`. Rows of whole windows share memory, other slices are compressed anew. `of` compresses;
    `to_dense` is the dense tensor, and every other operation names it. To train values, use `louver.torch.SparseLinear`.
    """

    values_: Tensor
    indices_: Tensor
    pattern: str
    turned: bool

    @staticmethod
    def __new__(
        cls: Any, values: Tensor, indices: Tensor, pattern: str, columns: int, turned: bool = False
    ) -> SparseTensor:
        check_arrays(values, indices, Pattern.parse(pattern), columns)
        shape, strides = (values.shape[0], columns), (columns, 1)
        made: Any = Tensor._make_wrapper_subclass(
            cls,
            shape[::-1] if turned else shape,
            strides=strides[::-1] if turned else strides,
            dtype=values.dtype,
            device=values.device,
        )
        made.values_, made.indices_, made.pattern, made.turned = values, indices, str(Pattern.parse(pattern)), turned
        return made

    @classmethod
    def of(cls, w: Tensor, pattern: str | Pattern = "2:4", *, prune: bool = False) -> SparseTensor:
        """The sparse tensor of a matrix that keeps a pattern along its last axis: dense, or of `torch.sparse`'s
        semi-structured tensors.

        prune: prune the matrix first, by magnitude.

        Raises ValueError for a group of too many non-zeros.
        """
        dense = w if type(w) in (Tensor, nn.Parameter) else w.to_dense()
        values, indices, _ = compressed(dense, str(pattern), prune=prune)
        return cls(values, indices, str(pattern), dense.shape[1])

    @property
    def columns(self) -> int:
        """The size of the axis along which the pattern runs."""
        return self.shape[0 if self.turned else 1]

    def to_dense(self, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        """The dense tensor of equal values."""
        dense = OPS.dense(self.values_, self.indices_, self.columns, self.pattern)
        dense = dense.t() if self.turned else dense
        return dense if dtype is None else dense.to(dtype)

    def to_sparse_semi_structured(self) -> Tensor:
        """The tensor of `torch.sparse`, which has one for 2:4 on a GPU. Raises ValueError for another pattern."""
        if self.pattern != "2:4" or self.turned:
            raise ValueError(f"torch.sparse has semi-structured tensors of 2:4 along the last axis, got {self!r}")
        return torch.sparse.to_sparse_semi_structured(self.to_dense())

    def __tensor_flatten__(self) -> tuple[list[str], tuple[str, int, bool]]:
        return ["values_", "indices_"], (self.pattern, self.columns, self.turned)

    @staticmethod
    def __tensor_unflatten__(
        inner: dict[str, Tensor], context: tuple[str, int, bool], outer_size: object, outer_stride: object
    ) -> SparseTensor:
        return SparseTensor(inner["values_"], inner["indices_"], *context)

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return SparseTensor, (self.values_, self.indices_, self.pattern, self.columns, self.turned)

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"louver.torch.SparseTensor({self.pattern}, {self.dtype}, {list(self.shape)}, {self.device})"

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is _F_LINEAR and not kwargs:
            # The fewest questions first: they take host time of every call.
            y = _known(*args)
            if y is not None:
                return y
        call = _PRODUCTS.get(func)
        if call is not None and not (kwargs and "out" in kwargs) and not _exporting():
            return call(*args, **kwargs) if kwargs else call(*args)
        if func in _ASKS_FOR_GRADIENTS and args[1:] != (False,) and kwargs != {"requires_grad": False}:
            raise RuntimeError(
                "a SparseTensor has no gradient of its values, got one that is to require grad: make the parameter with "
                "requires_grad=False, or train a louver.torch.SparseLinear"
            )
        # The class method of `Tensor` would make sparse tensors of dense results.
        with torch._C.DisableTorchFunctionSubclass():  # pyright: ignore[reportPrivateUsage]
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        handler = _TABLE.get(func)
        if handler is None:
            raise RuntimeError(f"{func} takes no sparse tensor: call to_dense() on it first")
        return handler(*args, **(kwargs or {}))


# --- products ------------------------------------------------------------------------------------------------------------
def _known(input: Any, weight: Any, bias: Any = None) -> Tensor | None:
    """`_linear` of a call of the kind of the last one, else None."""
    if type(weight) is not SparseTensor or weight.turned:
        return None
    return _launched(input, weight.values_, weight.indices_, bias, weight.pattern, None, False)


def _linear(input: Any, weight: Any, bias: Any = None) -> Tensor:
    if not isinstance(weight, SparseTensor) or weight.turned or isinstance(input, SparseTensor):
        raise _no_product()
    return multiply(input, weight.values_, weight.indices_, bias, weight.pattern)


def _matmul(a: Any, b: Any) -> Tensor:
    if isinstance(b, SparseTensor) and b.turned:
        return _linear(a, b.t())
    if isinstance(a, SparseTensor) and not a.turned and not isinstance(b, SparseTensor):
        return _linear(b, a) if b.dim() == 1 else _linear(b.mT, a).mT
    raise _no_product()


def _rmatmul(b: Any, a: Any) -> Tensor:
    return _matmul(a, b)


def _addmm(bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Tensor:
    if bias.dim() == 1 and isinstance(b, SparseTensor) and b.turned and (alpha, beta) == (1, 1):
        return _linear(a, b.t(), bias)
    return beta * bias + alpha * _matmul(a, b)


def _no_product() -> RuntimeError:
    return RuntimeError(
        "products of a sparse matrix s [out, in] are F.linear(x, s), x @ s.t() and s @ b with a dense x or b, along the axis of the "
        "pattern: call to_dense() for another one"
    )


_PRODUCTS: dict[Any, Callable[..., Tensor]] = {
    functional.linear: _linear,
    **dict.fromkeys((torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, Tensor.mm), _matmul),
    Tensor.__rmatmul__: _rmatmul,
    **dict.fromkeys((torch.addmm, Tensor.addmm), _addmm),
}
"""Products without a way through the dispatcher."""

_launched = known_products().launched

_F_LINEAR: Any = functional.linear
_GRADIENT: Any = Tensor.requires_grad
_ASKS_FOR_GRADIENTS = (Tensor.requires_grad_, _GRADIENT.__set__)


# --- operations of the dispatcher --------------------------------------------------------------------------------------------
def _map(op: Any) -> Callable[..., SparseTensor]:
    """An operation on both arrays; dtypes are those of the values."""

    def handler(
        s: SparseTensor, *args: Any, dtype: Any = None, memory_format: Any = None, **kwargs: Any
    ) -> SparseTensor:
        of_values = kwargs if dtype is None else {**kwargs, "dtype": dtype}
        return SparseTensor(
            op(s.values_, *args, **of_values), op(s.indices_, *args, **kwargs), s.pattern, s.columns, s.turned
        )

    return handler


def _turn(s: SparseTensor) -> SparseTensor:
    return SparseTensor(
        _ATEN.alias.default(s.values_), _ATEN.alias.default(s.indices_), s.pattern, s.columns, not s.turned
    )


def _transpose(s: SparseTensor, first: int, second: int) -> SparseTensor:
    return s if first % 2 == second % 2 else _turn(s)


def _permute(s: SparseTensor, axes: Sequence[int]) -> SparseTensor:
    return _transpose(s, 0, axes[0])


def _copy(s: SparseTensor, other: Any, non_blocking: bool = False) -> SparseTensor:
    same = isinstance(other, SparseTensor) and (other.pattern, other.shape, other.turned) == (
        s.pattern,
        s.shape,
        s.turned,
    )
    if not same:
        raise ValueError(f"a sparse tensor is copied from one of its shape and pattern, got {other!r} for {s!r}")
    s.values_.copy_(other.values_, non_blocking=non_blocking)
    s.indices_.copy_(other.indices_, non_blocking=non_blocking)
    return s


def _slice(
    s: SparseTensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> SparseTensor:
    size = s.shape[dim]
    first, last, _ = slice(start, end).indices(size)
    height = Pattern.parse(s.pattern).length
    along_rows = dim % 2 == (1 if s.turned else 0)
    if step == 1 and along_rows and first % height == 0 and (last % height == 0 or last == size):
        windows = slice(first // height, -(-last // height))
        return SparseTensor(s.values_[first:last], s.indices_[windows], s.pattern, s.columns, s.turned)
    return _again(_ATEN.slice.Tensor(s.to_dense(), dim, first, last, step), s)


def _cat(tensors: Sequence[Any], dim: int = 0) -> SparseTensor:
    first = next(s for s in tensors if isinstance(s, SparseTensor))
    alike = [isinstance(s, SparseTensor) and (s.pattern, s.turned) == (first.pattern, first.turned) for s in tensors]
    if not all(alike):
        raise ValueError(f"sparse tensors of one pattern are joined, got {list(tensors)}: call to_dense() on them")
    height = Pattern.parse(first.pattern).length
    whole = all(s.values_.shape[0] % height == 0 and s.columns == first.columns for s in tensors[:-1])
    if dim % 2 == (1 if first.turned else 0) and whole and tensors[-1].columns == first.columns:
        values, indices = (torch.cat([getattr(s, name) for s in tensors]) for name in ("values_", "indices_"))
        return SparseTensor(values, indices, first.pattern, first.columns, first.turned)
    return _again(torch.cat([s.to_dense() for s in tensors], dim), first)


def _again(dense: Tensor, like: SparseTensor) -> SparseTensor:
    """A dense matrix compressed as `like` is."""
    made = SparseTensor.of((dense.t() if like.turned else dense).contiguous(), like.pattern)
    return _turn(made) if like.turned else made


def _equal(a: Any, b: Any) -> bool:
    return bool(torch.equal(*(s.to_dense() if isinstance(s, SparseTensor) else s for s in (a, b))))


_EACH = (_ATEN.detach, _ATEN.alias, _ATEN.clone, _ATEN._to_copy, _ATEN.empty_like, _ATEN.zeros_like)

_TABLE: dict[Any, Callable[..., Any]] = {
    **{op.default: _map(op.default) for op in _EACH},
    _ATEN.t.default: _turn,
    _ATEN.transpose.int: _transpose,
    _ATEN.permute.default: _permute,
    _ATEN.copy_.default: _copy,
    _ATEN.slice.Tensor: _slice,
    _ATEN.cat.default: _cat,
    _ATEN.equal.default: _equal,
    _ATEN.linear.default: _linear,
    _ATEN.mm.default: _matmul,
    _ATEN.addmm.default: _addmm,
}

torch.serialization.add_safe_globals([SparseTensor])
