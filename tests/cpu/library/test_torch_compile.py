"""torch.compile breaks its graph at Louver's functions, and gives the results of eager code."""

from __future__ import annotations

import inspect
import shutil
import subprocess
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats import dynamo
from louver.formats.tensor import SparseTensor
from louver.user.autotuned import AutotunedKernel
from louver.user.jit_kernel import JitKernel, Runner
from support.jit import kept_kernel
from support.triton.cases import CASES

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.filterwarnings("ignore:louver computes"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

M, N, K = 16, 8, 32
KINDS = (JitKernel, AutotunedKernel, Runner)


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


@pytest.fixture
def s(rng: np.random.Generator) -> SparseTensor:
    return louver.compress(louver.prune(rng.standard_normal((M, K)).astype(np.float32), "2:8"), "2:8")


def models(s: SparseTensor) -> dict[str, Callable[[Any], Any]]:
    plan = louver.plan("matmul", s, n=N)
    return {
        "linear": lambda x: torch.relu(louver.linear(x * 2, s, activation="relu")) + 1,
        "matmul": lambda x: louver.matmul(s, (x * 2).T) + 1,
        "right": lambda x: torch.relu((x * 2) @ s.T) + 1,
        "left": lambda x: (s @ (x * 2).T) + 1,
        "plan": lambda x: plan((x * 2).T.contiguous()) + 1,
        "prune": lambda x: louver.prune(x * 2, "2:4") + 1,
        "compress": lambda x: louver.linear(x * 2, louver.compress(x + 1, "2:8", method="magnitude")) + 1,
        "dense": lambda x: (x * 2) @ torch.from_numpy(s.dense()).T,
        "to": lambda x: louver.linear(x, s.to("cpu").T.T) + 1,
    }


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model_gives_the_eager_result(s: SparseTensor, backend: str) -> None:
    for name, model in models(s).items():
        compiled = torch.compile(model, backend=backend)
        for rows in (N, N, 3 * N):
            x = torch.randn(rows, K)
            assert torch.equal(compiled(x), model(x)), name


@pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler for Inductor")
def test_inductor_compiles_around_louver(s: SparseTensor) -> None:
    x = torch.randn(N, K)
    model = models(s)["linear"]
    torch.testing.assert_close(torch.compile(model)(x), model(x))


def test_graphs_stand_around_the_call(s: SparseTensor) -> None:
    graphs: list[list[str]] = []

    def backend(module: Any, inputs: Any) -> Any:
        graphs.append([node.name for node in module.graph.nodes if node.op.startswith("call")])
        return module.forward

    torch.compile(models(s)["linear"], backend=backend)(torch.randn(N, K))
    assert graphs == [["mul"], ["relu", "add"]]


@pytest.mark.parametrize("name", ["linear", "matmul", "right", "plan", "prune", "compress", "dense", "to"])
def test_a_full_graph_is_refused_with_the_reason(s: SparseTensor, name: str) -> None:
    with pytest.raises(torch._dynamo.exc.Unsupported, match=dynamo.REASON):
        torch.compile(models(s)[name], backend="eager", fullgraph=True)(torch.randn(N, K))


@pytest.mark.usefixtures("without_louver_torch")
def test_bf16_modules_compile(rng: np.random.Generator) -> None:
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense = torch.nn.Linear(K, K, dtype=torch.bfloat16)
            self.s = louver.compress(self.dense.weight, "2:4", method="magnitude")

        def forward(self, x: Any) -> Any:
            return torch.nn.functional.silu(louver.linear(self.dense(x), self.s, self.dense.bias)) * 2

    layer, x = Layer(), torch.randn(N, K, dtype=torch.bfloat16)
    compiled = torch.compile(layer, backend="eager")
    with torch.no_grad():
        assert torch.equal(compiled(x), layer(x))
    with pytest.raises(ValueError, match="only louver.linear has a gradient"):
        compiled(x)


def test_users_kernels_compile(rng: np.random.Generator) -> None:
    kernel = kept_kernel("made_descriptors")
    s = louver.compress(louver.prune(rng.standard_normal((M, 64)).astype(np.float16), "2:4"), "2:4")
    sizes = {"M": M, "N": N, "K": 64, "stride_a": 64, "stride_b": 64, "stride_d": N}

    def model(x: Any) -> Any:
        d = torch.zeros(M, N, dtype=torch.float16)
        kernel[(1, 1)](d=d, a=s, b=x * 2, **sizes, **CASES["made_descriptors"].constexprs)
        return d + 1

    x = torch.randn(N, 64, dtype=torch.float16)
    y = torch.compile(model, backend="eager")(x)
    assert torch.equal(y, model(x))
    np.testing.assert_allclose(y.numpy() - 1, np.asarray(s) @ (x * 2).T.numpy(), rtol=0.02, atol=0.05)


def test_every_public_function_is_opaque() -> None:
    public = [getattr(louver, name) for name in louver.__all__]
    functions = [each for each in public if isinstance(each, FunctionType)]
    assert len(functions) >= 13
    for function in functions:
        assert getattr(function, "_torchdynamo_disable", False), f"{function.__name__} needs @opaque"
    classes = [louver.SparseTensor, louver.GatedTensor, louver.Plan, louver.TensorDescriptor, *KINDS]
    for kind in classes:
        for name, function in inspect.getmembers(kind, lambda each: isinstance(each, FunctionType)):
            assert getattr(function, "_torchdynamo_disable", False), f"{kind.__name__}.{name}"


def test_torch_compile_may_be_imported_before_or_after_louver() -> None:
    after = """
import sys, warnings
warnings.simplefilter("ignore")
import numpy as np
{first}
import louver
from louver import linear
assert "torch" not in sys.modules or {imported}
s = louver.compress(louver.prune(np.random.default_rng(0).standard_normal((8, 32), np.float32), "2:8"), "2:8")
import torch
f = lambda x: linear(x * 2, s) + 1
x = torch.randn(8, 32)
assert torch.equal(torch.compile(f, backend="eager")(x), f(x))
seen = torch._dynamo.utils.counters["frames"]
assert seen["total"] == seen["ok"] == 2, seen
"""
    for first, imported in (("", False), ("import torch._dynamo", True)):
        code = after.format(first=first, imported=imported)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
