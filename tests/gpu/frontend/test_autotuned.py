"""Kernels under `triton.autotune` and `triton.heuristics` on the device: timed on the caller's arrays, which hold one launch's results."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import louver
from louver.user.timing import Event, Trial, measure
from support.autotune import STYLES, Config, decorated, styles
from support.device_products import to_numpy
from support.jit import arguments, grid_of, kept_kernel, output
from support.triton.products import compiled, given
from support.work import calls

M, N, K = 520, 264, 400


pytestmark = pytest.mark.usefixtures("torch")


@pytest.fixture
def kernels(torch: Any) -> Any:
    pytest.importorskip("triton")
    from support.triton import autotuned

    return autotuned


class Operands:
    """A sparse tensor and a dense one on the device, and what their product is."""

    def __init__(self, rng: np.random.Generator, torch: Any, m: int = M, n: int = N, k: int = K) -> None:
        self.sizes = (m, n, k)
        pruned = louver.prune(rng.standard_normal((m, k)).astype(np.float16), "2:4")
        dense = rng.standard_normal((k, n)).astype(np.float16)
        self.sparse, self.b = louver.compress(pruned, "2:4"), torch.from_numpy(dense).cuda()
        self.weight = torch.from_numpy(np.asarray(pruned)).cuda()
        self.expected = pruned.astype(np.float64) @ dense.astype(np.float64)
        self.magnitude = np.abs(pruned).astype(np.float64) @ np.abs(dense).astype(np.float64)
        self.out = torch.full((m, n), math.nan, device="cuda", dtype=torch.float16)

    def known(self, **changes: Any) -> dict[str, Any]:
        m, n, k = self.sizes
        named = {"d": self.out, "a": self.sparse, "b": self.b, "M": m, "N": n, "K": k}
        return {**named, "stride_d": n, "stride_a": k, "stride_b": n, **changes}

    def assert_close(self, out: Any, before: np.ndarray | float = 0.0) -> None:
        found, expected = out.double().cpu().numpy(), self.expected + before
        rounding = 2.0**-11 if out.element_size() == 2 else 2.0**-23
        assert (np.abs(found - expected) <= rounding * np.abs(expected) + 2.0**-20 * self.magnitude + 1e-6).all()


def grid(meta: dict[str, Any]) -> tuple[int, ...]:
    return -(-meta["M"] // meta["BM"]), -(-meta["N"] // meta["BN"]), meta.get("SPLITS", 1)


def choice(kernel: Any) -> Any:
    """The config that was chosen last."""
    return list(kernel._choices.values())[-1]


@pytest.mark.parametrize("name", ["below", "above", "alone", "pruned_early", "modelled"])
@pytest.mark.parametrize("k", [K, 448])
def test_triton_s_own_decorators(rng: np.random.Generator, torch: Any, kernels: Any, name: str, k: int) -> None:
    kernel, operands = louver.jit(getattr(kernels, name)), Operands(rng, torch, k=k)
    for _ in range(3):
        operands.out.fill_(math.nan)
        kernel[grid](**operands.known())
        operands.assert_close(operands.out)


def repeated(launch: Callable[[], None]) -> None:
    for _ in range(5):
        launch()


def test_timing_finds_the_faster_kernel(rng: np.random.Generator, torch: Any) -> None:
    """Five launches take longer than one."""
    case = given(rng, "made_descriptors", compiled("made_descriptors"), 4096, 2048, 4096)
    host = output(case)
    known = {
        name: torch.from_numpy(v).cuda() if isinstance(v, np.ndarray) else v
        for name, v in arguments(case, host).items()
    }
    launch = partial(kept_kernel("made_descriptors")[grid_of(case)], **known)
    launch()
    nothing = (lambda: None, lambda error: None)
    trials = [Trial(partial(repeated, launch), *nothing), Trial(launch, *nothing)]
    times = measure(trials, 0, torch.cuda.current_stream().cuda_stream)
    assert 0 < times[1] < times[0] < 0.1


def test_events_time_what_torch_s_do(torch: Any) -> None:
    stream = torch.cuda.Stream()
    begin, end = Event(0), Event(0)
    theirs = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    with torch.cuda.stream(stream):
        theirs[0].record()
        begin.record(stream.cuda_stream)
        torch.cuda._sleep(20_000_000)
        end.record(stream.cuda_stream)
        theirs[1].record()
    seconds = begin.seconds_until(end)
    torch.cuda.synchronize()
    # Theirs enclose ours; other processes may have the GPU in between.
    enclosing = theirs[0].elapsed_time(theirs[1]) * 1e-3
    assert 0.5 * enclosing < seconds < 1.001 * enclosing
    begin.close()
    end.close()


@pytest.mark.parametrize("first", STYLES)
def test_choices_without_triton(rng: np.random.Generator, torch: Any, first: str) -> None:
    case = given(rng, "made_descriptors", compiled("made_descriptors"), 300, 136, 264)
    kernel, _ = decorated([*styles("unknown", first), *styles(*STYLES, num_warps=8)])
    host = output(case)
    known = {
        name: torch.from_numpy(v).cuda() if isinstance(v, np.ndarray) else v
        for name, v in arguments(case, host).items()
    }
    known = {name: value for name, value in known.items() if name not in ("BM", "BN", "BK")}
    for _ in range(2):
        known["d"].fill_(math.nan)
        kernel[grid_of(case)](**known)
        case.assert_close(to_numpy(known["d"]).copy())
    assert choice(kernel).kwargs["STYLE"] in STYLES


def test_sums_that_are_reset(rng: np.random.Generator, torch: Any, kernels: Any) -> None:
    kernel, operands = louver.jit(kernels.split_k), Operands(rng, torch)
    out = torch.zeros(operands.sizes[:2], device="cuda")
    known = {name: value for name, value in operands.known(d=out).items() if not name.startswith("stride")}
    kernel[grid](**known)
    operands.assert_close(out)
    kernel[grid](**known)
    operands.assert_close(out, operands.expected)
    assert choice(kernel).kwargs["SPLITS"] in (2, 3)


def test_arrays_that_are_restored(rng: np.random.Generator, torch: Any, kernels: Any) -> None:
    kernel, operands = louver.jit(kernels.added_to), Operands(rng, torch)
    before = rng.standard_normal(operands.sizes[:2]).astype(np.float32)
    out = torch.from_numpy(before).cuda()
    known = {name: value for name, value in operands.known(d=out).items() if not name.startswith("stride")}
    kernel[grid](**known)
    operands.assert_close(out, before.astype(np.float64))


@pytest.mark.parametrize("name", ["split_k", "added_to", "below"])
def test_prepared_calls_are_captured(rng: np.random.Generator, torch: Any, kernels: Any, name: str) -> None:
    kernel, operands = louver.jit(getattr(kernels, name)), Operands(rng, torch)
    out = operands.out if name == "below" else torch.ones(operands.sizes[:2], device="cuda")
    known = operands.known(d=out)
    known = known if name == "below" else {key: value for key, value in known.items() if not key.startswith("stride")}
    with (
        pytest.raises(RuntimeError, match="must be tuned before its stream is captured"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        kernel[grid](**known)
    torch.cuda.synchronize()
    before, dense = out.clone(), operands.b.clone()
    kernel.prepare[grid](**known)
    assert torch.equal(out.view(torch.uint8), before.view(torch.uint8)) and torch.equal(operands.b, dense)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel[grid](**known)
    torch.cuda.synchronize()
    assert torch.equal(out.view(torch.uint8), before.view(torch.uint8)), "captured, not run"
    graph.replay()
    torch.cuda.synchronize()
    operands.assert_close(out, 0.0 if name == "below" else 1.0)


def test_hooks_and_descriptors(rng: np.random.Generator, torch: Any, kernels: Any) -> None:
    kernel, operands = louver.jit(kernels.hooked), Operands(rng, torch)
    m, n, k = operands.sizes
    tiles = {
        "d_tiles": louver.TensorDescriptor.from_tensor(operands.out, (1, 1)),
        "a_tiles": louver.TensorDescriptor.from_tensor(operands.sparse, (1, 1)),
        "b_tiles": louver.TensorDescriptor.from_tensor(operands.b, (1, 1)),
    }
    for _ in range(3):
        operands.out.fill_(math.nan)
        kernel[lambda meta: grid(meta)[:2]](**tiles, M=m, N=n, K=k)
        operands.assert_close(operands.out)
    assert tiles["a_tiles"].block_shape == (choice(kernel).kwargs["BM"], 64)


def test_timing_goes_to_the_caller_s_stream(rng: np.random.Generator, torch: Any, kernels: Any) -> None:
    """The operand comes late on this stream: a choice made on another one would see, and compute, what was there before."""
    kernel, operands = louver.jit(kernels.added_to), Operands(rng, torch)
    later, out = operands.b.clone(), torch.zeros(operands.sizes[:2], device="cuda")
    operands.b.zero_()
    known = {name: value for name, value in operands.known(d=out).items() if not name.startswith("stride")}
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        operands.b.copy_(later)
        kernel[grid](**known)
        found = out.clone()
    stream.synchronize()
    operands.assert_close(found)


def test_dense_calls_are_tuned_by_triton(rng: np.random.Generator, torch: Any, kernels: Any) -> None:
    operands = Operands(rng, torch)
    tuned = kernels.with_configs(kernels.CONFIGS)
    louver.jit(tuned)[grid](**operands.known(a=operands.weight))
    operands.assert_close(operands.out)
    assert tuned.cache, "Triton's own choice"
    with pytest.raises(ValueError, match="got the hints stages"):
        louver.jit(tuned, stages=4)[grid](**operands.known(a=operands.weight))


def test_warps_too_many_for_an_sm_are_passed_over(rng: np.random.Generator, torch: Any, kernels: Any) -> None:
    configs = [kernels.triton.Config({"BM": 256, "BN": 256, "BK": 64}), kernels.CONFIGS[1]]
    kernel, operands = louver.jit(kernels.with_configs(configs)), Operands(rng, torch)
    kernel[grid](**operands.known())
    operands.assert_close(operands.out)


def test_a_warm_call_looks_at_no_decorator_again(rng: np.random.Generator, torch: Any) -> None:
    """It makes about as many calls as a kernel without decorators."""
    case = given(rng, "made_descriptors", compiled("made_descriptors"), 128, 64, 64)
    host = output(case)
    known = {
        name: torch.from_numpy(v).cuda() if isinstance(v, np.ndarray) else v
        for name, v in arguments(case, host).items()
    }
    bare = {name: value for name, value in known.items() if name not in ("BM", "BN", "BK")}
    kernel, _ = decorated([*styles(*STYLES), Config(styles(STYLES[0])[0].kwargs, num_warps=8)])
    counts = {}
    for name, run, given_ in (("plain", kept_kernel("made_descriptors"), known), ("autotuned", kernel, bare)):
        launch = run[grid_of(case)]
        for _ in range(3):
            launch(**given_)
        torch.cuda.synchronize()
        counts[name] = calls(partial(launch, **given_))
    assert counts["autotuned"] < 1.5 * counts["plain"], counts
