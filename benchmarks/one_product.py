"""Checks one small product exactly, without torch: `python benchmarks/one_product.py M N K A B` (A, B: element types).

The sanitizer runs this program. It checks linear to every output type, and with each option of the library in its first
form. It checks matmul with an N-major operand that is copied first, and with one on the device. Exit status 1 if an
element differs from the float64 reference, 3 without a GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import louver
from louver.formats.dtypes import element_type
from louver.formats.tensor import SparseTensor
from louver.frontend.problem import PRODUCTS
from louver.library.reference import exact_product
from louver.runtime.device import Device, current_device
from louver.runtime.memory import DeviceArray
from random_products.expected import Expected, limits
from random_products.options import OPTIONS, Draft, Option, Setting, available

LARGEST_INTEGER = 2
"""Of the data, so that sums are exact in every accumulation type."""

ELSEWHERE = ("gated", "accumulate", "batch", "weights")
"""Options that need other weights, need views of torch tensors, or are not exact."""


def differing(y: NDArray[Any], reference: NDArray[np.float64]) -> int:
    """Number of elements that differ from the reference, rounded once."""
    element = element_type(y.dtype)
    clipped = np.clip(reference, *limits(element.name))
    rounded = clipped if element.floating else np.rint(clipped)
    return int((y.astype(np.float64) != rounded.astype(y.dtype).astype(np.float64)).sum())


def draw(rng: np.random.Generator, shape: tuple[int, ...], element: str) -> NDArray[Any]:
    least = 0 if element == "u8" else -LARGEST_INTEGER
    return rng.integers(least, LARGEST_INTEGER + 1, shape).astype(element_type(element).numpy)


def with_option(option: Option, setting: Setting, s: SparseTensor, x: NDArray[Any], plain: NDArray[np.float64]) -> int:
    """Number of wrong elements of linear with the first form of an option."""
    m, n = plain.shape
    result = np.zeros((n, m), element_type(setting.out).numpy)

    def place(array: NDArray[Any], element: str) -> tuple[Any, Any]:
        given = np.asarray(array).astype(element_type(element).numpy)
        return given, given.astype(np.float64)

    expected = Expected(np, plain, np.zeros_like(plain))
    draft = Draft(np.random.default_rng(7), setting, m, n, True, place, expected, result)
    option.apply(draft, option.forms(setting)[0])
    y = louver.linear(x, s, out_dtype=setting.out, **draft.arguments)
    return differing(y.T, draft.expected.value)


def products(m: int, n: int, k: int, a_type: str, b_type: str) -> dict[str, int]:
    """Number of wrong elements by product."""
    rng = np.random.default_rng(m + n + k)
    a = louver.prune(draw(rng, (m, k), a_type), "2:4")
    s, b = louver.compress(a, "2:4"), draw(rng, (k, n), b_type)
    plain, _ = exact_product(a, b)
    padded = np.zeros((k, -(-n // 16) * 16), b.dtype)
    padded[:, :n] = b
    whole, _ = exact_product(a, padded)
    found = {
        f"linear to {out}": differing(louver.linear(DeviceArray.of(b.T), s, out_dtype=out).numpy().T, plain)
        for out in PRODUCTS[a_type, b_type]
    }
    found["matmul"] = differing(louver.matmul(s, b), plain)
    found["matmul, aligned rows"] = differing(louver.matmul(s, DeviceArray.of(padded)).numpy(), whole)
    for option in OPTIONS:
        integer = option.name == "integer bias"
        setting = Setting("linear", a_type, b_type, "s32" if integer else "f32", "2:4")
        # Sums of integers take a bias of another type only with other options.
        lone = element_type(a_type).floating or option.name != "bias"
        if option.name not in ELSEWHERE and lone and available(option, "linear") and option.forms(setting):
            found[f"linear with {option.name}"] = with_option(option, setting, s, np.ascontiguousarray(b.T), plain)
    return found


def planned(m: int, n: int, k: int, a_type: str, b_type: str, target: str) -> dict[str, int]:
    """Number of wrong elements of another target's kernels, by output type."""
    rng = np.random.default_rng(m + n + k)
    a, x = louver.prune(draw(rng, (m, k), a_type), "2:4"), draw(rng, (n, k), b_type)
    plain, _ = exact_product(a, np.ascontiguousarray(x.T))
    s, tokens, found = louver.compress(a, "2:4"), DeviceArray.of(x), dict[str, int]()
    for out in PRODUCTS[a_type, b_type]:
        plan = louver.plan("linear", s, n, like=tokens, out_dtype=out, target=target)
        found[f"{target} to {out}"] = differing(plan(tokens).numpy().T, plain)
    return found


def verdict(count: Callable[[], dict[str, int]]) -> int:
    """Print the counts of wrong results by name. Returns the exit status: 3 without a GPU, 1 for a wrong result, else 0."""
    found = current_device()
    if not isinstance(found, Device):
        print(found)
        return 3
    counted = count()
    wrong = {name: differ for name, differ in counted.items() if differ}
    for name, differ in wrong.items():
        print(f"{name}: {differ} wrong")
    if not wrong:
        print(f"right: {', '.join(counted)}")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("m", "n", "k"):
        parser.add_argument(name, type=int)
    for name in ("a", "b"):
        parser.add_argument(name, choices=sorted({pair[0] for pair in PRODUCTS}))
    parser.add_argument("--target", help="run the kernel of another target, such as sm_80")
    args = parser.parse_args()
    given = args.m, args.n, args.k, args.a, args.b
    return verdict(lambda: planned(*given, args.target) if args.target else products(*given))


if __name__ == "__main__":
    raise SystemExit(main())
