"""`louver.jit` on the device: Triton kernels of every style with sparse arguments, odd sizes, poisoned outputs, against float64."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.dtypes import element_type
from louver.library.numerics import compare
from louver.runtime.arrays import view
from louver.runtime.memory import DeviceArray
from louver.user.descriptor import TensorDescriptor
from louver.user.hints import Hints
from louver.user.jit_kernel import JitKernel
from support.device_products import guarded, to_numpy, to_torch
from support.jit import arguments, batch_source, grid_of, kept_kernel, output, result, tile_source
from support.threads import in_threads
from support.triton import has_block_pointers, require_block_pointers
from support.triton.cases import CASES
from support.triton.products import Given, compiled, given
from support.triton.tile_cases import TILE_CASES
from support.triton.tile_runs import RUNS
from support.triton.tuples import tuple_call, tuple_source

pytestmark = pytest.mark.usefixtures("torch")


def on_device(known: dict[str, Any], *, sparse: bool = False) -> dict[str, Any]:
    """The call's arguments with contiguous copies on the device; sparse tensors too if asked; numbers and constants as they are."""
    found: dict[str, Any] = {}
    for name, value in known.items():
        if isinstance(value, np.ndarray):
            found[name] = to_torch(value)
        elif isinstance(value, TensorDescriptor) and isinstance(value.base, np.ndarray):
            found[name] = TensorDescriptor(to_torch(value.base), value.shape, value.strides, value.block_shape)
        elif sparse and isinstance(value, louver.SparseTensor):
            found[name] = value.to("cuda")
        else:
            found[name] = value
    return found


def out_name(name: str) -> str:
    """The argument that the kernel stores to."""
    return next((own for own, role in CASES[name].roles.items() if role == "d"), "d")


def run(kernel: JitKernel, case: Given, padding: int = 0, times: int = 2, **more: Any) -> None:
    """Launch with an output of NaN in a guarded buffer; compare with float64."""
    host = output(case, padding)
    known = on_device(arguments(case, host))
    element = case.product.nest.store.element
    guard = None
    if CASES[case.name].kernel == "given_descriptors":
        out = known["d_tiles"].base
    else:
        if element_type(element).bytes > 1:
            guard = guarded(host.shape, element, gap=padding)
            known[out_name(case.name)] = guard.view
        out = known[out_name(case.name)]
        out.view(sys.modules["torch"].uint8).fill_(255) if guard is None else out.fill_(math.nan)
    for _ in range(times):
        kernel[grid_of(case)](**known, **more)
    case.assert_close(result(case, to_numpy(out).copy()))
    if guard is not None:
        guard.assert_untouched()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("m", "n", "k"), [(1288, 784, 1328), (129, 80, 80)])
def test_every_style_from_its_text(rng: np.random.Generator, name: str, m: int, n: int, k: int) -> None:
    run(kept_kernel(name), given(rng, name, compiled(name), m, n, k))


@pytest.mark.parametrize(("m", "n", "k"), [(1160, 648, 656), (72, 24, 40)])
def test_strides_that_are_products_of_sizes(rng: np.random.Generator, m: int, n: int, k: int) -> None:
    a = louver.prune(rng.standard_normal((5, m, k), np.float32).astype(np.float16), "2:4")
    b = rng.standard_normal((5, n, k), np.float32).astype(np.float16)
    guard = guarded((5 * m, n), "f16")
    known = {"a": louver.compress(a, "2:4"), "b": to_torch(b), "d": guard.view, "E": 5, "M": m, "N": n, "K": k}
    kernel = JitKernel(batch_source("joined_entries"), Hints())
    for _ in range(2):
        kernel[-(-m // 128), -(-n // 64), 5](**known, BM=128, BN=64, BK=64)
    x, y = a.astype(np.float64), b.astype(np.float64)
    agreement = compare(to_numpy(guard.view).reshape(5, m, n), x @ y.mT, np.abs(x) @ np.abs(y).mT, k, "f16")
    assert agreement.ok, agreement
    guard.assert_untouched()


@pytest.mark.parametrize("name", CASES)
def test_every_style_by_triton(rng: np.random.Generator, name: str) -> None:
    pytest.importorskip("triton")
    if CASES[name].oldest:
        require_block_pointers()
    run(louver.jit(CASES[name].function()), given(rng, name, compiled(name), 1160, 648, 656))


@pytest.mark.parametrize("padding", [0, 1, 8])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 7, 8), (127, 63, 24), (300, 90, 136), (256, 128, 64)])
def test_tails_and_padded_outputs(rng: np.random.Generator, m: int, n: int, k: int, padding: int) -> None:
    run(kept_kernel("made_descriptors"), given(rng, "made_descriptors", compiled("made_descriptors"), m, n, k), padding)


