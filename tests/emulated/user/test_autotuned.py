"""Kernels under `triton.autotune` and `triton.heuristics` without a GPU: every config that is taken computes the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import louver
from louver.ir.refusal import UnsupportedKernelError
from support.autotune import REFUSED, STYLES, Config, decorated, styles
from support.jit import arguments, grid_of, output
from support.triton.products import Given, compiled, given


@pytest.fixture
def case(rng: np.random.Generator) -> Given:
    return given(rng, "made_descriptors", compiled("made_descriptors"), 140, 72, 136)


def call(case: Given, out: np.ndarray) -> dict[str, Any]:
    return {name: value for name, value in arguments(case, out).items() if name not in ("BM", "BN", "BK")}


@pytest.mark.parametrize("first", STYLES)
def test_the_first_config_that_is_taken_runs(case: Given, first: str) -> None:
    kernel, _ = decorated([*styles("unknown", first), Config({"BM": 0, "BN": 0, "BK": 0, "STYLE": "never reached"})])
    for run in (kernel, kernel.emulate):
        out = output(case)
        run[grid_of(case)](**call(case, out))
        case.assert_close(out)
    out = output(case)
    kernel[lambda meta: (-(-meta["M"] // meta["BM"]), -(-meta["N"] // meta["BN"]))](**call(case, out))
    case.assert_close(out)
    source: Any = kernel._source
    assert {each["STYLE"] for each in source.asked} == {"unknown", first}


def test_refused_configs_leave_no_trace(case: Given) -> None:
    written: list[str] = []

    def hook(named: dict[str, Any]) -> None:
        written.append(named["STYLE"])
        named["b"][:] = 0

    kernel, _ = decorated([*styles("unknown", pre_hook=hook), *styles(STYLES[0])])
    out = output(case)
    kernel[grid_of(case)](**call(case, out))
    case.assert_close(out)
    assert written == ["unknown"]


def test_all_refused(case: Given) -> None:
    kernel, _ = decorated(styles("one", "two", "three"))
    for run in (kernel, kernel.emulate):
        out = output(case)
        with pytest.raises(ValueError, match=f"{REFUSED}.*'one'") as raised:
            run[grid_of(case)](**call(case, out))
        assert raised.value.__notes__[-1].startswith("All 3 configs") and np.isnan(out).all()


def test_hooks_come_before_each_run(case: Given) -> None:
    kernel, _ = decorated(styles(STYLES[0], pre_hook=lambda named: named["d"].fill(7)))
    out = output(case)
    assert kernel.explain(**call(case, out)).family == "product" and np.isnan(out).all()
    kernel.emulate[grid_of(case)](**call(case, out))
    case.assert_close(out)


def test_wrong_grids_are_refused(case: Given) -> None:
    kernel, _ = decorated()
    with pytest.raises(ValueError, match="got a grid of 64"):
        kernel.emulate[(8, 8)](**call(case, output(case)))
    with pytest.raises(ValueError, match="configs of triton.autotune set BM"):
        kernel.emulate[grid_of(case)](**call(case, output(case)), BM=128)


@pytest.fixture(scope="module")
def kernels() -> Any:
    # Triton 3.4 itself refuses the config that Louver is to refuse.
    pytest.importorskip("triton", minversion="3.5", reason="Triton 3.5 is not installed: pip install 'louver[triton]'")
    from support.triton import autotuned

    return autotuned


M, N, K = 76, 40, 136


class Run:
    """A product of these sizes in f16, for the kernels of `support.triton.autotuned`."""

    def __init__(self, rng: np.random.Generator, k: int = K) -> None:
        self.k = k
        self.pruned = louver.prune(rng.standard_normal((M, k)).astype(np.float16), "2:4")
        self.sparse = louver.compress(self.pruned, "2:4")
        self.b = rng.standard_normal((k, N)).astype(np.float16)

    def __call__(self, run: Any, dtype: str = "float16") -> np.ndarray:
        out = np.full((M, N), np.nan, dtype)
        run[self.grid](out, self.sparse, self.b, M, N, self.k, N, self.k, N)
        return out

    @staticmethod
    def grid(meta: dict[str, Any]) -> tuple[int, int]:
        return -(-meta["M"] // meta["BM"]), -(-meta["N"] // meta["BN"])

    def assert_close(self, out: np.ndarray) -> None:
        expected = self.pruned.astype(np.float64) @ self.b.astype(np.float64)
        magnitude = np.abs(self.pruned).astype(np.float64) @ np.abs(self.b).astype(np.float64)
        bound = 2.0**-11 * np.abs(expected) + 2.0**-20 * magnitude
        assert (np.abs(out.astype(np.float64) - expected) <= bound).all()


@pytest.mark.parametrize("name", ["below", "above", "alone"])
def test_triton_s_own_decorators(rng: np.random.Generator, kernels: Any, name: str) -> None:
    kernel = louver.jit(getattr(kernels, name))
    for k in (K, 128):
        case = Run(rng, k)
        for run in (kernel, kernel.emulate):
            case.assert_close(case(run))


def test_every_config_of_a_kernel_computes_the_same(rng: np.random.Generator, kernels: Any) -> None:
    case = Run(rng)
    for config in kernels.below.configs:
        case.assert_close(case(louver.jit(kernels.with_configs([config])).emulate))
        tiles = louver.jit(kernels.with_configs([config]), family="register tiles")
        if config.kwargs["BM"] < 16:
            with pytest.raises(UnsupportedKernelError, match="16"):
                case(tiles.emulate)
        else:
            case.assert_close(case(tiles.emulate))


def test_what_becomes_of_each_config_is_said(rng: np.random.Generator, kernels: Any) -> None:
    case = Run(rng)
    out = np.full((M, N), np.nan, np.float16)
    known = (out, case.sparse, case.b, M, N, K, N, K, N)
    why = louver.jit(kernels.below).explain(*known)
    assert why.config == "BM=8, BN=16, BK=64, num_warps=4, num_stages=3 is the first config that Louver takes"
    assert str(why).startswith("product: ")
    assert "BK=64, num_warps=8, num_stages=4 makes the same kernel as one of these" in str(why)
    why = louver.jit(kernels.below, family="register tiles").explain(*known)
    assert why.config == "BM=64, BN=32, BK=64, num_warps=4, num_stages=3 is the first config that Louver takes"
    text = str(why)
    assert "BM=8, BN=16, BK=64, num_warps=4, num_stages=3 is refused: " in text
    assert "BM=32, BN=16, BK=64, num_warps=2, num_stages=3 is to be timed on a GPU" in text


def test_triton_s_pruning(rng: np.random.Generator, kernels: Any) -> None:
    case = Run(rng)
    out = np.full((M, N), np.nan, np.float16)
    known = (out, case.sparse, case.b, M, N, K, N, K, N)
    assert str(louver.jit(kernels.pruned_early).explain(*known).config).startswith("BM=8")
    modelled = louver.jit(kernels.modelled).explain(*known)
    assert str(modelled.config).startswith("BM=32") and not modelled.others


def test_descriptors_whose_blocks_a_hook_sets(rng: np.random.Generator, kernels: Any) -> None:
    case, out = Run(rng), np.full((M, N), np.nan, np.float16)
    tiles = {
        "d_tiles": louver.TensorDescriptor(out, (M, N), (N, 1), (1, 1)),
        "a_tiles": louver.TensorDescriptor.from_tensor(case.sparse, (1, 1)),
        "b_tiles": louver.TensorDescriptor.from_tensor(case.b, (1, 1)),
    }
    for run in (louver.jit(kernels.hooked), louver.jit(kernels.hooked).emulate):
        out[:] = np.nan
        run[Run.grid](**tiles, M=M, N=N, K=K)
        case.assert_close(out)
        assert tiles["a_tiles"].block_shape == (64, 64)


def test_static_assertions_refuse_a_config(rng: np.random.Generator, kernels: Any) -> None:
    case = Run(rng)
    kernel = louver.jit(kernels.asserting)
    case.assert_close(case(kernel.emulate))
    assert "is refused: " in str(kernel.explain(*_known(case)))


def _known(case: Run) -> tuple[Any, ...]:
    return (np.full((M, N), np.nan, np.float16), case.sparse, case.b, M, N, K, N, K, N)


def test_conflicts_with_triton_s_configs(rng: np.random.Generator, kernels: Any) -> None:
    case = Run(rng)
    with pytest.raises(ValueError, match="configs of triton.autotune set BM, BN, BK, num_warps, num_stages, got BK=64"):
        louver.jit(kernels.below)[Run.grid](*_known(case), BK=64)


def test_the_decorators_are_unwrapped(kernels: Any) -> None:
    from louver.user.decorators import unwrap

    function, layers = unwrap(kernels.above)
    assert layers is not None and (len(layers.above), len(layers.below)) == (1, 0)
    assert isinstance(SimpleNamespace(kernel=function).kernel.params, list) and layers.names == tuple(
        function.arg_names
    )


@pytest.mark.parametrize("name", ["split_k", "added_to"])
def test_sums_in_memory(rng: np.random.Generator, kernels: Any, name: str) -> None:
    """The kernels that device tests time with `reset_to_zero` and `restore_value`."""
    case, kernel = Run(rng), louver.jit(getattr(kernels, name))
    before = rng.standard_normal((M, N)).astype(np.float32)
    out = before.copy()
    kernel.emulate[lambda meta: (*Run.grid(meta), meta.get("SPLITS", 1))](out, case.sparse, case.b, M, N, K)
    expected = before.astype(np.float64) + case.pruned.astype(np.float64) @ case.b.astype(np.float64)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-4)


def test_authors_functions_see_a_dense_tensor_of_pytorch(rng: np.random.Generator) -> None:
    triton, torch = pytest.importorskip("triton"), pytest.importorskip("torch")
    from support.triton import described

    seen: list[Any] = []

    def prune(configs: list[Any], nargs: dict[str, Any], **kwargs: Any) -> list[Any]:
        w = nargs["w"]
        seen.append((w.shape, w.stride(), w.dtype, w.element_size(), kwargs["N"]))
        return configs[1:]

    configs = [triton.Config({"TM": 64, "TN": n}) for n in (128, 64)]
    tuned = triton.autotune(configs, key=["N"], prune_configs_by={"early_config_prune": prune})(
        described.rows_by_pointers
    )
    kernel = louver.jit(triton.heuristics({"TK": lambda args: 64 * (args["w"].dtype == torch.bfloat16)})(tuned))
    w = louver.prune(torch.from_numpy(rng.standard_normal((128, 128), np.float32)).bfloat16(), "2:4")
    x = torch.from_numpy(rng.standard_normal((64, 128), np.float32)).bfloat16()
    y = torch.full((64, 128), torch.nan)
    kernel.emulate[lambda meta: (128 // meta["TN"],)](x, louver.compress(w, "2:4"), y, N=128, K=128)
    assert seen == [(w.shape, w.stride(), torch.bfloat16, 2, 128)]
    assert kernel.best_config is configs[1]
    torch.testing.assert_close(y.double(), x.double() @ w.double().T, rtol=1e-2, atol=1e-2)


def test_triton_descriptors_of_sparse_tensors_are_copied_for_hooks(rng: np.random.Generator) -> None:
    """Triton's own descriptor checks its array when it is made. A weight that replaced the array has no address."""
    torch = pytest.importorskip("torch")
    made = pytest.importorskip("triton.tools.tensor_descriptor").TensorDescriptor
    from support.triton import autotuned

    a = louver.prune(rng.standard_normal((128, 64)).astype(np.float16), "2:4")
    b = torch.from_numpy(rng.standard_normal((64, 32)).astype(np.float16))
    d = torch.full((128, 32), float("nan"), dtype=torch.float16)
    tiles = {name: made.from_tensor(each, [1, 16]) for name, each in (("a_tiles", torch.from_numpy(a)), ("b_tiles", b))}
    tiles["a_tiles"].base = louver.compress(a, "2:4")
    given = {**tiles, "d_tiles": made.from_tensor(d, [1, 16]), "M": 128, "N": 32, "K": 64}
    kernel = louver.jit(autotuned.hooked)
    assert "128×32" in str(kernel.explain[lambda meta: (128 // meta["BM"], 1)](**given))
    assert list(tiles["a_tiles"].block_shape) == [1, 16]
    kernel.emulate[lambda meta: (128 // meta["BM"], 1)](**given)
    np.testing.assert_allclose(d.numpy(), a.astype(np.float64) @ b.numpy().astype(np.float64), rtol=2**-9, atol=0.02)
