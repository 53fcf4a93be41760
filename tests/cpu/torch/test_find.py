"""`louver.jit(…, find=…)` and writes that `_version` does not show: the next call sees them, or a promise says that there are none."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import louver
from louver.user.finding import FindingKernel
from support.finds import TILE, Matrices, arguments, call, finding

torch = pytest.importorskip("torch")
found_kernels = pytest.importorskip(
    "support.triton.found", reason="Triton is not installed: pip install 'louver[triton]'"
)

M, N, K = 9, 24, 64


@pytest.fixture
def kernel() -> FindingKernel:
    return finding(found_kernels.matmul)


def tensors(m: Matrices) -> tuple[Any, Any, Any]:
    """x, the weight as it is stored, y."""
    return tuple(torch.from_numpy(each.copy()) for each in (m.x, m.stored, m.output()))


def pruned(rng: np.random.Generator) -> Any:
    return torch.from_numpy(louver.prune(rng.standard_normal((N, K)).astype(np.float16), "2:4"))


def in_place(w: Any, new: Any) -> None:
    with torch.no_grad():
        w.copy_(new)


def through_data(w: Any, new: Any) -> None:
    w.data[:] = new


def other_data(w: Any, new: Any) -> None:
    w.data = new.clone()


def through_numpy(w: Any, new: Any) -> None:
    w.detach().numpy()[...] = new.numpy()


def through_dlpack(w: Any, new: Any) -> None:
    torch.from_dlpack(w.detach())[:] = new


def breaks_the_pattern(w: Any, new: Any) -> None:
    w.data[1:3] = 0.5


def fused_optimizer(w: Any, new: Any) -> None:
    w.grad = torch.randn_like(w)
    torch.optim.SGD([w], lr=0.1, fused=True).step()
    w.grad = None


WRITES = (in_place, through_data, other_data, through_numpy, through_dlpack, breaks_the_pattern, fused_optimizer)


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_the_next_call_sees_a_write(
    rng: np.random.Generator, kernel: FindingKernel, write: Callable[[Any, Any], None]
) -> None:
    m = Matrices.of(rng, M, N, K)
    x, stored, y = tensors(m)
    w = torch.nn.Parameter(stored)
    for done in (False, True):
        if done:
            write(w, pruned(rng))
        y.fill_(float("nan"))
        with torch.no_grad():
            call(kernel, m.grid, x, w.T, y)
        m.assert_right(y.numpy(), w.detach().numpy().T)


def test_inference_tensors_are_found(rng: np.random.Generator, kernel: FindingKernel) -> None:
    m = Matrices.of(rng, M, N, K)
    with torch.inference_mode():
        x, w, y = tensors(m)
        for each in (kernel, finding(found_kernels.matmul, frozen=("w",))):
            call(each, m.grid, x, w.T, y)
            m.assert_right(y.numpy())
            assert "w: " in str(each.explain(*arguments(x, w.T, y), **TILE))


@pytest.mark.parametrize("frozen", [(), ("w",)], ids=str)
def test_an_address_used_again_has_its_own_weight(rng: np.random.Generator, frozen: tuple[str, ...]) -> None:
    kernel, seen = finding(found_kernels.matmul, frozen=frozen), set[int]()
    again = 0
    for _ in range(6):
        m = Matrices.of(rng, M, N, K)
        x, w, y = tensors(m)
        again += w.data_ptr() in seen
        seen.add(w.data_ptr())
        call(kernel, m.grid, x, w.T, y)
        m.assert_right(y.numpy())
        del w
        gc.collect()
    assert len(kernel._remembered._entries) <= 1, "the tensors of memory that is gone are dropped"


def test_other_memory_of_a_storage_that_died_is_no_weight_of_its_own(rng: np.random.Generator) -> None:
    """A storage's record has the address of a dead one only if nobody holds the dead one weakly."""
    kernel = finding(found_kernels.matmul, frozen=("w",))
    m = Matrices.of(rng, M, N, K)
    x, w, y = tensors(m)
    call(kernel, m.grid, x, w.T, y)
    (key,) = kernel._remembered._entries
    del w
    others = [torch.zeros(N, K, dtype=torch.float16) for _ in range(64)]
    assert all(("torch", each.untyped_storage()._cdata) != key for each in others)


def test_a_frozen_weight_is_looked_at_once(rng: np.random.Generator) -> None:
    kernel = finding(found_kernels.matmul, frozen=("w",))
    m = Matrices.of(rng, M, N, K)
    x, w, y = tensors(m)
    call(kernel, m.grid, x, w.T, y)
    new = pruned(rng)
    w.copy_(new)
    call(kernel, m.grid, x, w.T, y)
    m.assert_right(y.numpy())
    kernel.forget(w[: N // 2])
    call(kernel, m.grid, x, w.T, y)
    m.assert_right(y.numpy(), new.numpy().T)
    w.fill_(1)
    kernel.forget(w)
    call(kernel, m.grid, x, w.T, y)
    m.assert_right(y.numpy(), w.numpy().T)
    assert "w: frozen, holds no pattern" in str(kernel.explain(*arguments(x, w.T, y), **TILE))


def test_threads_have_their_own_weights(rng: np.random.Generator, kernel: FindingKernel) -> None:
    frozen = finding(found_kernels.matmul, frozen=("w",))
    wrong: list[BaseException] = []
    given = [Matrices.of(rng, M, N, K, holds=index != 1) for index in range(3)]

    def work(m: Matrices) -> None:
        try:
            x, w, y = tensors(m)
            for _ in range(3):
                for each in (kernel, frozen):
                    y.fill_(float("nan"))
                    call(each, m.grid, x, w.T, y)
                    m.assert_right(y.numpy())
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(m,)) for m in given]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_forget_takes_an_array(rng: np.random.Generator, kernel: FindingKernel) -> None:
    with pytest.raises(TypeError, match="expected an array"):
        kernel.forget("w")
    kernel.forget(torch.zeros(3))
