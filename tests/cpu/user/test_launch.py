"""Launches of calls of users' kernels, as a recording device reads them, with the parts that they do again and the parts that they keep."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import louver
from louver.compile.signature import BoxParameter
from louver.ir.conditions import Conditions
from louver.ir.polynomial import Numbers
from louver.library.compiled import _loaded
from louver.library.forms import Metadata, TileMetadata
from louver.library.rows import Held
from louver.user import launch
from louver.user.compiled import Wanted
from louver.user.hints import Hints
from louver.user.jit_kernel import JitKernel
from louver.user.reached import Read
from support.fake_gpu import FakeGpu, FakeTorch, Map, Tensor
from support.jit import KeptSource, kept_kernel, kept_source
from support.triton.cases import CASES

M, N, K = 200, 96, 256
GRID = (2, 2)


@pytest.fixture
def s(rng: np.random.Generator) -> louver.SparseTensor:
    return louver.compress(louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4"), "2:4")


def arguments(s: louver.SparseTensor, **changes: Any) -> dict[str, Any]:
    sizes = {"M": M, "N": N, "K": K, "stride_a": K, "stride_b": K, "stride_d": N}
    arrays: dict[str, Any] = {"d": Tensor((M, N)), "a": s, "b": Tensor((N, K))}
    return {**arrays, **sizes, **CASES["made_descriptors"].constexprs, **changes}


def call(kernel: JitKernel, known: dict[str, Any], grid: Any = GRID) -> None:
    kernel[grid](**known)


def test_a_launch_binds_what_the_kernel_reads(gpu: FakeGpu, torch: FakeTorch, s: louver.SparseTensor) -> None:
    torch.stream = 77
    known, kernel = arguments(s), kept_kernel("made_descriptors")
    call(kernel, known)
    (launch,) = gpu.launches
    schedule = kernel.explain(**known).schedule
    assert schedule is not None
    assert launch.stream == 77 and launch.grid == -(-M // schedule.tile.m) * -(-N // schedule.tile.n)
    read = launch.arguments
    assert (read["M"], read["N"], read["K"]) == (M, N, K)
    assert read["b_map"] == Map(known["b"].address, K, N, K * 2)
    assert read["d_map"] == Map(known["d"].address, N, M, N * 2)
    assert isinstance(read["a_map"], Map) and (read["a_map"].inner, read["a_map"].rows) == (K // 2, M)


def test_outputs_that_bulk_copies_cannot_write_are_stored_directly(
    gpu: FakeGpu, torch: FakeTorch, s: louver.SparseTensor
) -> None:
    kernel = kept_kernel("made_descriptors")
    known = arguments(s, d=Tensor((M, N), strides=(N + 3, 1)), stride_d=N + 3)
    call(kernel, known)
    read = gpu.launches[-1].arguments
    assert "d_map" not in read and (read["d"], read["pitch"]) == (known["d"].address, N + 3)
    call(kernel, arguments(s, d=Tensor((M, N), address=known["d"].address + 2)))
    assert "d_map" not in gpu.launches[-1].arguments


def test_vectors_of_the_epilogue_are_bound_by_their_names(
    gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator
) -> None:
    s = louver.compress(louver.prune(rng.integers(-9, 9, (M, K)).astype(np.int8), "2:4"), "2:4")
    bias, scale = Tensor((N,), "float32"), Tensor((M,), "float32")
    dense, out = Tensor((N, K), "int8"), Tensor((N, M))
    known = {"a": s, "b": dense, "d": out, "bias": bias, "scale": scale, "M": M, "N": N, "K": K}
    known |= {"stride_a": K, "stride_b": K, "stride_d": M, **CASES["indexed_pointers"].constexprs}
    call(kept_kernel("indexed_pointers"), known)
    read = gpu.launches[-1].arguments
    assert (read["bias"], read["scale"]) == (bias.address, scale.address)


def test_a_call_seen_before_only_launches(gpu: FakeGpu, torch: FakeTorch, s: louver.SparseTensor) -> None:
    kernel, known = kept_kernel("made_descriptors"), arguments(s)
    call(kernel, known)
    encoded, calls = gpu.encoded, len(gpu.calls)
    torch.stream = 5
    call(kernel, known)
    assert gpu.encoded == encoded and [name for name, _ in gpu.calls[calls:]] == ["cuLaunchKernel"]
    first, second = gpu.launches
    assert first.arguments == second.arguments and second.stream == 5


def test_computed_grids_see_numbers_and_constants(gpu: FakeGpu, torch: FakeTorch, s: louver.SparseTensor) -> None:
    kernel, known = kept_kernel("made_descriptors"), arguments(s)
    seen: list[set[str]] = []

    def grid(meta: dict[str, Any]) -> tuple[int, int]:
        seen.append(set(meta))
        return -(-meta["M"] // meta["BM"]), -(-meta["N"] // meta["BN"])

    for _ in range(3):
        call(kernel, known, grid)
    assert len(gpu.launches) == 3 and seen[0] == set(known) and seen[1] == set(known) - {"a", "b", "d"}

    def by_arrays(meta: dict[str, Any]) -> tuple[int, int]:
        return -(-meta["d"].shape[0] // 128), -(-meta["d"].shape[1] // 64)

    for _ in range(2):
        call(kernel, known, by_arrays)
    assert len(gpu.launches) == 5

    def asked_softly(meta: dict[str, Any]) -> tuple[int, int]:
        return -(-meta.get("d").shape[0] // 128), -(-meta["N"] // 64)

    for _ in range(2):
        call(kernel, known, asked_softly)
    assert len(gpu.launches) == 7


def test_a_grid_is_checked_again(gpu: FakeGpu, torch: FakeTorch, s: louver.SparseTensor) -> None:
    kernel, known = kept_kernel("made_descriptors"), arguments(s)
    call(kernel, known)
    call(kernel, known, (4, 1))
    with pytest.raises(ValueError, match="got a grid of 6"):
        call(kernel, known, (2, 3))
    assert len(gpu.launches) == 2


CHANGES: list[tuple[str, Any]] = [
    ("b", lambda: Tensor((N, K))),
    ("d", lambda: Tensor((M, N))),
    ("d", lambda: Tensor((M, N + 8))),
]


@pytest.mark.parametrize(("name", "make"), CHANGES)
def test_arrays_elsewhere_are_bound_anew(
    name: str, make: Any, gpu: FakeGpu, torch: FakeTorch, s: louver.SparseTensor
) -> None:
    kernel, known = kept_kernel("made_descriptors"), arguments(s)
    call(kernel, known)
    changed = known | {name: make()}
    for each in (changed, known, changed):
        call(kernel, each)
        read = gpu.launches[-1].arguments[f"{name}_map"]
        assert isinstance(read, Map) and read.address == each[name].address


def test_numbers_are_not_confused_with_others_that_are_equal(
    gpu: FakeGpu, torch: FakeTorch, s: louver.SparseTensor
) -> None:
    kernel = kept_kernel("made_descriptors")
    for value in (64, 64.0, 64):
        call(kernel, arguments(s, BK=value))
    assert len(_loaded()) == 2


class constexpr:
    """A constant that equals those of equal values."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, constexpr) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


