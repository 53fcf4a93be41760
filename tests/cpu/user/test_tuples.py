"""Calls with tuples on a device: what is bound, what a call seen before looks at, and what it keeps."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import louver
from louver.compile.signature import parameter_name
from louver.user.hints import Hints
from louver.user.jit_kernel import JitKernel
from support.fake_gpu import FakeGpu, FakeTorch, Map, Tensor
from support.triton.tuples import LARGE, Sizes, tuple_source

M, N, K = 200, 96, 256
GRID = (2, 2)


@pytest.fixture
def s(rng: np.random.Generator) -> louver.SparseTensor:
    return louver.compress(louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4"), "2:4")


@pytest.fixture
def kernel(gpu: FakeGpu, torch: FakeTorch) -> JitKernel:
    return JitKernel(tuple_source(), Hints())


def arguments(s: louver.SparseTensor, **changes: Any) -> dict[str, Any]:
    strides = ((N, 1), ((K, 1), (N, 1)))
    return {
        "d": Tensor((M, N)),
        "operands": (s, Tensor((K, N))),
        "sizes": Sizes(M, N, K),
        "strides": strides,
        "scale": (0.5,),
        **LARGE,
        **changes,
    }


def test_elements_are_bound(gpu: FakeGpu, kernel: JitKernel, s: louver.SparseTensor) -> None:
    known = arguments(s)
    kernel[GRID](**known)
    (launch,) = gpu.launches
    assert launch.arguments["b_map"] == Map(known["operands"][1].address, N, K, N * 2)
    assert launch.arguments[parameter_name("scale.0")] == 0.5


def test_a_call_seen_before_looks_at_every_element(gpu: FakeGpu, kernel: JitKernel, s: louver.SparseTensor) -> None:
    known = arguments(s)
    kernel[GRID](**known)
    encoded, calls = gpu.encoded, len(gpu.calls)
    kernel[GRID](**{**known, "operands": tuple(known["operands"])})
    assert gpu.encoded == encoded and [name for name, _ in gpu.calls[calls:]] == ["cuLaunchKernel"]
    kernel[GRID](**{**known, "scale": (2.0,)})
    assert gpu.launches[-1].arguments[parameter_name("scale.0")] == 2.0
    other = Tensor((K, N))
    kernel[GRID](**{**known, "operands": (s, other)})
    assert gpu.launches[-1].arguments["b_map"].address == other.address
    with pytest.raises(ValueError, match=r"for 'operands.0', \[200, 256\], got \[208, 256\]"):
        kernel[GRID](**{**known, "sizes": Sizes(208, N, K)})


def test_computed_grids_see_tuples_of_numbers_whenever_they_are_called(
    gpu: FakeGpu, kernel: JitKernel, s: louver.SparseTensor
) -> None:
    known, seen = arguments(s), list[set[str]]()

    def grid(meta: dict[str, Any]) -> tuple[int, int]:
        seen.append(set(meta))
        return -(-meta["sizes"].rows // meta["BM"]), -(-meta["sizes"][1] // meta["BN"])

    for _ in range(2):
        kernel[grid](**known)
    assert len(gpu.launches) == 2 and seen == [set(known), set(known) - {"d", "operands"}]


def test_nothing_keeps_what_is_in_a_tuple(gpu: FakeGpu, kernel: JitKernel, rng: np.random.Generator) -> None:
    s = louver.compress(louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4"), "2:4")
    known = arguments(s)
    for _ in range(2):
        kernel[GRID](**known)
    alive = [weakref.ref(s), weakref.ref(known["operands"][1]), weakref.ref(known["d"])]
    del s, known
    gc.collect()
    assert [each() for each in alive] == [None] * 3


def test_parameters_of_elements_are_those_of_no_other_argument() -> None:
    names = ["a.0", "a.1", "a.0.1", "a_0", "a.b_c", "a_b.c", "a.b.c", "own1_a1_0", "own_a", "größe.0", "a_.b", "a._b"]
    made = [parameter_name(name) for name in names]
    assert len(set(made)) == len(names) and made[0] == "own1_a1_0" and all(name.isascii() for name in made)
    assert all(name.isidentifier() for name in made)
