"""Work around the launches of kernels under `triton.autotune`: resets, hooks, captures, and configs that fail late."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import louver
from louver.runtime.cache import KernelCache
from louver.user import compiled
from louver.user.autotuned import AutotunedKernel
from support.autotune import STYLES, Config, decorated, styles
from support.fake_gpu import FakeGpu, FakeTorch, Tensor
from support.tuned_calls import GRID, Array, Clock, K, M, N, arguments, sent

CAPTURING = 0xCA


@pytest.fixture
def s(rng: np.random.Generator) -> louver.SparseTensor:
    return louver.compress(louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4"), "2:4")


def test_arrays_are_reset_and_restored_around_timed_launches(
    gpu: FakeGpu, clock: Clock, s: louver.SparseTensor
) -> None:
    did: list[str] = []
    kernel, _ = decorated(reset_to_zero=["d"], restore_value=["b"])
    d, b = Array((M, N), did), Tensor((N, K))
    gpu._cuMemcpyDtoDAsync = lambda to, source, nbytes, stream: did.append("keep" if source == b.address else "restore")  # type: ignore[attr-defined]
    launch = gpu._cuLaunchKernel
    gpu._cuLaunchKernel = lambda *given: (did.append("launch"), launch(*given))[1]  # type: ignore[method-assign]
    kernel[GRID](**arguments(s, d=d, b=b))
    timed = len(gpu.launches) - 1
    assert did == ["keep", *["zero", "launch", "restore"] * timed, "zero", "launch"]
    did.clear()
    kernel[GRID](**arguments(s, d=d, b=b))
    kernel[GRID](**arguments(s, d=Array((M, N), did), b=b))
    assert did == ["launch", "launch"]


def test_one_config_left_resets_nothing(gpu: FakeGpu, clock: Clock, s: louver.SparseTensor) -> None:
    did: list[str] = []
    kernel, _ = decorated(styles("unknown", STYLES[0]), reset_to_zero=["d"])
    kernel[GRID](**arguments(s, d=Array((M, N), did)))
    assert not did and len(gpu.launches) == 1


def test_reset_and_restore_name_arrays(gpu: FakeGpu, clock: Clock, s: louver.SparseTensor) -> None:
    for what in ("reset_to_zero", "restore_value"):
        kernel, _ = decorated(**{what: ["M"]})
        with pytest.raises(
            ValueError, match=f"{what} of triton.autotune names arrays that the kernel writes, got 'M': 200"
        ):
            kernel[GRID](**arguments(s))


def test_hooks_are_called_as_triton_does(gpu: FakeGpu, clock: Clock, s: louver.SparseTensor) -> None:
    did: list[str] = []

    def of_config(named: dict[str, Any]) -> None:
        assert named["BM"] == 128 and named["num_warps"] == 4 and named["a"].shape == s.shape
        did.append("config")

    def pre(named: dict[str, Any], reset_only: bool = False) -> None:
        did.append("reset" if reset_only else "pre")

    def post(named: dict[str, Any], exception: Exception | None) -> None:
        assert exception is None
        did.append("post")

    launch = gpu._cuLaunchKernel
    gpu._cuLaunchKernel = lambda *given: (did.append("launch"), launch(*given))[1]  # type: ignore[method-assign]
    kernel, _ = decorated(styles(*STYLES, pre_hook=of_config), pre_hook=pre, post_hook=post)
    known = arguments(s)
    kernel[GRID](**known)
    timed = len(gpu.launches) - 1
    assert did == [*["config"] * 2, *["config", "pre", "launch", "post"] * timed, "reset", "config", "launch"]
    did.clear()
    before = len(gpu.calls)
    kernel[GRID](**known)
    assert did == ["config", "launch"] and "cuTensorMapEncodeTiled" not in dict(gpu.calls[before:])
    kernel[GRID](**arguments(s))
    assert did == ["config", "launch"] * 2


def test_a_launch_seen_before_with_a_hook_binds_nothing(gpu: FakeGpu, clock: Clock, s: louver.SparseTensor) -> None:
    kernel, _ = decorated(styles(*STYLES, pre_hook=lambda named: None))
    known = arguments(s)
    kernel[GRID](**known)
    encoded = gpu.encoded
    kernel[GRID](**known)
    assert gpu.encoded == encoded
    with pytest.raises(ValueError, match="got a grid of 6"):
        kernel[(2, 3)](**known)


def test_hooks_set_the_blocks_of_descriptors(gpu: FakeGpu, clock: Clock, s: louver.SparseTensor) -> None:
    from louver.user.decorators import unwrap
    from louver.user.hints import Hints
    from support.autotune import Autotuner, Function
    from support.jit import kept_source

    def blocks(named: dict[str, Any]) -> None:
        for name, sizes in (("a_tiles", ("BM", "BK")), ("b_tiles", ("BK", "BN")), ("d_tiles", ("BM", "BN"))):
            named[name].block_shape = [named[size] for size in sizes]

    source = kept_source("given_descriptors")
    tuner = Autotuner(Function(source.order), [Config({"BM": 128, "BN": 64, "BK": 64}, pre_hook=blocks)])
    kernel = AutotunedKernel(source, Hints(), unwrap(tuner)[1])  # type: ignore[arg-type]
    shapes = (
        ("d_tiles", Tensor((M, N), "bfloat16"), (M, N)),
        ("a_tiles", s, (M, K)),
        ("b_tiles", Tensor((K, N)), (K, N)),
    )
    tiles = {name: louver.TensorDescriptor(base, shape, (shape[1], 1), (1, 1)) for name, base, shape in shapes}
    why = kernel.explain(**tiles, K=K)
    assert all(each.block_shape == (1, 1) for each in tiles.values()) and why.config
    for _ in range(2):
        kernel[GRID](**tiles, K=K)
        assert tiles["a_tiles"].block_shape == (128, 64)
        for each in tiles.values():
            each.block_shape = (1, 1)
    assert len(gpu.launches) == 2 and source.asked[-1][0]["d_tiles"] == "tensordesc<bf16[128,64]>"


def test_a_capture_is_refused_until_tuned(gpu: FakeGpu, clock: Clock, torch: FakeTorch, s: louver.SparseTensor) -> None:
    kernel, _ = decorated()
    torch.stream = CAPTURING
    for run in (kernel[GRID], kernel.prepare[GRID]):
        with pytest.raises(RuntimeError, match="styled must be tuned before its stream is captured: .*prepare"):
            run(**arguments(s))
    assert not gpu.launches and not gpu.called("cuMemcpyDtoDAsync")
    torch.stream = 0
    kernel.prepare[GRID](**arguments(s))
    timed, launched = clock.timed, len(gpu.launches)
    torch.stream = CAPTURING
    kernel[GRID](**arguments(s))
    assert timed and clock.timed == timed and len(gpu.launches) == launched + 1


def test_prepare_leaves_arrays_as_they_were(gpu: FakeGpu, clock: Clock, s: louver.SparseTensor) -> None:
    kernel, _ = decorated()
    known = arguments(s)
    copies: list[tuple[int, int, int]] = []
    gpu._cuMemcpyDtoDAsync = lambda to, source, nbytes, stream: copies.append((to, source, nbytes))  # type: ignore[attr-defined]
    kernel.prepare[GRID](**known)
    kept = {(known["d"].address, M * N * 2), (known["b"].address, N * K * 2)}
    assert {(source, nbytes) for _, source, nbytes in copies[:2]} == kept
    assert {(to, nbytes) for to, _, nbytes in copies[2:]} == kept and len(copies) == 4
    launched = len(gpu.launches)
    kernel.prepare[GRID](**known)
    assert len(copies) == 4 and len(gpu.launches) == launched
    with pytest.raises(ValueError, match="prepare needs arrays on a GPU"):
        kernel.prepare[GRID](**arguments(s, d=np.zeros((M, N), np.float16), b=np.zeros((N, K), np.float16)))


def test_kernels_without_room_on_an_sm_drop_out(gpu: FakeGpu, clock: Clock, s: louver.SparseTensor) -> None:
    refused: list[Any] = []
    kernel, _ = decorated(post_hook=lambda named, exception: refused.append(exception))
    clock.seconds[STYLES[1]] = 9.0
    gpu.fails["cuLaunchKernel"] = [701, 0, 701]
    kernel[GRID](**arguments(s))
    assert sent(gpu) == STYLES[1] and sum(each is not None for each in refused) == 2
    kernel, _ = decorated()
    gpu.fails["cuLaunchKernel"] = [701] * 4
    with pytest.raises(ValueError, match="of one SM at most, got 2 configs that all take more"):
        kernel[GRID](**arguments(s))
    kernel, _ = decorated()
    gpu.fails["cuLaunchKernel"] = [700]
    with pytest.raises(RuntimeError, match="700"):
        kernel[GRID](**arguments(s))


def test_products_that_do_not_assemble_cleanly_drop_out(
    gpu: FakeGpu, clock: Clock, s: louver.SparseTensor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    build, empty = compiled.build_record, KernelCache(tmp_path)

    def built(wanted: Any) -> Any:
        if dict(wanted.kind.constexprs)["STYLE"] == STYLES[0]:
            raise compiled.UncleanKernelError("it spills")
        return build(wanted)

    monkeypatch.setattr(compiled, "build_record", built)
    monkeypatch.setattr(compiled, "kernel_cache", lambda: empty)
    kernel, _ = decorated()
    kernel[GRID](**arguments(s))
    assert sent(gpu) == STYLES[1] and not clock.timed


def test_a_choice_that_does_not_fit_other_sizes_is_made_again(
    gpu: FakeGpu, clock: Clock, s: louver.SparseTensor
) -> None:
    only: list[Any] = []

    def style(name: str) -> Any:
        def check(named: dict[str, Any]) -> None:
            if only and name not in only:
                raise ValueError(f"{name} does not fit")

        return check

    kernel, _ = decorated([Config(config.kwargs, pre_hook=style(config.kwargs["STYLE"])) for config in styles(*STYLES)])
    clock.seconds[STYLES[0]] = 0.1
    kernel[GRID](**arguments(s))
    only.append(STYLES[1])
    kernel[GRID](**arguments(s))
    kernel[GRID](**arguments(s))
    assert [launch.kernel.kernel.name for launch in gpu.launches[-3:]] == [STYLES[0], STYLES[1], STYLES[1]]


def test_threads_make_one_choice(gpu: FakeGpu, clock: Clock, s: louver.SparseTensor) -> None:
    inside, go = threading.Event(), threading.Event()

    def hook(named: dict[str, Any]) -> None:
        inside.set()
        go.wait(10)

    kernel, _ = decorated(styles(*STYLES, pre_hook=hook))
    threads = [threading.Thread(target=lambda: kernel[GRID](**arguments(s))) for _ in range(2)]
    threads[0].start()
    assert inside.wait(10)
    threads[1].start()
    go.set()
    for thread in threads:
        thread.join(60)
    timed = clock.timed
    once, _ = decorated()
    once[GRID](**arguments(s))
    assert clock.timed == 2 * timed, "a single thread times as often as both together"