constexpr.__module__ = "triton.language.core"


def test_constants_of_triton_s_are_not_confused_either(gpu: FakeGpu, torch: FakeTorch, s: louver.SparseTensor) -> None:
    kernel, known = kept_kernel("made_descriptors"), arguments(s)
    for value in (64, 64.0, 64):
        call(kernel, known | {"BK": constexpr(value)})
    assert len(_loaded()) == 2 and len(kernel._recent.calls) == 2


def test_globals_that_change_are_noticed(gpu: FakeGpu, torch: FakeTorch, s: louver.SparseTensor) -> None:
    module = {"GROUP": 8}
    source = replace(kept_source("made_descriptors"), reads=(Read(partial(module.get, "GROUP"), module["GROUP"]),))
    kernel, known = JitKernel(source, Hints()), arguments(s)
    call(kernel, known)
    encoded = gpu.encoded
    call(kernel, known)
    assert gpu.encoded == encoded
    for change in ({"GROUP": 4}, {}):
        module.clear()
        module.update(change)
        call(kernel, known)
        assert gpu.encoded > encoded, "the call was not checked again"
        encoded = gpu.encoded


def test_what_is_no_kernel_is_refused() -> None:
    for wrong in (SimpleNamespace(fn=len, arg_names=["a"]), len):
        rule = f"a function decorated with triton.jit, got {type(wrong).__name__}: .* only triton.autotune and triton.heuristics"
        with pytest.raises(ValueError, match=rule):
            louver.jit(wrong)


