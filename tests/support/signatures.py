"""Questions of tests about a kernel's signature."""

from __future__ import annotations

from louver.compile.signature import BoxParameter, Signature


def grid(signature: Signature, m: int, n: int, sms: int, batch: int = 1) -> int:
    """CTAs of a product's launch."""
    assert signature.grid is not None
    return signature.grid.value({"M": m, "N": n, "sms": sms, "batch": batch})


def boxes(signature: Signature) -> tuple[BoxParameter, ...]:
    """Its tensor maps, without those of tails."""
    return tuple(each for each in signature.parameters if isinstance(each, BoxParameter) and each.along is None)


def arguments(signature: Signature) -> tuple[str, ...]:
    """The user's arguments, in order."""
    return tuple(dict.fromkeys(each.argument for each in signature.parameters))
