"""Louver's tensors of plain tensors: kept, checked at each call, ended with their memory."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

from support.torch_weights import PATTERNS, close, sparse_weight

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

from louver.torch.core import Cores, cores  # noqa: E402
from louver.torch.operators import product  # noqa: E402

OPS = torch.ops.louver
SIZE = 48


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(6)


def right(w: Any, values: Any, indices: Any, x: Any) -> None:
    """The product is that of the present values and indices."""
    dense = OPS.dense(values, indices, SIZE, w.pattern)
    close(torch, product(x, values, indices, pattern=w.pattern), x.float() @ dense.float().t())


@pytest.mark.parametrize(("pattern", "dtype"), PATTERNS)
def test_a_frozen_weight_is_made_once(pattern: str, dtype: str) -> None:
    kept, w = Cores(), sparse_weight(torch, 24, SIZE, pattern, dtype)
    first = kept.of(*w.arrays, pattern, SIZE)
    assert kept.of(*w.arrays, pattern, SIZE) is first
    assert kept.of(w.values.detach(), w.indices.detach(), pattern, SIZE) is first
    assert kept.find(*w.arrays) == [first]


def test_a_counted_write_makes_a_new_tensor() -> None:
    w = sparse_weight(torch, 24, SIZE)
    x = torch.randn(3, SIZE).bfloat16()
    right(w, w.values, w.indices, x)
    w.values.mul_(2)
    right(w, w.values, w.indices, x)
    with torch.inference_mode():
        w.values.mul_(3)
    right(w, w.values, w.indices, x)
    other = sparse_weight(torch, 24, SIZE)
    w.indices.copy_(other.indices)
    right(w, w.values, w.indices, x)


@pytest.mark.parametrize("options", [{"foreach": True}, {"fused": True}, {"foreach": False}])
@pytest.mark.parametrize(("pattern", "dtype"), [("2:4", "float32"), ("2:8@V16", "float32")])
def test_products_follow_every_optimizer_even_if_it_is_not_counted(
    options: dict[str, bool], pattern: str, dtype: str
) -> None:
    w = sparse_weight(torch, 24, SIZE, pattern, dtype)
    values, x = torch.nn.Parameter(w.values.clone()), torch.randn(5, SIZE)
    optimizer = torch.optim.AdamW([values], lr=0.1, **options)
    seen = []
    for _ in range(3):
        y = OPS.linear(x, values, w.indices, pattern=pattern)
        close(torch, y, x @ OPS.dense(values, w.indices, SIZE, pattern).t(), 1e-4)
        seen.append(y.detach())
        y.square().sum().backward()
        optimizer.step()
    assert not torch.allclose(seen[0], seen[-1])
    values.requires_grad_(False)
    close(
        torch, product(x, values, w.indices, pattern=pattern), x @ OPS.dense(values, w.indices, SIZE, pattern).t(), 1e-4
    )


def test_compiled_training_follows_a_fused_optimizer() -> None:
    w = sparse_weight(torch, 24, SIZE, "2:4", "float32")
    values, x = torch.nn.Parameter(w.values.clone()), torch.randn(5, SIZE)
    optimizer = torch.optim.AdamW([values], lr=0.1, fused=True)
    step = torch.compile(lambda: OPS.linear(x, values, w.indices), backend="aot_eager", fullgraph=True)
    for _ in range(3):
        y = step()
        close(torch, y, x @ OPS.dense(values, w.indices, SIZE).t(), 1e-4)
        y.square().sum().backward()
        optimizer.step()


def test_inference_tensors_count_no_writes_and_are_never_kept_as_copies() -> None:
    x = torch.randn(3, SIZE).bfloat16()
    with torch.inference_mode():
        w = sparse_weight(torch, 24, SIZE)
        right(w, w.values, w.indices, x)
        w.values.mul_(2)
        right(w, w.values, w.indices, x)


@pytest.mark.parametrize("freed", [True, False])
def test_memory_that_is_used_again_is_another_weight(freed: bool) -> None:
    """As of an allocator that gives a freed address to the next tensor, or of a library that shares memory."""
    x = torch.randn(3, SIZE).bfloat16()
    memory = [bytearray(24 * 24 * 2), bytearray(24 * 6)]
    alive = []
    for _ in range(4):
        w = sparse_weight(torch, 24, SIZE)
        for into, array in zip(memory, w.arrays, strict=True):
            into[:] = array.view(torch.uint8).numpy().tobytes()
        kinds = ((memory[0], torch.bfloat16), (memory[1], torch.uint8))
        values, indices = (torch.frombuffer(each, dtype=kind).reshape(24, -1) for each, kind in kinds)
        right(w, values, indices, x)
        assert len(cores().find(values, indices)) == 1
        alive.append((values, indices))
        if freed:
            alive.clear()
            del values, indices
            gc.collect()


def test_nothing_outlives_its_arrays() -> None:
    kept, w = Cores(), sparse_weight(torch, 24, SIZE)
    s = kept.of(*w.arrays, "2:4", SIZE)
    assert len(kept) == 1 and s.shape == (24, SIZE)
    values = w.values
    del w
    gc.collect()
    assert len(kept) == 0
    del values


def test_rows_of_one_storage_are_weights_of_their_own() -> None:
    w, x = sparse_weight(torch, 24, SIZE), torch.randn(3, SIZE).bfloat16()
    whole = product(x, *w.arrays)
    for rows in (slice(0, 8), slice(0, 16), slice(8, 24)):
        assert torch.equal(product(x, w.values[rows], w.indices[rows]), whole[:, rows])


def test_data_writes_need_forget() -> None:
    w, x = sparse_weight(torch, 24, SIZE), torch.randn(3, SIZE).bfloat16()
    product(x, *w.arrays)
    w.values.data.mul_(2)
    cores().forget(*w.arrays)
    right(w, w.values, w.indices, x)


def test_threads_share_one_tensor() -> None:
    kept, w = Cores(), sparse_weight(torch, 24, SIZE)
    made: list[Any] = []
    threads = [threading.Thread(target=lambda: made.append(kept.of(*w.arrays, "2:4", SIZE))) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len({id(s) for s in made}) == 1


def test_arrays_in_two_places_are_refused() -> None:
    w = sparse_weight(torch, 24, SIZE)
    with pytest.raises(ValueError, match="values and indices are in one place, got values on cpu and indices on meta"):
        Cores().of(w.values, w.indices.to("meta"), "2:4", SIZE)