def test_operands_that_bulk_copies_cannot_read(rng: np.random.Generator) -> None:
    run(kept_kernel("grouped_pointers"), given(rng, "grouped_pointers", compiled("grouped_pointers"), 300, 131, 136), 3)


def test_sparse_tensors_on_the_gpu(rng: np.random.Generator) -> None:
    for name in ("made_descriptors", "grouped_pointers"):
        case = given(rng, name, compiled(name), 300, 136, 264)
        known = on_device(arguments(case, output(case)), sparse=True)
        for _ in range(2):
            known[out_name(name)].fill_(math.nan)
            kept_kernel(name)[grid_of(case)](**known)
            case.assert_close(result(case, to_numpy(known[out_name(name)]).copy()))


@pytest.mark.parametrize("hints", [{"stages": 3}, {"consumers": 1}, {"store": "direct"}], ids=str)
def test_hints(rng: np.random.Generator, hints: dict[str, Any]) -> None:
    run(kept_kernel("block_pointers"), given(rng, "block_pointers", compiled("block_pointers"), 520, 264, 200), **hints)


@pytest.mark.parametrize("name", TILE_CASES)
def test_what_is_no_product_runs_by_register_tiles(rng: np.random.Generator, name: str) -> None:
    case, kernel = RUNS[name](rng, name), JitKernel(tile_source(name), Hints())
    for sparse in (False, True):
        known = on_device(dict(case.arguments), sparse=sparse)
        kernel[case.grid](**TILE_CASES[name].constexprs, **known)
        for argument, expected in case.expected.items():
            expected.check(to_numpy(known[argument]))


def test_tuples_of_arrays_sizes_and_strides(rng: np.random.Generator) -> None:
    kernel = JitKernel(tuple_source(), Hints())
    for m, n, k in ((520, 264, 200), (129, 80, 80)):
        call = tuple_call(rng, m, n, k)
        s, b = call.arguments["operands"]
        out = to_torch(call.out)
        known = {**call.arguments, "d": out, "operands": (s, to_torch(b))}
        for _ in range(3):
            out.fill_(math.nan)
            kernel[lambda meta, grid=call.grid: grid if meta["sizes"].rows else ()](**known)
            call.check(to_numpy(out))


def test_dense_kernels_are_triton_s(torch: Any) -> None:
    pytest.importorskip("triton")
    from support.triton import kernels

    a, b = (torch.randn(256, 128, device="cuda").half() for _ in range(2))
    d = torch.full((256, 256), math.nan, device="cuda").half()
    sizes = (256, 256, 128, 128, 128, 256)
    if has_block_pointers():
        louver.jit(kernels.block_pointers)[(2, 4)](d, a, b, *sizes, BM=128, BN=64, BK=64, num_warps=4)
    else:
        flat = (256, 256, 128, 128, 1, 1, 128, 256, 1)
        louver.jit(kernels.grouped_pointers)[(8,)](a, b, d, *flat, BM=128, BN=64, BK=64, GROUP=8, ACTIVATION="")
    torch.testing.assert_close(d, (a @ b.t()), rtol=1e-2, atol=1e-2)


def test_dense_descriptors_become_triton_s(torch: Any) -> None:
    pytest.importorskip("triton.tools.tensor_descriptor")
    from support.triton import kernels

    a, b = torch.randn(256, 128, device="cuda").half(), torch.randn(128, 256, device="cuda").half()
    d = torch.full((256, 256), math.nan, device="cuda").bfloat16()
    tiles = [TensorDescriptor.from_tensor(x, block) for x, block in ((d, [128, 64]), (a, [128, 64]), (b, [64, 64]))]
    kernel = louver.jit(kernels.given_descriptors)
    with pytest.raises(ValueError, match="got the hints stages, which are for products of sparse tensors"):
        kernel[(2, 4)](*tiles, 128, BM=128, BN=64, BK=64, stages=4)
    kernel[(2, 4)](*tiles, 128, BM=128, BN=64, BK=64, num_warps=4, num_stages=2)
    torch.testing.assert_close(d, (a.float() @ b.float()).bfloat16(), rtol=2e-2, atol=2e-2)


def test_arrays_in_use_on_two_streams_are_refused(rng: np.random.Generator, torch: Any) -> None:
    case = given(rng, "made_descriptors", compiled("made_descriptors"), 300, 136, 264)
    kernel, known = kept_kernel("made_descriptors"), on_device(arguments(case, output(case)))
    d = DeviceArray.empty((300, 136), element_type("f16"))
    torch.cuda.synchronize()
    refused = pytest.raises(ValueError, match=r"in use on one stream, got .*'d' \(louver\) on stream 0x0")
    with torch.cuda.stream(torch.cuda.Stream()), refused:
        kernel[grid_of(case)](**known | {"d": d})
    kernel[grid_of(case)](**known | {"d": d})
    case.assert_close(view(d).to_numpy())


