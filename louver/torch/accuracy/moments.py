"""Second moments of a layer's inputs: what calibration tells about a weight."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from typing import Any, Final

import torch
from torch import Tensor

TOKENS_AT_ONCE: Final = 8192
"""Tokens of one product. Longer sums in f32 would round more, shorter products would be slower."""

_EXACT_IN_TF32: Final = (torch.bfloat16, torch.float16)
"""Types whose values and products TF32 keeps: at most 11 bits of significand, at most 8 of exponent."""


@contextlib.contextmanager
def products(device: torch.device, *, tf32: bool = False) -> Generator[None]:
    """Compute f32 products in f32 (or by TF32), whatever autocast and PyTorch's switches say outside of the block."""
    matmul: Any = torch.backends.cuda.matmul
    name, value = (
        ("fp32_precision", "tf32" if tf32 else "ieee") if hasattr(matmul, "fp32_precision") else ("allow_tf32", tf32)
    )
    before = getattr(matmul, name)
    setattr(matmul, name, value)
    try:
        with torch.autocast(device.type, enabled=False), torch.no_grad():
            yield
    finally:
        setattr(matmul, name, before)


class Moments:
    """Sums over tokens of x xᵀ, and, for the inputs d that the dense model has at the same place, of d xᵀ and d dᵀ.

    features: K, the length of an input. dense: whether `add` gets the dense model's inputs too.
    Products of bf16 and f16 are exact. Products and sums are in f32: the relative error of a diagonal element is under
    2⁻²⁴ · (tokens of a product + number of products), in practice its square root. So each batch has sums of its own,
    and `merge` adds them in f64.
    """

    __slots__ = ("_sums", "count")

    def __init__(self, features: int, device: torch.device | str, *, dense: bool = False) -> None:
        self.count = 0
        """Tokens so far."""
        names = ("gram", "cross", "dense_gram") if dense else ("gram",)
        self._sums = {name: torch.zeros(features, features, device=device) for name in names}

    @classmethod
    def of(cls, count: int, sums: Mapping[str, Tensor]) -> Moments:
        """The moments with this `count` and these `sums`."""
        made = cls(0, "cpu")
        made.count, made._sums = count, dict(sums)
        return made

    @property
    def sums(self) -> Mapping[str, Tensor]:
        """The sums [K, K] by name: "gram" of x xᵀ; with dense inputs also "cross" of d xᵀ, "dense_gram" of d dᵀ."""
        return self._sums

    @property
    def features(self) -> int:
        return self._sums["gram"].shape[0]

    @property
    def dense(self) -> bool:
        """Whether the dense model's inputs are known."""
        return "cross" in self._sums

    @property
    def gram(self) -> Tensor:
        """Mean of x xᵀ over tokens [K, K]; zeros without tokens."""
        return self._mean("gram")

    @property
    def cross(self) -> Tensor:
        """Mean of d xᵀ [K, K]. Without dense inputs, d is x."""
        return self._mean("cross")

    @property
    def dense_gram(self) -> Tensor:
        """Mean of d dᵀ [K, K]. Without dense inputs, d is x."""
        return self._mean("dense_gram")

    def add(self, x: Tensor, dense_x: Tensor | None = None) -> None:
        """Add inputs [..., K] of any floating type, and the dense model's inputs of the same shape.

        Raises ValueError for another shape, and if dense inputs are missing or unexpected; then nothing was added.
        """
        if x.ndim == 0 or x.shape[-1] != self.features or not x.is_floating_point():
            raise ValueError(
                f"inputs are floating [..., {self.features}], got {x.dtype} {list(x.shape)}: add what the layer reads"
            )
        if (dense_x is not None) != self.dense:
            raise ValueError(
                f"moments with dense={self.dense} take {'two inputs' if self.dense else 'one input'}, got {1 + (dense_x is not None)}"
            )
        if dense_x is not None and dense_x.shape != x.shape:
            raise ValueError(f"both models' inputs have one shape, got {list(x.shape)} and dense {list(dense_x.shape)}")
        flat = x.reshape(-1, self.features)
        other = None if dense_x is None else dense_x.reshape(-1, self.features)
        exact = all(t.dtype in _EXACT_IN_TF32 for t in (flat, other) if t is not None)
        with products(self._sums["gram"].device, tf32=exact):
            for at in range(0, len(flat), TOKENS_AT_ONCE):
                self._add(flat[at : at + TOKENS_AT_ONCE], None if other is None else other[at : at + TOKENS_AT_ONCE])
        self.count += len(flat)

    def _add(self, x: Tensor, dense_x: Tensor | None) -> None:
        gram = self._sums["gram"]
        x = x.to(gram.device, torch.float32)
        gram.addmm_(x.mT, x)
        if dense_x is not None:
            dense_x = dense_x.to(gram.device, torch.float32)
            self._sums["cross"].addmm_(dense_x.mT, x)
            self._sums["dense_gram"].addmm_(dense_x.mT, dense_x)

    def _mean(self, name: str) -> Tensor:
        return self._sums.get(name, self._sums["gram"]) / max(self.count, 1)

    def to(self, dtype: torch.dtype) -> Moments:
        """The same moments with sums of another type."""
        return Moments.of(self.count, {name: total.to(dtype) for name, total in self._sums.items()})

    def merge(self, other: Moments) -> None:
        """Add the sums over other tokens, of the same features and inputs."""
        for name, total in self._sums.items():
            total += other._sums[name].to(total.device)
        self.count += other.count

    def check(self) -> None:
        """Raises ArithmeticError if an input was NaN or infinite, or if squares overflow f32."""
        for name, whose in (("gram", "the inputs"), ("dense_gram", "the dense model's inputs")):
            total = self._sums.get(name)
            if total is not None and not bool(total.diagonal().isfinite().all()):
                broken = (~total.diagonal().isfinite()).nonzero()[:, 0].tolist()
                raise ArithmeticError(
                    f"{whose} have NaN, infinity or squares above f32's range, got them in {len(broken)} of {self.features} "
                    f"features, the first is {broken[0]}: check the model and the calibration text"
                )
