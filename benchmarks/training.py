"""Training with fixed masks: `python benchmarks/training.py --texts FOLDER/acc0 FOLDER/acc1 --out FILE.json`.

- products: forward, gradient of x (dX) and of the weight (dW) of linear layers, bf16: dense, with an ordinary 2:4 mask, and
  with a transposable one. Sparse dX and dW have all that a backward pass runs: the transposed values, the kept elements.
- block: forward and backward of a block of Llama 3 8B, joined as `louver bench model` joins it, the same three ways.
- distill: steps of `distill_` on a model with one such block, with dense weights and masks, and as `distill_` chooses.
- loss: of a small language model after 2,000 steps, sparse beside dense weights with the same masks, data and seeds; f32
  masters, products in bf16. Texts are those of `benchmarks/accuracy_prepare.py`, else the topics of Python's help as bytes.

Protocol of products and block: bursts of graph replays in turns, medians (`louver/measure/protocol.py`); gradients of the
sparse ways are first compared with PyTorch's of the dense weight with zeros. Steps of `distill_` are timed by its report.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, Final

import torch
import transformers
from accuracy_data import Prepared
from torch import nn
from torch.nn import functional

import louver
import louver.torch
from louver.measure.machine import forbid_short_sums, require_torch
from louver.measure.model.stack import SHAPES, Block, Shape, Stack, angles_of, join_by_hand_
from louver.measure.protocol import Protocol, median
from louver.measure.record import write_record
from louver.measure.sustained import prepare, take_turns
from louver.torch import SparseLinear, SparseWeight
from louver.torch.accuracy import faster
from louver.torch.operators import OPS
from script import arguments, facts_of

LAYERS: Final = {"gate, up": (28672, 4096), "down": (4096, 14336), "q, k, v": (6144, 4096), "o": (4096, 4096)}
"""Outputs and inputs of the layers of a block of Llama 3 8B."""

TOKENS: Final = 8 * 2048

KINDS: Final = 4096
"""Most kinds of tokens of the small model."""

CLOSE: Final = 0.02
"""Most difference of a gradient, in units of its norm: both sides round to bf16."""

PROTOCOL: Final = Protocol(rounds=3, launches=1, burst_seconds=0.15, rotation_bytes=0)

WAYS: Final = {"ordinary": False, "transposable": True}
"""Whether a way's masks are transposable."""


def pruned(w: Any, transposable: bool) -> Any:
    return louver.prune(w, "2:4", transposable=transposable)


def same(name: str, mine: Any, wanted: Any) -> None:
    """Raises ArithmeticError if a gradient is another one."""
    error = float((mine.float() - wanted.float()).norm() / wanted.float().norm())
    if not error < CLOSE:
        raise ArithmeticError(f"{name}: the relative error is {error:.4f}")


