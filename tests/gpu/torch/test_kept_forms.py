"""Products on a GPU follow their values and indices: every kind of write, freed memory, and memory that is used again."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from support.torch_weights import close, sparse_weight

SIZE, ROWS = 320, 128
KINDS = [("2:4", "bfloat16"), ("1:2", "float32"), ("2:16", "float16"), ("4:8@4", "float32"), ("2:8@V16", "bfloat16")]


@pytest.fixture
def run(torch: Any) -> Any:
    from louver.torch.operators import product

    torch.manual_seed(14)
    return product


def right(torch: Any, run: Any, values: Any, indices: Any, pattern: str) -> None:
    x = torch.randn(17, SIZE, device="cuda").to(values.dtype)
    dense = torch.ops.louver.dense(values, indices, SIZE, pattern)
    close(torch, run(x, values, indices, pattern=pattern), x.double() @ dense.double().t())


@pytest.mark.parametrize(("pattern", "dtype"), KINDS)
def test_counted_writes(torch: Any, run: Any, pattern: str, dtype: str) -> None:
    w, other = (sparse_weight(torch, ROWS, SIZE, pattern, dtype, "cuda") for _ in range(2))
    right(torch, run, *w.arrays, pattern)
    w.values.mul_(-2)
    right(torch, run, *w.arrays, pattern)
    with torch.inference_mode():
        w.values.add_(1)
    right(torch, run, *w.arrays, pattern)
    w.indices.copy_(other.indices)
    right(torch, run, *w.arrays, pattern)


@pytest.mark.parametrize("options", [{"foreach": True}, {"fused": True}])
@pytest.mark.parametrize(("pattern", "dtype"), KINDS)
def test_optimizers(torch: Any, run: Any, pattern: str, dtype: str, options: dict[str, bool]) -> None:
    w = sparse_weight(torch, ROWS, SIZE, pattern, dtype, "cuda")
    values = torch.nn.Parameter(w.values.clone())
    optimizer = torch.optim.AdamW([values], lr=0.1, eps=1e-3, **options)
    for _ in range(3):
        x = torch.randn(17, SIZE, device="cuda").to(values.dtype)
        y = torch.ops.louver.linear(x, values, w.indices, pattern=pattern)
        close(torch, y, x.double() @ torch.ops.louver.dense(values, w.indices, SIZE, pattern).double().t())
        y.float().square().mean().backward()
        optimizer.step()
    right(torch, run, values.requires_grad_(False), w.indices, pattern)


@pytest.mark.parametrize(("pattern", "dtype"), KINDS)
def test_memory_that_is_used_again(torch: Any, run: Any, pattern: str, dtype: str) -> None:
    seen, again = set(), 0
    for _ in range(20):
        w = sparse_weight(torch, ROWS, SIZE, pattern, dtype, "cuda")
        again += w.indices.data_ptr() in seen
        seen.add(w.indices.data_ptr())
        right(torch, run, *w.arrays, pattern)
        del w
    assert again


def test_storage_that_is_emptied_and_filled(torch: Any, run: Any) -> None:
    """FSDP frees the memory of gathered parameters, and keeps their storage objects."""
    w = sparse_weight(torch, ROWS, SIZE, "2:4", "bfloat16", "cuda")
    values, indices = (each.clone() for each in w.arrays)
    right(torch, run, values, indices, "2:4")
    for each, source in zip((values, indices), w.arrays, strict=True):
        nbytes = each.untyped_storage().nbytes()
        each.untyped_storage().resize_(0)
        keep = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
        each.untyped_storage().resize_(nbytes)
        each.copy_(source)
        del keep
    right(torch, run, values, indices, "2:4")


def test_nothing_keeps_the_memory_of_a_weight(torch: Any, run: Any) -> None:
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    w = sparse_weight(torch, 4096, 4096, "2:4", "bfloat16", "cuda")
    right_x = torch.randn(3, 4096, device="cuda").bfloat16()
    run(right_x, *w.arrays)
    del w, right_x
    gc.collect()
    assert torch.cuda.memory_allocated() - before < 8 << 20


def test_uncounted_writes_after_refresh_and_verify(torch: Any, run: Any) -> None:
    from louver.torch import SparseLinear, verify

    layer = SparseLinear(SIZE, ROWS, False, "1:2", device="cuda", dtype=torch.float32).requires_grad_(False)
    x = torch.randn(17, SIZE, device="cuda")
    layer(x)
    assert verify(layer) == {}
    layer.weight.values.data.mul_(3)
    assert list(verify(layer)) == ["weight"]
    layer.weight.refresh_()
    assert verify(layer) == {}
    close(torch, layer(x), x @ layer.weight.dense().t())
    layer.weight.indices.data.copy_(SparseLinear(SIZE, ROWS, False, "1:2", device="cuda").weight.indices)
    assert list(verify(layer)) == ["weight"]