@pytest.mark.parametrize("grid", [(2.5, 2), (2.0, 2), ("2", 2), "22"])
def test_grids_are_counted_in_whole_programs(grid: Any, gpu: FakeGpu, torch: FakeTorch, s: louver.SparseTensor) -> None:
    with pytest.raises(ValueError, match="each an integer, got"):
        call(kept_kernel("made_descriptors"), arguments(s), grid)
    call(kept_kernel("made_descriptors"), arguments(s), [np.int64(2), 2])


def test_positional_texts_are_no_keywords(gpu: FakeGpu, torch: FakeTorch, s: louver.SparseTensor) -> None:
    kernel, known = kept_kernel("made_descriptors"), arguments(s)
    call(kernel, known)
    kernel[GRID](**known)
    assert len(gpu.launches) == 2 and gpu.launches[0].arguments == gpu.launches[1].arguments
    with pytest.raises(TypeError, match="takes 12 arguments, got 13"):
        kernel[GRID](*known.values(), "BM")


def test_nothing_keeps_arrays_or_sparse_tensors(gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator) -> None:
    s = louver.compress(louver.prune(rng.standard_normal((M, K)).astype(np.float16), "2:4"), "2:4")
    kernel, known = kept_kernel("made_descriptors"), arguments(s)
    call(kernel, known)
    call(kernel, known)
    alive = [weakref.ref(s), weakref.ref(known["b"]), weakref.ref(known["d"])]
    assert gpu.memory
    del s, known
    gc.collect()
    assert [each() for each in alive] == [None] * 3 and not gpu.memory


def test_a_call_of_a_dead_tensor_is_not_taken_for_a_new_one_s(
    gpu: FakeGpu, torch: FakeTorch, s: louver.SparseTensor
) -> None:
    """A new tensor may have a dead one's identity: the call remembered for that is not made again."""
    kernel, known = kept_kernel("made_descriptors"), arguments(s)
    call(kernel, known)
    ((key, recent),) = kernel._recent.calls.items()
    kernel._recent.calls[key] = replace(recent, sparse=(lambda: None,))  # type: ignore[arg-type]
    encoded = gpu.encoded
    call(kernel, known)
    assert gpu.encoded > encoded and kernel._recent.calls[key].alive


def test_capturing_wants_what_was_made_before(gpu: FakeGpu, torch: FakeTorch, s: louver.SparseTensor) -> None:
    torch.stream = 0xCA
    kernel, known = kept_kernel("made_descriptors"), arguments(s)
    with pytest.raises(
        RuntimeError, match=r"made_descriptors must be compiled .* louver.jit\(made_descriptors\).prepare\[grid\]"
    ):
        call(kernel, known)
    torch.stream = 0
    kernel.prepare[GRID](**known)
    assert not gpu.launches
    torch.stream = 0xCA
    call(kernel, known)
    assert len(gpu.launches) == 1
    other = louver.compress(s.dense(), "2:4")
    with pytest.raises(RuntimeError, match="must be uploaded before its stream is captured"):
        call(kernel, known | {"a": other})


def test_operands_that_bulk_copies_cannot_read_go_to_register_tiles(
    gpu: FakeGpu, torch: FakeTorch, s: louver.SparseTensor
) -> None:
    known = arguments(s, b=Tensor((N, K), strides=(K + 1, 1)), stride_b=K + 1)
    kernel = kept_kernel("made_descriptors")
    with pytest.warns(
        UserWarning, match="^made_descriptors: bulk copies read operands whose address and strides are multiples"
    ):
        call(kernel, known)
    launch = gpu.launches[-1]
    assert launch.grid == GRID[0] and isinstance(launch.kernel.launch.checked, Conditions)
    read = launch.arguments
    assert (read["M"], read["K"], read["stride_b"], read["b"]) == (M, K, K + 1, known["b"].address)
    assert read["a"] != read["a_metadata"] and len({read["a"], read["a_metadata"], known["d"].address}) == 3
    encoded = len(gpu.calls)
    call(kernel, known)
    assert [name for name, _ in gpu.calls[encoded:]] == ["cuLaunchKernel"]
    with pytest.raises(
        ValueError, match="copies 'b' in pieces of 16 bytes, .* multiples of 16 bytes, .* 514 bytes apart: pad"
    ):
        kept_kernel("made_descriptors", stages=3)[GRID](**known)