def test_a_call_waits_for_producers_that_name_no_stream(rng: np.random.Generator, torch: Any) -> None:
    case = given(rng, "made_descriptors", compiled("made_descriptors"), 300, 136, 264)
    kernel, known = kept_kernel("made_descriptors"), on_device(arguments(case, output(case)))
    kernel[grid_of(case)](**known)
    b, theirs, ours = known["b"], torch.cuda.Stream(), torch.cuda.Stream()
    later = b.clone()
    b.zero_()
    known["d"].fill_(math.nan)
    torch.cuda.synchronize()

    class Producer:
        """A library that works on a stream which it does not name."""

        def __dlpack_device__(self) -> Any:
            return b.__dlpack_device__()

        def __dlpack__(self, **more: Any) -> Any:
            with torch.cuda.stream(theirs):
                return b.__dlpack__(**more)

    with torch.cuda.stream(theirs):
        torch.cuda._sleep(50_000_000)
        b.copy_(later)
    with torch.cuda.stream(ours):
        kernel[grid_of(case)](**known | {"b": Producer()})
        found = known["d"].clone()
    ours.synchronize()
    case.assert_close(to_numpy(found).copy())


def test_calls_are_captured_once_prepared(rng: np.random.Generator, torch: Any) -> None:
    case = given(rng, "made_descriptors", compiled("made_descriptors"), 300, 136, 264)
    kernel, known = kept_kernel("made_descriptors", raster=3), on_device(arguments(case, output(case)))
    graph = torch.cuda.CUDAGraph()
    refused = pytest.raises(RuntimeError, match=r"must be compiled before its stream is captured: .*prepare\[grid\]")
    with refused, torch.cuda.graph(torch.cuda.CUDAGraph()):
        kernel[grid_of(case)](**known)
    torch.cuda.synchronize()
    kernel.prepare[grid_of(case)](**known)
    with torch.cuda.graph(graph):
        kernel[grid_of(case)](**known)
    torch.cuda.synchronize()
    assert torch.isnan(known["d"]).all(), "captured, not run"
    for _ in range(3):
        known["d"].fill_(math.nan)
        graph.replay()
        torch.cuda.synchronize()
        case.assert_close(to_numpy(known["d"]).copy())


def test_calls_go_to_the_caller_s_stream(rng: np.random.Generator, torch: Any) -> None:
    """The kernel waits for a copy that is sent to the same stream after a long delay."""
    case = given(rng, "made_descriptors", compiled("made_descriptors"), 300, 136, 264)
    kernel, known = kept_kernel("made_descriptors"), on_device(arguments(case, output(case)))
    kernel[grid_of(case)](**known)
    later = known["b"].clone()
    for _ in range(2):
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        known["b"].zero_()
        known["d"].fill_(math.nan)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
            known["b"].copy_(later)
            kernel[grid_of(case)](**known)
            found = known["d"].clone()
        stream.synchronize()
        case.assert_close(to_numpy(found).copy())


def test_threads_share_a_kernel(rng: np.random.Generator, torch: Any) -> None:
    kernel = kept_kernel("made_descriptors")
    cases = [given(rng, "made_descriptors", compiled("made_descriptors"), 200 + 8 * i, 136, 264) for i in range(4)]

    def work(case: Given) -> Any:
        with torch.cuda.stream(torch.cuda.Stream()):
            known = on_device(arguments(case, output(case)))
            for _ in range(20):
                kernel[grid_of(case)](**known)
            torch.cuda.current_stream().synchronize()
            return to_numpy(known["d"]).copy()

    for case, out in zip(cases, in_threads(work, cases), strict=True):
        case.assert_close(out)


def test_a_wrong_call_is_refused_before_anything_runs(rng: np.random.Generator, torch: Any) -> None:
    case = given(rng, "made_descriptors", compiled("made_descriptors"), 300, 136, 264)
    kernel, known = kept_kernel("made_descriptors"), on_device(arguments(case, output(case)))
    with pytest.raises(ValueError, match="got a grid of 1"):
        kernel[(1,)](**known)
    with pytest.raises(ValueError, match="reaches .* elements of 'd'"):
        kernel[(3, 3)](**known | {"d": known["d"][:-1]})
    torch.cuda.synchronize()
    assert torch.isnan(known["d"]).all()
