"""One small product checked exactly, without torch: `python benchmarks/one_product.py M N K DTYPE`.

What the sanitizer runs: linear with bias, and matmul with a dense operand that is N-major, that is copied first, and that
is on the device already. Exit status 1 when an element differs from the float64 reference, 3 without a GPU.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

import louver
from louver.formats.dtypes import element_type
from louver.kernels.reference import exact_product
from louver.runtime.device import Device, current_device
from louver.runtime.memory import DeviceArray


def differing(y: NDArray[Any], reference: NDArray[np.float64]) -> int:
    """Elements that are not the reference, rounded once."""
    return int((y != reference.astype(y.dtype)).sum())


def products(m: int, n: int, k: int, dtype: str) -> dict[str, int]:
    """How many elements differ, by product."""
    rng = np.random.default_rng(m + n + k)
    numpy = element_type(dtype).numpy
    a = louver.prune(rng.integers(-4, 5, (m, k)).astype(numpy), "2:4")
    s = louver.compress(a, "2:4")
    b, bias = rng.integers(-4, 5, (k, n)).astype(numpy), rng.integers(-4, 5, m).astype(numpy)
    plain, _ = exact_product(a, b)
    biased, _ = exact_product(a, b, bias)
    padded = np.zeros((k, -(-n // 8) * 8), numpy)
    padded[:, :n] = b
    whole, _ = exact_product(a, padded)
    return {
        "linear with bias": differing(louver.linear(b.T, s, bias).T, biased),
        "linear to f32": differing(louver.linear(DeviceArray.of(b.T), s, out_dtype="f32").numpy().T, plain),
        "matmul": differing(louver.matmul(s, b), plain),
        "matmul, aligned rows": differing(louver.matmul(s, DeviceArray.of(padded)).numpy(), whole),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("m", "n", "k"):
        parser.add_argument(name, type=int)
    parser.add_argument("dtype", choices=["f16", "bf16"])
    args = parser.parse_args()
    found = current_device()
    if not isinstance(found, Device):
        print(found)
        return 3
    wrong = {name: count for name, count in products(args.m, args.n, args.k, args.dtype).items() if count}
    for name, count in wrong.items():
        print(f"{name}: {count} elements differ")
    if not wrong:
        print("exact")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