def test_register_tiles_whose_arrays_have_no_boxes_warn(
    gpu: FakeGpu, torch: FakeTorch, s: louver.SparseTensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(box: BoxParameter, place: Held, numbers: Numbers) -> bytes:
        raise ValueError(f"boxes of {box.argument!r} reach too far")

    monkeypatch.setattr(launch, "encoded_map", refused)
    with pytest.warns(UserWarning, match="^made_descriptors: no bulk copies: boxes of '[ab]' reach too far$"):
        call(kept_kernel("made_descriptors", family="register tiles"), arguments(s))
    assert len(gpu.launches) == 1


def test_capturing_wants_tiles_uploaded_too(gpu: FakeGpu, torch: FakeTorch, s: louver.SparseTensor) -> None:
    known = arguments(s, b=Tensor((N, K), strides=(K + 1, 1)), stride_b=K + 1)
    kernel = kept_kernel("made_descriptors")
    call(kernel, known)
    torch.stream = 0xCA
    with pytest.raises(RuntimeError, match="must be uploaded before its stream is captured"):
        call(kernel, known | {"a": louver.compress(s.dense(), "2:4")})


def test_sparse_tensors_on_the_gpu_are_read_in_place(
    gpu: FakeGpu, torch: FakeTorch, s: louver.SparseTensor, rng: np.random.Generator
) -> None:
    kernel, t = kept_kernel("made_descriptors"), s.to("cuda")
    known = arguments(t)
    call(kernel, known)
    read = gpu.launches[-1].arguments
    assert isinstance(read["a_map"], Map) and read["a_map"].address == t.values.address
    call(kernel, known | {"b": Tensor((N, K), strides=(K + 1, 1)), "stride_b": K + 1})
    read = gpu.launches[-1].arguments
    assert read["a"] == t.values.address, "rows without gaps serve register tiles too"
    forms = sorted(form.nbytes(t) for form in (Metadata(), TileMetadata("f16")))
    sizes = sorted(arguments[0] for arguments in gpu.called("cuMemAllocAsync"))
    assert sizes == [16, 16, *forms], "metadata, and what the kernels that derive it report"
    known["a"] = s.to(1)
    with pytest.raises(ValueError, match="arrays must be in one place, got 'b' on device 0 and 'a' on device 1"):
        call(kernel, known)


def test_gate_and_up_become_one_operand_once(
    gpu: FakeGpu, torch: FakeTorch, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, up = (
        louver.compress(louver.prune(rng.standard_normal((64, K)).astype(np.float16), "2:4"), "2:4") for _ in range(2)
    )
    made: list[int] = []
    monkeypatch.setattr("louver.user.gated_pairs.gated", lambda *parts: made.append(len(parts)) or louver.gated(*parts))
    known = {"x": Tensor((M, K)), "y": Tensor((M, 64)), "gate": gate, "up": up, "M": M, "N": 64, "K": K}
    known |= {"stride_x": K, "stride_w": K, "stride_y": 64, **CASES["gated_layer"].constexprs}
    kernel = kept_kernel("gated_layer")
    for y in (Tensor((M, 64)), Tensor((M, 64))):
        kernel[(-(-M // 64), 1)](**known | {"y": y})
    assert len(made) == 1
    read = gpu.launches[-1].arguments
    assert (read["M"], read["N"], read["K"]) == (128, M, K)
    torch.stream = 0xCA
    with pytest.raises(RuntimeError, match="must be uploaded before its stream is captured"):
        kernel[(-(-M // 64), 1)](**known | {"gate": up, "up": gate})
    torch.stream = 0
    alive = len(gpu.memory)
    known.clear()
    del gate
    gc.collect()
    assert len(gpu.memory) < alive


def test_hints_make_another_kernel(gpu: FakeGpu, torch: FakeTorch, s: louver.SparseTensor) -> None:
    known = arguments(s)
    for hints in ({}, {"consumers": 2}, {"stages": 3}, {}):
        kept_kernel("made_descriptors", **hints)[GRID](**known)
    assert [launch.kernel.kernel.threads for launch in gpu.launches] == [256, 384, 384, 256]
    assert len(_loaded()) == 3
    kept_kernel("made_descriptors")[GRID](**known, stages=3, num_stages=3, num_warps=8)
    assert gpu.launches[-1].kernel.signature.shared_bytes == gpu.launches[2].kernel.signature.shared_bytes


def test_kernels_without_sparse_arguments_are_triton_s(gpu: FakeGpu, torch: FakeTorch) -> None:
    seen: list[Any] = []

    class Native:
        def __getitem__(self, grid: Any) -> Any:
            return lambda **given: seen.append((grid, given))

    source = kept_source("made_descriptors", native=Native())
    known = arguments(None) | {"a": Tensor((M, K))}  # type: ignore[arg-type]
    JitKernel(source, Hints())[GRID](**known, num_warps=8)
    assert seen == [(GRID, {**known, "num_warps": 8})] and not source.asked and not gpu.launches


def test_prepare_and_emulate_say_where_their_arrays_are(gpu: FakeGpu, torch: FakeTorch, s: louver.SparseTensor) -> None:
    kernel, known = kept_kernel("made_descriptors"), arguments(s)
    with pytest.raises(ValueError, match="the emulator takes arrays in host memory"):
        kernel.emulate[GRID](**known)
    host = {"b": np.zeros((N, K), np.float16), "d": np.zeros((M, N), np.float16)}
    with pytest.raises(ValueError, match="prepare needs arrays on a GPU"):
        kernel.prepare[GRID](**known | host)


def test_an_array_is_needed(s: louver.SparseTensor) -> None:
    from louver.user.source import Parameter

    class Source(KeptSource):
        @property
        def parameters(self) -> tuple[Parameter, ...]:
            return (Parameter("a"),)

    with pytest.raises(ValueError, match="needs at least one array among its arguments"):
        JitKernel(Source("kernel", "", ()), Hints())[GRID](s)


def test_keys_tell_sources_types_constants_hints_and_targets_apart(s: louver.SparseTensor) -> None:
    from louver.user.arguments import Kind

    source = KeptSource("kernel", "text", ())
    kind = Kind((("a", "*fp16"),), (("n", 1),), (("a", "2:4"),), ())
    wanted = [
        Wanted(source, kind, Hints(), "bulk", "sm_90a"),
        Wanted(KeptSource("kernel", "other text", ()), kind, Hints(), "bulk", "sm_90a"),
        Wanted(source, Kind((("a", "*bf16"),), kind.constexprs, kind.sparse, ()), Hints(), "bulk", "sm_90a"),
        Wanted(source, Kind(kind.signature, (("n", True),), kind.sparse, ()), Hints(), "bulk", "sm_90a"),
        Wanted(source, Kind(kind.signature, kind.constexprs, (), ()), Hints(), "bulk", "sm_90a"),
        Wanted(source, kind, Hints.of({"stages": 2}), "bulk", "sm_90a"),
        Wanted(source, kind, Hints(), "direct", "sm_90a"),
        Wanted(source, kind, Hints(), "bulk", "sm_80"),
        Wanted(source, kind, Hints(), "bulk", "sm_90a", ctas=1),
    ]
    assert len({each.key for each in wanted}) == len(wanted)
    assert wanted[0].key == Wanted(source, kind, Hints(), "bulk", "sm_90a").key
    assert wanted[0].product_key == wanted[-1].product_key


@pytest.mark.parametrize(
    ("grid", "ctas"),
    [((), None), ((1,), 1), ((132,), 1), ((133,), 2), ((12, 11, 2), 2), ((265,), 3), ((397,), None), ((64, 64), None)],
)
def test_ctas_that_share_an_sm(grid: tuple[int, ...], ctas: int | None) -> None:
    from louver.user.arguments import Call, Kind
    from louver.user.compiled import ctas_of

    assert ctas_of(grid, 132) == ctas
    call = Call(Kind((), (), (), ()))
    assert Wanted.of(KeptSource("kernel", "text", ()), Hints(), call, "bulk", "sm_90a", grid, 132).ctas == ctas


def test_a_warm_start_reads_the_record(
    gpu: FakeGpu, torch: FakeTorch, s: louver.SparseTensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    call(kept_kernel("made_descriptors"), arguments(s))
    _loaded.cache_clear()
    source = kept_source("made_descriptors")
    call(JitKernel(source, Hints()), arguments(s))
    assert not source.asked and len(gpu.launches) == 2