def timed(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Milliseconds of each call."""
    loads = {name: prepare(torch, lambda _, call=call: call(), 1, PROTOCOL) for name, call in calls.items()}
    return {name: median(seconds) * 1e3 for name, seconds in take_turns(loads, PROTOCOL).items()}


def products(tokens: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for layer, (out, size) in LAYERS.items():
        dense = torch.randn(out, size, device="cuda", dtype=torch.bfloat16)
        x, g = (torch.randn(tokens, each, device="cuda", dtype=torch.bfloat16) for each in (size, out))
        calls: dict[str, Callable[[], object]] = {
            "forward dense": lambda x=x, w=dense: x @ w.t(),
            "dX dense": lambda g=g, w=dense: g @ w,
            "dW dense": lambda g=g, x=x: g.t() @ x,
        }
        for way, transposable in WAYS.items():
            w = pruned(dense, transposable)
            weight = SparseWeight.of(w, "2:4")
            values, indices = weight.values.detach(), weight.indices
            assert weight.is_transposable == transposable
            same(f"{layer} {way} dX", OPS.transposed(g, values, indices, size), g @ w)
            same(f"{layer} {way} dW", OPS.sampled(g, x, indices), OPS.take(g.t() @ x, indices))
            calls |= {
                f"forward {way}": lambda x=x, v=values, i=indices: OPS.linear(x, v, i),
                f"dX {way}": lambda g=g, v=values, i=indices, size=size: OPS.transposed(g, v, i, size),
                f"dW {way}": lambda g=g, x=x, i=indices: OPS.sampled(g, x, i),
            }
        for name, ms in timed(calls).items():
            product, way = name.split()
            rows.append({"layer": layer, "shape": [out, size], "product": product, "way": way, "ms": round(ms, 4)})
        torch.cuda.empty_cache()
    return rows


def trainable(block: Block, transposable: bool) -> Block:
    """The block with masks, whose linear layers are sparse."""
    made = copy.deepcopy(block)
    for name, layer in [(n, m) for n, m in made.named_modules() if isinstance(m, nn.Linear)]:
        layer.weight = nn.Parameter(pruned(layer.weight.detach(), transposable))
        made.set_submodule(name, SparseLinear.of(layer))
    return made


def block(sequences: int, length: int) -> list[dict[str, Any]]:
    """Milliseconds of forward and backward of a block."""
    shape = SHAPES["Llama 3 8B"]
    with torch.device("cuda"):
        stack = join_by_hand_(Stack(shape, 1, head=False).bfloat16(), scaled=False)
        x, y, g = (torch.randn(sequences, length, shape.width, dtype=torch.bfloat16) for _ in range(3))
        angles = angles_of(torch.arange(length, device="cuda"), shape.head)
    dense: Any = stack.blocks[0]
    dense.requires_grad_(True)
    models = {"dense": dense, **{way: trainable(dense, both) for way, both in WAYS.items()}}
    x.requires_grad_()

    def step(model: Any) -> None:
        for each in (x, *model.parameters()):
            each.grad = None
        h, z = model(x, y, angles, None)
        torch.autograd.backward((h, z), (g, g))

    times = timed({name: lambda model=model: step(model) for name, model in models.items()})
    return [{"way": name, "ms": round(ms, 3)} for name, ms in times.items()]


def distill(blocks: int, steps: int) -> list[dict[str, Any]]:
    """Milliseconds of a step of `distill_`, without the time before the first one."""
    shape = SHAPES["Llama 3 8B"]
    config = transformers.LlamaConfig(
        vocab_size=1024,
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=blocks,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
    )
    torch.manual_seed(0)
    with torch.device("cuda"):
        dense = transformers.LlamaForCausalLM(config).bfloat16().eval()
    data = torch.randint(1024, (34, 512))
    rows: list[dict[str, Any]] = []
    chosen = faster.is_faster
    for way, transposable in WAYS.items():
        model = copy.deepcopy(dense)
        louver.torch.prune_(model, transposable=transposable)
        for side in ("masks", "chosen"):
            faster.is_faster = chosen if side == "chosen" else lambda *_: False
            report = louver.torch.distill_(copy.deepcopy(model), data, teacher=dense, steps=steps)
            # The first look at the loss is behind the steps that make graphs.
            first, last = report.curve[0], report.curve[-1]
            ms = (last.seconds - first.seconds) / (last.step - first.step) * 1e3
            rows.append({"way": way, "side": side, "ms": round(ms, 3), "notes": list(report.notes)})
            torch.cuda.empty_cache()
    return rows


class Small(nn.Module):
    """A language model of blocks with one sequence's length, and a head with the embedding's weight."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.stack = Stack(Shape(512, 1536, 8, 2, 64, 2, vocabulary), 2, head=False)
        self.embedding = nn.Embedding(vocabulary, 512)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, tokens: Any) -> Any:
        x = self.embedding(tokens)
        angles = angles_of(torch.arange(tokens.shape[1], device=tokens.device), 64)
        y = functional.rms_norm(self.stack(x, angles, [None, None]), (512,))
        return y @ self.embedding.weight.t()


def text(folders: list[Path]) -> tuple[str, Any, int]:
    """The name of a text, its tokens, and their number of kinds."""
    if not folders:
        data = " ".join(topics.values()).encode()
        return "pydoc_data.topics, bytes", torch.tensor(list(data)), 256
    prepared = Prepared.read(folders)
    name = max(prepared.index["texts"], key=lambda each: len(prepared.tokens(each)))
    tokens = torch.from_numpy(prepared.tokens(name))
    # The most frequent tokens keep a number of their own.
    order = torch.bincount(tokens).argsort(descending=True, stable=True)
    rank = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
    return name, rank[tokens].clamp(max=KINDS - 1), KINDS


