"""Kernels under `triton.autotune` and `triton.heuristics` on a recording device: which configs are tried, timed, kept and sent."""

from __future__ import annotations

import operator
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import louver
from louver.ptx import assembler
from louver.runtime.cache import KernelCache
from louver.user import compiled
from louver.user.autotuned import AutotunedKernel
from louver.user.config_outcomes import LEFT_OUT
from support.autotune import REFUSED, STYLES, Config, decorated, styles
from support.fake_gpu import FakeGpu, FakeTorch, Tensor
from support.tuned_calls import GRID, Clock, K, M, N, arguments, sent


@pytest.fixture
def s(rng: np.random.Generator) -> louver.SparseTensor:
    return louver.compress(louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4"), "2:4")


@pytest.mark.parametrize("fast", STYLES)
def test_the_fastest_config_is_launched(gpu: FakeGpu, clock: Clock, s: louver.SparseTensor, fast: str) -> None:
    kernel, _ = decorated()
    clock.seconds[fast] = 0.4
    kernel[GRID](**arguments(s))
    assert clock.timed and sent(gpu) == fast
    timed = [launch.kernel.kernel.name for launch in gpu.launches[:-1]]
    assert min(timed.count(name) for name in STYLES) >= 4
    assert str(kernel.explain(**arguments(s))).count("was slower") == 1


def test_a_call_seen_before_only_launches(gpu: FakeGpu, clock: Clock, torch: FakeTorch, s: louver.SparseTensor) -> None:
    asked: list[str] = []

    def prune(configs: list[Config], nargs: Any, **kwargs: Any) -> list[Config]:
        asked.append("prune")
        return configs

    def even(args: dict[str, Any]) -> bool:
        asked.append("even")
        return args["K"] % args["BK"] == 0

    kernel, _ = decorated(below={"EVEN": even}, prune=prune)
    known = arguments(s)
    kernel[GRID](**known)
    torch.stream = 5
    for grid in (GRID, lambda meta: (meta["M"] // 100, meta["N"] // 48)):
        asked.clear()
        before = len(gpu.calls)
        kernel[grid](**known)
        assert not asked and [name for name, _ in gpu.calls[before:]] == ["cuLaunchKernel"]
    assert gpu.launches[-1].stream == 5


def test_a_choice_holds_for_its_key(
    gpu: FakeGpu, clock: Clock, s: louver.SparseTensor, rng: np.random.Generator
) -> None:
    kernel, _ = decorated(key=("M", "N", "K"))
    clock.seconds["block_pointers"] = 0.4
    kernel[GRID](**arguments(s))
    timed = clock.timed
    clock.seconds["block_pointers"] = 0.6
    kernel[GRID](**arguments(s))
    kernel[GRID](**arguments(s, d=Tensor((M, N + 8)), stride_d=N + 8))
    assert clock.timed == timed and sent(gpu) == "block_pointers"
    kernel[GRID](**arguments(s, N=N - 8, d=Tensor((M, N - 8)), stride_d=N - 8))
    assert clock.timed > timed and sent(gpu) == "made_descriptors"
    timed = clock.timed
    other = louver.compress(louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4"), "2:4")
    kernel[GRID](**arguments(other))
    assert clock.timed == timed, "another tensor of this shape and pattern"
    kernel[GRID](**arguments(s), EVEN=True)
    assert clock.timed > timed, "another constant"


def test_shapes_of_sparse_tensors_are_in_the_key(gpu: FakeGpu, clock: Clock, rng: np.random.Generator) -> None:
    kernel, _ = decorated(key=())
    timed = []
    for m in (M, M, M - 8):
        s = louver.compress(louver.prune(rng.standard_normal((m, K)).astype(np.float16), "2:4"), "2:4")
        kernel[GRID](**arguments(s, M=m, d=Tensor((m, N))))
        timed.append(clock.timed)
    assert timed[0] == timed[1] < timed[2]


def test_refused_configs_drop_out(gpu: FakeGpu, clock: Clock, s: louver.SparseTensor) -> None:
    kernel, _ = decorated(styles("unknown", "block_pointers"))
    kernel[GRID](**arguments(s))
    assert not clock.timed and [sent(gpu)] == ["block_pointers"] and len(gpu.launches) == 1
    why = kernel.explain(**arguments(s))
    assert "STYLE='block_pointers'" in str(why.config) and re.search(f"'unknown'.*is refused: {REFUSED}", why.others[0])


def test_what_the_compiler_refuses_is_compiled_once(gpu: FakeGpu, clock: Clock, s: louver.SparseTensor) -> None:
    kernel, _ = decorated(styles("unknown", *STYLES))
    source: Any = kernel._source
    kernel[GRID](**arguments(s))
    timed, asked = clock.timed, [each["STYLE"] for each in source.asked].count("unknown")
    kernel[GRID](**arguments(s, N=N - 16))
    assert clock.timed > timed and asked
    assert [each["STYLE"] for each in source.asked].count("unknown") == asked
    refused, _ = decorated(styles("one", "other"))
    for _ in range(2):
        with pytest.raises(ValueError, match="got 'one'") as raised:
            refused[GRID](**arguments(s))
        assert raised.value.__notes__[-1].startswith("All 2 configs")
    kernel, _ = decorated(styles("unknown", STYLES[0]))
    with pytest.raises(ValueError, match="got a grid of 6|got 'unknown'"):
        kernel[(2, 3)](**arguments(s))
    assert kernel.best_config is None
    kernel[GRID](**arguments(s))
    assert kernel.best_config.kwargs["STYLE"] == STYLES[0]
    assert sent(gpu) == STYLES[0], "a wrong call says nothing of a config"


def test_the_first_error_is_raised_where_all_are_refused(gpu: FakeGpu, clock: Clock, s: louver.SparseTensor) -> None:
    kernel, _ = decorated(styles("one", "other"))
    calls: list[Any] = [lambda: kernel[GRID](**arguments(s)), lambda: kernel.explain(**arguments(s))]
    calls.append(lambda: kernel.prepare[GRID](**arguments(s)))
    for call in calls:
        with pytest.raises(ValueError, match=f"{REFUSED} .*got 'one'") as raised:
            call()
        (note,) = raised.value.__notes__[-1:]
        assert note.startswith("All 2 configs of triton.autotune were tried") and "STYLE='one'" in note
    assert not gpu.launches


def test_a_single_config_is_refused_as_it_is(gpu: FakeGpu, clock: Clock, s: louver.SparseTensor) -> None:
    kernel, _ = decorated(styles("one"))
    with pytest.raises(ValueError, match=REFUSED) as raised:
        kernel[GRID](**arguments(s))
    assert not any("configs" in note for note in getattr(raised.value, "__notes__", ()))


def test_wrong_calls_are_refused_whatever_the_config(gpu: FakeGpu, clock: Clock, s: louver.SparseTensor) -> None:
    kernel, _ = decorated()
    with pytest.raises(ValueError, match="got a grid of 6"):
        kernel[(2, 3)](**arguments(s))
    kernel[GRID](**arguments(s))
    launched = len(gpu.launches)
    with pytest.raises(ValueError, match="got a grid of 6"):
        kernel[(2, 3)](**arguments(s))
    with pytest.raises(TypeError, match="styled takes 14 arguments, got 15"):
        kernel[GRID](*range(15))
    with pytest.raises(TypeError, match="styled is missing K"):
        kernel[GRID](**{name: value for name, value in arguments(s).items() if name != "K"})
    with pytest.raises(ValueError, match="hints are .* got 'speed'"):
        kernel[GRID](**arguments(s), speed=2)
    assert len(gpu.launches) == launched


def test_products_of_other_warps_and_stages_are_one(gpu: FakeGpu, clock: Clock, s: louver.SparseTensor) -> None:
    configs = [Config({**styles(STYLES[0])[0].kwargs}, num_warps=w, num_stages=n) for w, n in ((4, 3), (8, 3), (8, 4))]
    kernel, _ = decorated(configs)
    kernel[GRID](**arguments(s))
    assert not clock.timed and len(gpu.launches) == 1
    assert sum("the same kernel as one of these" in other for other in kernel.explain(**arguments(s)).others) == 2


WIDE = 100_000
"""Columns of which each SM has a tile."""


def test_a_product_that_fills_the_gpu_leaves_nothing_to_time(
    gpu: FakeGpu, clock: Clock, s: louver.SparseTensor
) -> None:
    kernel, _ = decorated(styles("unknown", *STYLES))
    known = arguments(s, N=WIDE, stride_d=WIDE, d=Tensor((M, WIDE)), b=Tensor((WIDE, K)))
    kernel[2, -(-WIDE // 64)](**known)
    assert not clock.timed and len(gpu.launches) == 1 and sent(gpu) == STYLES[0]
    assert [asked["STYLE"] for asked in kernel._source.asked] == ["unknown", STYLES[0]]  # type: ignore[attr-defined]
    left, refused = kernel.explain(**known).others
    assert f"STYLE='{STYLES[1]}'" in left and left.partition(" is left out: ")[2] == LEFT_OUT.removeprefix(
        "is left out: "
    )
    assert "is refused" in refused
    # Schedules that the caller fixes keep the kernel's own tile, which configs change.
    fixed, _ = decorated(hints={"stages": 3})
    fixed[2, -(-WIDE // 64)](**known)
    assert clock.timed and not any("left out" in other for other in fixed.explain(**known).others)


def test_an_earlier_choice_is_explained_beside_a_product_that_decides(
    gpu: FakeGpu, clock: Clock, s: louver.SparseTensor
) -> None:
    known = arguments(s, N=WIDE, stride_d=WIDE, d=Tensor((M, WIDE)), b=Tensor((WIDE, K)))
    kernel, _ = decorated(key=())
    clock.seconds[STYLES[1]] = 0.4
    kernel[GRID](**arguments(s))
    told = kernel.explain(**known)
    assert told.config is not None and STYLES[1] in told.config and "was slower" in told.others[0]


def test_configs_of_equal_ptx_are_assembled_once(
    gpu: FakeGpu, clock: Clock, s: louver.SparseTensor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun: list[str] = []
    real, empty = assembler.Assembling, KernelCache(tmp_path)

    def counted(ptx: str, *rest: Any, **more: Any) -> Any:
        begun.append(ptx)
        return real(ptx, *rest, **more)

    monkeypatch.setattr(assembler, "Assembling", counted)
    monkeypatch.setattr(compiled, "kernel_cache", lambda: empty)
    tile = styles(STYLES[0])[0].kwargs
    kernel, _ = decorated([Config({**tile, "EVEN": even}) for even in (True, False)])
    kernel[GRID](**arguments(s))
    assert len(kernel._source.asked) == 2 and len(begun) == 1 and clock.timed  # type: ignore[attr-defined]
    records = {launch.kernel for launch in gpu.launches}
    assert len({record.launch.reasons for record in records}) == 1


def test_register_tiles_have_the_warps_of_their_config(gpu: FakeGpu, clock: Clock, s: louver.SparseTensor) -> None:
    tile = {**styles(STYLES[0])[0].kwargs}
    kernel, _ = decorated([Config(tile), Config(tile, num_warps=8), Config(tile, num_warps=8, num_stages=2)])
    # Rows that bulk copies cannot read.
    known = arguments(s, b=Tensor((N, K), strides=(K + 3, 1)), stride_b=K + 3)
    kernel[GRID](**known)
    threads = {launch.kernel.signature.threads for launch in gpu.launches}
    assert 256 in threads and len(threads) <= 2 and clock.timed
    forced, _ = decorated([Config(tile), Config(tile, num_warps=8)], hints={"num_warps": 16})
    forced[GRID](**known)
    assert gpu.launches[-1].kernel.signature.threads == 512


def test_hints_hold_for_every_config(gpu: FakeGpu, clock: Clock, s: louver.SparseTensor) -> None:
    kernel, _ = decorated(hints={"stages": 3})
    assert kernel.explain(**arguments(s)).schedule.ring.stages == 3  # type: ignore[union-attr]
    kernel[GRID](**arguments(s))
    timed = clock.timed
    kernel[GRID](**arguments(s), store="direct")
    assert clock.timed > timed and "d_map" not in gpu.launches[-1].arguments
    refused, _ = decorated(hints={"stages": 99})
    with pytest.raises(ValueError, match="stages"):
        refused[GRID](**arguments(s))


def test_heuristics_above_and_below(gpu: FakeGpu, clock: Clock, s: louver.SparseTensor) -> None:
    seen: dict[str, set[str]] = {}

    def even(place: str) -> Any:
        def value(args: dict[str, Any]) -> bool:
            seen[place] = set(args)
            return True

        return value

    kernel, _ = decorated(styles(STYLES[0]), above={"EVEN": even("above")})
    kernel[GRID](**arguments(s))
    kernel, _ = decorated(styles(STYLES[1]), below={"EVEN": even("below")})
    kernel[GRID](**arguments(s), EVEN=False)
    assert seen["above"] == set(arguments(s))
    assert seen["below"] == {*arguments(s), "EVEN", "BM", "BN", "BK", "STYLE", "num_warps", "num_stages", "num_ctas"}
    kernel.explain(**arguments(s), EVEN=False)
    source: Any = kernel._source
    assert source.asked and all(each["EVEN"] is True for each in source.asked)


def test_heuristics_alone(gpu: FakeGpu, clock: Clock, s: louver.SparseTensor) -> None:
    from louver.user.decorators import unwrap
    from louver.user.hints import Hints
    from support.autotune import Function, Heuristics, StyleSource

    source = StyleSource()
    values = {"STYLE": lambda args: STYLES[args["N"] % 2], "BN": lambda args: 64 if args["STYLE"] else 0}
    function = Function([each.name for each in source.parameters])
    inner, layers = unwrap(Heuristics(Heuristics(function, {"BK": lambda args: args["BN"]}), values))
    assert inner is function and layers is not None and layers.tuner is None
    kernel = AutotunedKernel(source, Hints(), layers)
    kernel[lambda meta: (-(-meta["M"] // meta["BM"]), -(-meta["N"] // meta["BN"]))](**arguments(s), BM=128)
    assert sent(gpu) == STYLES[0]
    assert kernel.explain(**arguments(s), BM=128).config is None and source.asked[-1]["BK"] == 64


def test_errors_in_heuristics_name_them(gpu: FakeGpu, clock: Clock, s: louver.SparseTensor) -> None:
    for where, said in (("above", "above triton.autotune, whose configs it does not see"), ("below", "")):
        values = {"EVEN": operator.itemgetter("BK" if where == "above" else "WHAT")}
        kernel, _ = decorated(above=values) if where == "above" else decorated(below=values)
        with pytest.raises(KeyError) as raised:
            kernel[GRID](**arguments(s))
        assert (
            "triton.heuristics computes for 'EVEN'" in raised.value.__notes__[0] and said in raised.value.__notes__[0]
        )


def test_what_configs_set_is_not_given_with_the_call(gpu: FakeGpu, clock: Clock, s: louver.SparseTensor) -> None:
    kernel, _ = decorated()
    for more in ({"BM": 64}, {"num_warps": 8}, {"num_stages": 2}):
        ((name, value),) = more.items()
        for run in (kernel[GRID], kernel.prepare[GRID], kernel.explain):
            with pytest.raises(
                ValueError, match=f"configs of triton.autotune set BM, .*got {name}={value} with the call"
            ):
                run(**arguments(s), **more)
    names = [each.name for each in kernel._parameters]
    with pytest.raises(ValueError, match="got BM=128 with the call"):
        kernel[GRID](*(arguments(s, BM=128)[name] for name in names[: names.index("BM") + 1]))
    above, _ = decorated(above={"BM": lambda args: 128})
    with pytest.raises(ValueError, match="got BM=128 with the call or by triton.heuristics above"):
        above[GRID](**arguments(s))
    assert not gpu.launches


def test_configs_are_pruned_as_triton_does(gpu: FakeGpu, clock: Clock, s: louver.SparseTensor) -> None:
    seen: list[Any] = []

    def prune(configs: list[Config], nargs: dict[str, Any], **kwargs: Any) -> list[Config]:
        seen.append((dict(nargs), kwargs))
        return configs[1:]

    kernel, tuner = decorated(prune=prune, above={"EVEN": lambda args: True})
    b = Tensor((N, K))
    known = {name: value for name, value in arguments(s).items() if name not in ("a", "b")}
    kernel[GRID](s, b, **known)
    ((nargs, kwargs),) = seen
    shown = nargs.pop("a")
    assert shown.shape == s.shape and shown.stride() == (s.shape[1], 1), "a dense tensor stands for the sparse one"
    assert nargs == {"b": b} and kwargs == {**known, "EVEN": True}
    assert sent(gpu) == STYLES[1] and not clock.timed
    assert tuner.fn.nargs is None, "Triton's own object is as it was"


def test_pruning_that_fails(gpu: FakeGpu, clock: Clock, s: louver.SparseTensor) -> None:
    kernel, _ = decorated(prune=lambda configs, nargs, **kwargs: [])
    with pytest.raises(ValueError, match="prune_configs_by must leave one config at least, got none of 2"):
        kernel[GRID](**arguments(s))
    kernel, _ = decorated(prune=lambda configs, nargs, **kwargs: kwargs["a"].codes)
    with pytest.raises(AttributeError) as raised:
        kernel[GRID](**arguments(s))
    assert "a sparse argument has no elements there" in raised.value.__notes__[0]


def test_dense_calls_go_to_triton_s_own_object(gpu: FakeGpu, clock: Clock, s: louver.SparseTensor) -> None:
    kernel, native = decorated(above={"EVEN": lambda args: 1 / 0})
    known = arguments(s, a=Tensor((M, K)))
    d, *_ = known.values()
    rest = {name: value for name, value in known.items() if name != "d"}

    def grid(meta: dict[str, Any]) -> tuple[int, ...]:
        return GRID

    kernel[grid](d, **rest)
    kernel[[2, 2]](d, **rest)
    assert native.launched == [(grid, (d,), rest), (GRID, (d,), rest)] and not gpu.launches
    with pytest.raises(ValueError, match="styled got the hints stages, which are for products"):
        kernel[GRID](**known, stages=4)
    tuned, native = decorated(hints={"num_warps": 8})
    with pytest.raises(ValueError, match="whose configs set num_warps and num_stages; styled got num_warps"):
        tuned[GRID](**known)
    assert not native.launched
