"""The short way of a call like the last one: taken for the same arrays alone, and not where PyTorch does more."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from support.torch_weights import close

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

from torch._dynamo.backends.common import aot_autograd  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from louver.torch.core import cores  # noqa: E402
from louver.torch.known import KnownProducts, known_products  # noqa: E402
from louver.torch.tensor import SparseTensor  # noqa: E402

SIZE, ROWS = 48, 24
F = torch.nn.functional


class Warm:
    """A warm launch, which only GPUs have: counts its calls, and gives no product."""

    def __init__(self) -> None:
        self.options: list[Any] = []

    def launch(self, options: Any, x: Any, given: Any, out: Any) -> Any:
        self.options.append(options)
        return torch.zeros(())


def tensor() -> tuple[Any, list[Any]]:
    """A sparse parameter whose last call is known, as after a product on a GPU, and its launches."""
    s, warm = torch.nn.Parameter(SparseTensor.of(torch.randn(ROWS, SIZE).bfloat16(), prune=True), False), Warm()
    known_products().keep(s.values_, s.indices_, s.pattern, SIZE, None, False)
    core = cores().core(s.values_, s.indices_, s.pattern, SIZE, gated=False)
    # On a GPU, products read the values themselves.
    core.copied, core.state = False, SimpleNamespace(copies_values=False, warm=warm)
    return s, warm.options


def short(s: Any, each: Any) -> Any:
    """The result of the short way, or None."""
    return known_products().launched(each, s.values_, s.indices_, None, s.pattern, None, False)


def x() -> Any:
    return torch.randn(3, SIZE).bfloat16()


def test_a_call_like_the_last_one_is_launched() -> None:
    s, launched = tensor()
    assert F.linear(x(), s).dim() == 0 and F.linear(x(), s, torch.randn(ROWS)).dim() == 0
    s.values_.mul_(2)
    F.linear(x(), s)
    layer = torch.nn.Linear(SIZE, ROWS, bias=False)
    layer.weight = s
    with torch.no_grad():
        assert layer(x()).dim() == 0
    assert launched == [("linear", None, "auto", None, False)] * 4


def moved(s: Any) -> None:
    s.values_.data = s.values_.data.clone()


def rows(s: Any) -> None:
    s.values_.data = s.values_.data[:12]


def turned(s: Any) -> None:
    s.values_.data = s.values_.data.as_strided((ROWS, SIZE // 2), (1, ROWS))


def another_type(s: Any) -> None:
    s.values_.data = s.values_.data.view(torch.float16)


def other_indices(s: Any) -> None:
    s.indices_.copy_(tensor()[0].indices_)


def trained(s: Any) -> None:
    s.values_.requires_grad_()


CHANGES = (moved, rows, turned, another_type, other_indices, trained)


@pytest.mark.parametrize("change", CHANGES)
def test_other_arrays_are_not_those_of_the_last_call(change: Callable[[Any], None]) -> None:
    s, launched = tensor()
    assert short(s, x()) is not None
    change(s)
    assert short(s, x()) is None
    assert len(launched) == 1


def test_copies_of_values_are_compared_with_them() -> None:
    s, _launched = tensor()
    cores().core(s.values_, s.indices_, s.pattern, SIZE, gated=False).copied = True
    assert short(s, x()) is not None
    s.values_.mul_(2)
    assert short(s, x()) is None


MODES: tuple[Callable[[], Any], ...] = (
    lambda: torch.autocast("cpu", torch.float16),
    lambda: FakeTensorMode(allow_non_fake_inputs=True),
    lambda: FlopCounterMode(display=False),
)


@pytest.mark.parametrize("mode", MODES)
def test_modes_that_change_a_call_see_it(mode: Callable[[], Any]) -> None:
    s, launched = tensor()
    with mode():
        assert short(s, x()) is None
    assert short(s, x()) is not None and len(launched) == 1


def test_traces_and_transforms_see_a_call() -> None:
    s, launched = tensor()
    seen: list[Any] = []

    def call(each: Any) -> Any:
        seen.append(short(s, each))
        return each

    make_fx(call)(x())
    torch.func.vmap(call)(torch.randn(2, 3, SIZE).bfloat16())
    torch.func.grad(lambda each: call(each).sum())(torch.randn(3, SIZE))
    assert seen == [None] * 3 and launched == []


def test_compiled_code_has_the_operator() -> None:
    s, _ = tensor()
    targets: list[Any] = []

    def graph(module: Any, _: Any) -> Any:
        targets.extend(node.target for node in module.graph.nodes if node.op == "call_function")
        return module.forward

    compiler = aot_autograd(fw_compiler=graph)
    torch.compile(lambda each: F.linear(each, s), fullgraph=True, backend=compiler)(x())
    assert torch.ops.louver.linear.default in targets


def test_freed_weights_end_what_is_known() -> None:
    s, _ = tensor()
    kept = KnownProducts()
    kept.keep(s.values_, s.indices_, s.pattern, SIZE, None, False)
    kept.keep(s.values_, s.indices_, s.pattern, SIZE, "relu", False)
    assert len(kept) == 2
    del s
    gc.collect()
    assert len(kept) == 0


def test_forgotten_weights_are_unknown() -> None:
    s, launched = tensor()
    cores().forget(s.values_)
    assert short(s, x()) is None and launched == []


def test_weights_made_in_inference_mode_keep_no_call() -> None:
    with torch.inference_mode():
        s = SparseTensor.of(torch.randn(ROWS, SIZE).bfloat16(), prune=True)
        known_products().keep(s.values_, s.indices_, s.pattern, SIZE, None, False)
        assert short(s, x()) is None


@pytest.mark.parametrize("mode", [nullcontext, torch.no_grad, torch.inference_mode])
def test_without_a_gpu_every_call_takes_the_long_way(mode: Callable[[], Any]) -> None:
    s = SparseTensor.of(torch.randn(ROWS, SIZE).bfloat16(), prune=True)
    with mode():
        for _ in range(2):
            each = x()
            close(torch, F.linear(each, s), each @ s.to_dense().t())