def losses(folders: list[Path], steps: int, seeds: int) -> dict[str, Any]:
    """The mean loss of held-out rows after training."""
    name, tokens, kinds = text(folders)
    rows = tokens[: len(tokens) // 257 * 257].view(-1, 257).cuda()
    held, rows = rows[:256], rows[256:]
    found: list[dict[str, Any]] = []
    for seed in range(seeds):
        for way, transposable in WAYS.items():
            row: dict[str, Any] = {"way": way, "seed": seed}
            for side in ("dense", "sparse"):
                torch.manual_seed(seed)
                model = Small(kinds).bfloat16()
                louver.torch.prune_(model, transposable=transposable)
                model = model.cuda()
                masks = {
                    p: (p != 0).to(p.dtype)
                    for n, p in model.named_parameters()
                    if n.endswith("weight") and "stack" in n
                }
                if side == "sparse":
                    for layer_name, layer in [(n, m) for n, m in model.named_modules() if isinstance(m, nn.Linear)]:
                        model.set_submodule(layer_name, SparseLinear.of(layer))
                begin = time.monotonic()
                row[side] = trained(model, masks, rows, held, steps, seed)
                row[f"{side}_seconds"] = round(time.monotonic() - begin, 1)
            found.append({**row, "ratio": round(row["sparse"] / row["dense"], 5)})
            print("loss", found[-1], flush=True)
    return {"text": name, "kinds": kinds, "rows": len(rows), "steps": steps, "losses": found}


def trained(model: Any, masks: dict[Any, Any], rows: Any, held: Any, steps: int, seed: int) -> float:
    """Train f32 masters by Adam, with a cosine to 0; forward and backward are a CUDA graph. Returns the loss of held-out
    rows.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    masters = [nn.Parameter(p.detach().float()) for p in parameters]
    for master in masters:
        master.grad = torch.zeros_like(master)
    optimizer = torch.optim.Adam(masters, lr=1e-3, betas=(0.9, 0.95), fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    draw, batch = torch.Generator().manual_seed(seed), rows[:32].clone()

    def loss(tokens: Any) -> Any:
        return functional.cross_entropy(model(tokens[:, :-1]).float().flatten(0, 1), tokens[:, 1:].flatten())

    for _ in range(3):
        grads = torch.autograd.grad(loss(batch), parameters)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        grads = torch.autograd.grad(loss(batch), parameters)
    kept = [(grad, masks[p]) for grad, p in zip(grads, parameters, strict=True) if p in masks]
    for _ in range(steps):
        batch.copy_(rows[torch.randint(len(rows), (32,), generator=draw).cuda()])
        graph.replay()
        if kept:
            torch._foreach_mul_(*map(list, zip(*kept, strict=True)))
        torch._foreach_copy_([master.grad for master in masters], list(grads))
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            torch._foreach_copy_(parameters, masters)
    with torch.no_grad():
        return round(sum(loss(part).item() for part in held.split(32)) / (len(held) // 32), 5)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--parts", default="products,block,distill,loss")
    parser.add_argument("--texts", type=Path, nargs="*", default=[])
    parser.add_argument("--steps", type=int, default=2000, help="of the loss")
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    forbid_short_sums(require_torch())
    parts: dict[str, Callable[[], Any]] = {
        "products": lambda: products(TOKENS),
        "block": lambda: block(8, 2048),
        "distill": lambda: distill(1, 60),
        "loss": lambda: losses(given.texts, given.steps, given.seeds),
    }
    record: dict[str, Any] = {**facts_of(torch, "training", __doc__), "tokens": TOKENS}
    for name in given.parts.split(","):
        record[name] = parts[name]()
        for row in record[name] if isinstance(record[name], list) else ():
            print(name, row, flush=True)
    if given.out is not None:
        write_record(given.out, record)


if __name__ == "__main__":
    main()
