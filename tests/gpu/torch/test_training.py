"""Training with fixed masks on a GPU: products follow optimizers and graphs, and nothing waits."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import louver
import louver.torch
from support.torch_weights import close, sparse_weight

torch: Any = pytest.importorskip("torch")

from louver.formats.pattern import Pattern  # noqa: E402
from louver.torch import turned  # noqa: E402
from louver.torch.columns import columns, expanded, taken  # noqa: E402
from louver.torch.linear import SparseLinear, SparseWeight  # noqa: E402
from louver.torch.operators import OPS  # noqa: E402

nn = torch.nn
PATTERNS = ["2:4", "1:2", "3:7", "4:8", "2:8@4", "16:32@8", "5:200", "2:8@V16"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float8_e4m3fn"])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(("rows", "size"), [(160, 400), (37, 203)])
def test_taken_is_what_the_host_takes(pattern: str, dtype: str, rows: int, size: int) -> None:
    torch.manual_seed(3)
    w = sparse_weight(torch, rows, size, pattern, "float32")
    found, wide = Pattern.parse(pattern), torch.randn(rows, 2 * size).to(getattr(torch, dtype)).cuda()
    # Columns from `size` on are of no interest.
    inside = columns(w.indices, found, rows, size) < size
    pitched = wide[:, :size]
    for given in (pitched, pitched.contiguous(), pitched.t().contiguous().t()):
        mine, wanted = taken(given, w.indices.cuda(), found), taken(given.cpu(), w.indices, found)
        assert torch.equal(mine.cpu().float()[inside], wanted.float()[inside])


SIZES = [
    (512, 768, torch.bfloat16),
    (2048, 1024, torch.bfloat16),
    (516, 760, torch.float16),
    (260, 132, torch.bfloat16),
    (131, 72, torch.float16),
]


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float32"])
@pytest.mark.parametrize(("rows", "size"), [(512, 768), (23, 44), (257, 132), (1030, 2048)])
def test_turned_values_are_those_of_the_transpose(dtype: str, rows: int, size: int) -> None:
    torch.manual_seed(5)
    w = louver.prune(torch.randn(rows, size, device="cuda"), "2:4", transposable=True)
    w = torch.where((w != 0) & (w.to(getattr(torch, dtype)).float() == 0), 1.0, w).to(getattr(torch, dtype))
    values, indices = (each.detach() for each in (SparseWeight.of(w, "2:4").values, SparseWeight.of(w, "2:4").indices))
    found = turned._seen(values, indices, "2:4", size)
    assert found.indices is not None
    out = turned.empty_values(size, rows, Pattern(2, 4), values)
    mine = turned._turn(values, indices, found, "2:4", out)
    assert torch.equal(mine.float(), taken(w.t(), found.indices, Pattern(2, 4)).float())


def layer(transposable: bool, out: int = 512, size: int = 768, dtype: Any = torch.bfloat16) -> Any:
    torch.manual_seed(7)
    dense = nn.Linear(size, out, device="cuda", dtype=dtype)
    louver.torch.prune_(nn.Sequential(dense), transposable=transposable)
    return dense


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("transposable", [False, True])
@pytest.mark.parametrize("tokens", [1, 17, 300, 2048])
def test_gradients_are_those_of_the_dense_layer(transposable: bool, tokens: int, packed: bool) -> None:
    dense = layer(transposable)
    sparse = SparseLinear.of(dense)
    if packed:
        sparse.weight.pack_()
    x = torch.randn(tokens, 768, device="cuda", dtype=torch.bfloat16)
    g = torch.randn(tokens, 512, device="cuda", dtype=torch.bfloat16)
    found: list[Any] = []
    for each in (dense, sparse):
        given = x.clone().requires_grad_()
        y = each(given)
        y.backward(g)
        found.append((y, given.grad))
    for mine, wanted in zip(found[1], found[0], strict=True):
        close(torch, mine, wanted)
    close(torch, sparse.weight.values.grad, OPS.take(dense.weight.grad, sparse.weight.natural()))
    assert sparse.weight.is_transposable == transposable


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}, {"foreach": False}])
def test_every_step_is_followed(options: dict[str, bool]) -> None:
    sparse = SparseLinear.of(layer(True))
    optimizer = torch.optim.AdamW([sparse.weight.values, sparse.bias], lr=0.05, **options)
    for _ in range(5):
        x = torch.randn(300, 768, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        y = sparse(x)
        w = sparse.weight.dense().detach()
        close(torch, y, nn.functional.linear(x, w, sparse.bias))
        optimizer.zero_grad()
        y.backward(g := torch.randn_like(y))
        close(torch, x.grad, g @ w)
        optimizer.step()
    # Writes that PyTorch does not count.
    sparse.weight.values.data.mul_(-3)
    x = torch.randn(300, 768, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    sparse(x).backward(g := torch.randn(300, 512, device="cuda", dtype=torch.bfloat16))
    close(torch, x.grad, g @ sparse.weight.dense().detach())


def test_steps_after_the_first_wait_for_nothing() -> None:
    sparse = SparseLinear.of(layer(True))
    x = torch.randn(300, 768, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    for _ in range(2):
        sparse(x).square().mean().backward()
    torch.cuda.synchronize()
    # Replaced by a long kernel in front, the queue is still busy when the host is done.
    torch.cuda._sleep(int(2e9))
    done = torch.cuda.Event()
    sparse(x).square().mean().backward()
    done.record()
    assert not done.query()
    torch.cuda.synchronize()


def test_a_captured_step_is_sparse_and_follows_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    sparse = SparseLinear.of(layer(True))
    values, bias = sparse.weight.values, sparse.bias
    x = torch.randn(256, 768, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    g = torch.randn(256, 512, device="cuda", dtype=torch.bfloat16)
    made: list[Any] = []
    borrowed = turned.borrowed
    monkeypatch.setattr(turned, "borrowed", lambda *given: made.append(given) or borrowed(*given))

    def step() -> Any:
        return torch.autograd.grad(sparse(x), (x, values, bias), g)

    for _ in range(2):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    # A tensor for all steps before the capture, and one in the memory of the graph.
    assert len(made) == 2
    for factor in (1.0, -2.0, 0.5):
        with torch.no_grad():
            values.mul_(factor)
        graph.replay()
        close(torch, found[0], g @ sparse.weight.dense().detach())
        close(torch, found[1], OPS.take(g.t() @ x.detach(), sparse.weight.indices))
    with pytest.raises(RuntimeError, match="a weight whose gradients a CUDA graph captured keeps its mask"):
        sparse.weight.rewrite_(SparseLinear.of(layer(True)).weight)


def test_weights_share_the_memory_of_transposed_values() -> None:
    """Weights of other sizes and types by turns, on two streams."""
    made = [SparseLinear.of(layer(True, out, size, kind)) for out, size, kind in SIZES]
    streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
    for turn in range(6):
        with torch.cuda.stream(streams[turn % 2]):
            results: list[Any] = []
            for each in made:
                kind = each.weight.dtype
                x = torch.randn(300, each.in_features, device="cuda", dtype=kind, requires_grad=True)
                g = torch.randn(300, each.out_features, device="cuda", dtype=kind)
                each(x).backward(g)
                results.append((x.grad, g, each))
            for grad, g, each in results:
                close(torch, grad, g @ each.weight.dense().detach())
                with torch.no_grad():
                    each.weight.values.mul_(-1.5)
        torch.cuda.synchronize()


def test_memory_of_a_step_is_bounded() -> None:
    """No dense gradient of the whole weight, and no second copy of the values that stays."""
    sparse = SparseLinear.of(layer(True, 16384, 8192)).requires_grad_(False)
    sparse.weight.values.requires_grad_(True)
    x = torch.randn(64, 8192, device="cuda", dtype=torch.bfloat16)
    for _ in range(2):
        sparse.weight.values.grad = None
        sparse(x).square().mean().backward()
    before = torch.cuda.memory_allocated()
    sparse.weight.values.grad = None
    torch.cuda.reset_peak_memory_stats()
    sparse(x).square().mean().backward()
    nbytes = 16384 * 8192 * 2
    assert torch.cuda.max_memory_allocated() - before < 0.75 * nbytes
    assert torch.cuda.memory_allocated() <= before + (1 << 20)


def test_compiled_steps_and_checkpoints() -> None:
    dense = nn.Sequential(layer(True), nn.GELU(), layer(True, 768, 512))
    plain = copy.deepcopy(dense)
    louver.torch.compress_(plain, force=True)
    other = copy.deepcopy(plain)
    compiled = torch.compile(other, fullgraph=True)
    x = torch.randn(300, 768, device="cuda", dtype=torch.bfloat16)
    for made, run in ((plain, plain), (other, compiled)):
        optimizer = torch.optim.SGD([each for each in made.parameters() if each.requires_grad], lr=0.5)
        for _ in range(4):
            optimizer.zero_grad()
            run(x).float().square().mean().backward()
            optimizer.step()
    close(torch, other(x), plain(x))


@pytest.mark.parametrize("transposable", [False, True])
def test_masks_that_move(transposable: bool) -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)).to("cuda", torch.bfloat16)
    masks = louver.torch.mask_(model, every=3, transposable=transposable)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    target = torch.randn(256, 256, device="cuda", dtype=torch.bfloat16) / 16
    start, losses = model[0].indices.clone(), []
    for _ in range(40):
        x = torch.randn(512, 256, device="cuda", dtype=torch.bfloat16)
        loss = (model(x) - x @ target).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        masks.step()
        losses.append(loss.detach())
        kept = expanded(OPS.take(model[0].weight.detach(), model[0].indices), model[0].indices, Pattern(2, 4), 256)
        close(torch, model[0](x), nn.functional.linear(x, kept, model[0].bias))
    assert losses[-1] < 0.9 * losses[0] and not torch.equal(start, model[0].indices)
    host = copy.deepcopy(model).cpu()
    host[0].choose_()
    model[0].choose_()
    assert torch.equal(host[0].indices, model[0].indices.cpu())
    masks.settle_()
    assert model[0].weight.is_transposable == transposable


def test_a_distillation_trains_sparse_what_is_faster() -> None:
    transformers: Any = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=500, hidden_size=2048, intermediate_size=8192, num_hidden_layers=1, num_attention_heads=16
    )
    torch.manual_seed(0)
    with torch.device("cuda"):
        dense = transformers.LlamaForCausalLM(config).bfloat16().eval()
    model = copy.deepcopy(dense)
    louver.torch.prune_(model, transposable=True)
    old = {name: p.detach().clone() for name, p in model.named_parameters()}
    report = louver.torch.distill_(model, torch.randint(500, (20, 512)), teacher=dense, steps=25, batch=16)
    assert any("sparse layers train their values" in note for note in report.notes), report.notes
    assert not any("CUDA graph" in note for note in report.notes), report.notes
    assert report.curve[-1].loss < report.curve[0].loss
    for name, p in model.named_parameters():
        if "proj" in name:
            assert not p[old[name] == 0].any() and not torch.equal(p, old[name])
