"""Tensor parallel blocks of Llama-70B's shapes, sparse beside dense, on all GPUs of a host. Prints a table, and JSON with
--out.

A gated MLP (8192, 28672) and an attention block (64 heads, 8 heads of keys) without norms; 4,096 tokens of one sequence,
eager, or 16 tokens as replays of a CUDA graph. Both sides have the same blocks, styles and reduction. Dense e4m3 is
`torch._scaled_mm` with scales of rows and tokens, and tokens quantized by the kernel that the sparse side uses. A time is
that of the slowest rank, the median of turns in which the sides alternate. "one" is a block alone on each GPU.

--reduce: how the parts of sums become one at 16 tokens: by NCCL, or by PyTorch's one-shot all-reduce on symmetric memory,
without multicast.

    python benchmarks/parallel.py [--out parallel.json]        (a process for each GPU)
    torchrun --nproc-per-node 4 benchmarks/parallel.py         (or as many as torchrun starts)
    python benchmarks/parallel.py --backend gloo --ranks 2 --width 2048 --inner 1024 --tokens 300,4 --reduce nccl   (a trial without GPUs)
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import Partial
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn import functional

import louver
import louver.torch
from louver.torch.parallel import ColwiseParallel, RowwiseParallel
from louver.torch.tokens import quantized_rows, quantized_tokens
from script import arguments

HEAD, TURNS, SECONDS = 128, 5, 0.02
SMALL = 256
"""Most tokens of a call that a graph captures, and that is reduced in one shot."""


class Reduction:
    """The sum over ranks. `one` stands for a rank alone."""

    def __init__(self, kind: str) -> None:
        self.kind, self._buffers = kind, dict[Any, Any]()

    def __call__(self, y: Tensor) -> Tensor:
        if self.kind == "one":
            return y
        if self.kind == "one-shot" and y.numel() * y.itemsize <= 1 << 19:
            group: Any = dist.group.WORLD
            key = y.shape, y.dtype
            if key not in self._buffers:
                memory: Any = importlib.import_module("torch.distributed._symmetric_memory")
                made = memory.empty(y.shape, dtype=y.dtype, device=y.device)
                memory.rendezvous(made, group)
                self._buffers[key] = made
            buffer = self._buffers[key]
            return torch.ops.symm_mem.one_shot_all_reduce_copy(buffer, y.contiguous(), "sum", group.group_name)
        dist.all_reduce(y)
        return y


class Mlp(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Attention(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj, self.v_proj = nn.Linear(width, width // 8, bias=False), nn.Linear(width, width // 8, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q = self.q_proj(x)
        k = self.k_proj(x)
        v = self.v_proj(x)
        q, k, v = (each.unflatten(-1, (-1, HEAD)).transpose(0, 1)[None] for each in (q, k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(y[0].transpose(0, 1).flatten(1))


class Scaled(nn.Module):
    """A dense layer in e4m3 with scales of rows and tokens."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        values, scale = quantized_rows(weight, torch.float8_e4m3fn)
        self.values, self.scale = nn.Buffer(values), nn.Buffer(scale[None])

    def forward(self, x: Tensor) -> Tensor:
        operand, tokens = quantized_tokens(x, torch.float8_e4m3fn)
        return torch._scaled_mm(
            operand, self.values.t(), tokens[:, None], self.scale, out_dtype=x.dtype, use_fast_accum=True
        )


BLOCKS = {"mlp": Mlp, "attention": Attention}
NAMES = ("gate_proj", "up_proj", "down_proj", "q_proj", "k_proj", "v_proj", "o_proj")
ROWS = ("down_proj", "o_proj")


def built(name: str, sizes: tuple[int, int], kind: str, sparse: bool, alone: bool, device: Any) -> Any:
    """A block of this rank's part, whose outputs are parts of sums, or the whole block."""
    torch.manual_seed(70)
    with torch.device(device):
        block = BLOCKS[name](*sizes).to(torch.bfloat16).requires_grad_(False)
    model = nn.ModuleDict({"block": block})
    louver.torch.prune_(model)
    if sparse:
        louver.torch.compress_(model, force=True)
        if kind == "e4m3":
            louver.torch.quantize_(model)
    names = [each for each in NAMES if hasattr(block, each)]
    if not alone:
        mesh = dist.init_device_mesh(torch.device(device).type, (dist.get_world_size(),))
        styles = {
            f"block.{each}": RowwiseParallel(output_layouts=Partial()) if each in ROWS else ColwiseParallel()
            for each in names
        }
        # All ranks have made the same weights.
        parallelize_module(model, mesh, styles, src_data_rank=None)
    if kind == "e4m3" and not sparse:
        for each in names:
            weight: Any = getattr(block, each).weight
            setattr(block, each, Scaled(weight.to_local() if hasattr(weight, "to_local") else weight))
    return block


def runs(block: Any, reduce: Reduction, x: Tensor, graph: bool) -> Callable[[], Tensor]:
    """A call of the block with its reduction, or the replay of one."""
    for _ in range(2):
        y = reduce(block(x))
    if not graph:
        return lambda: reduce(block(x))
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured, capture_error_mode="thread_local"):
        y = reduce(block(x))

    def replay() -> Tensor:
        captured.replay()
        return y

    return replay


def seconds(run: Callable[[], Any], count: int, device: Any) -> float:
    """Seconds of a call on the slowest rank."""
    cuda = torch.device(device).type == "cuda"
    run()
    if cuda:
        torch.cuda.synchronize()
    dist.barrier()
    start = time.perf_counter()
    if cuda:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
    for _ in range(count):
        run()
    taken = time.perf_counter() - start
    if cuda:
        end.record()
        end.synchronize()
        taken = begin.elapsed_time(end) * 1e-3
    slowest = torch.tensor(taken / count, dtype=torch.float64, device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return float(slowest)


def difference(y: Tensor, expected: Tensor) -> float:
    """The greatest difference, relative to the greatest magnitude."""
    return float((y.float() - expected.float()).abs().max() / expected.float().abs().max())


@torch.no_grad()
def measured(options: Any, device: Any) -> list[dict[str, Any]]:
    """The rows of the record, saved and printed as they are found."""
    rows: list[dict[str, Any]] = []
    sizes = options.width, options.inner
    kinds = ["one", "nccl", *(["one-shot"] if options.reduce == "one-shot" else [])]
    cases = [(kind, name) for kind in options.kinds.split(",") for name in BLOCKS]
    for kind, name in cases:
        made = {
            (alone, sparse): built(name, sizes, kind, sparse, alone, device)
            for alone in (True, False)
            for sparse in (False, True)
        }
        for n in (int(each) for each in options.tokens.split(",")):
            x = torch.randn(n, options.width, generator=torch.Generator().manual_seed(n)).to(device, torch.bfloat16)
            alone: dict[str, Any] = {}
            for reduce in kinds[: 3 if n <= SMALL else 2]:
                blocks = {side: made[reduce == "one", side == "sparse"] for side in ("dense", "sparse")}
                row = {"block": name, "kind": kind, "tokens": n, "reduce": reduce}
                row |= timed(blocks, Reduction(reduce), x, alone)
                alone = alone or row
                rows.append({key: each for key, each in row.items() if not key.endswith("_y")})
                if dist.get_rank() == 0:
                    texts = (
                        f"{key}={each:.4g}" if isinstance(each, float) else f"{key}={each}"
                        for key, each in rows[-1].items()
                    )
                    print(*texts, flush=True)
                saved(options, rows, device)
    return rows


def timed(blocks: dict[str, Any], reduce: Reduction, x: Tensor, alone: dict[str, Any]) -> dict[str, Any]:
    """Times of both sides in turns. alone: the row of a block on each GPU, or nothing for that row itself."""
    ranks, graph = (dist.get_world_size() if alone else 1), x.is_cuda and len(x) <= SMALL
    calls = {side: runs(block, reduce, x, graph) for side, block in blocks.items()}
    counts = {side: max(2, min(200, int(SECONDS / seconds(call, 1, x.device)))) for side, call in calls.items()}
    times: dict[str, list[float]] = {side: [] for side in calls}
    for _ in range(TURNS):
        for side, call in calls.items():
            times[side].append(seconds(call, counts[side], x.device) * 1e6)
    us = {side: statistics.median(each) for side, each in times.items()}
    row: dict[str, Any] = {"ranks": ranks, "graph": graph, "speedup": us["dense"] / us["sparse"]}
    for side, call in calls.items():
        row[f"{side}_us"], y = us[side], call().float()
        if alone:
            expected = alone[f"{side}_y"]
            row[f"{side}_difference"] = float((y - expected).abs().max() / expected.abs().max())
            row[f"{side}_efficiency"] = alone[f"{side}_us"] / us[side] / ranks
        else:
            row[f"{side}_y"] = y.clone()
    if alone:
        row["of_dense"] = row["sparse_efficiency"] / row["dense_efficiency"]
    return row


def saved(options: Any, rows: list[dict[str, Any]], device: Any) -> None:
    """Write the record, also of the rows so far."""
    if options.out is None or dist.get_rank():
        return
    cuda = torch.device(device).type == "cuda"
    cards = [torch.cuda.get_device_name(each) for each in range(torch.cuda.device_count())] if cuda else ["CPU"]
    record = {
        "cards": cards[: dist.get_world_size()],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"louver": louver.__version__, "torch": torch.__version__},
        "sizes": {"width": options.width, "inner": options.inner, "head": HEAD},
        "protocol": "`python benchmarks/parallel.py --out FILE.json`: the blocks dense and sparse, in one process group. "
        f"Median of {TURNS} turns in which dense and sparse alternate, each of the slowest rank.",
        "rows": rows,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=1) + "\n")


def process(rank: int, options: Any) -> None:
    """One rank."""
    device = f"cuda:{rank}" if options.backend == "nccl" else "cpu"
    if options.backend == "nccl":
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(1)
    named = {"device_id": torch.device(device)} if options.backend == "nccl" else {}
    dist.init_process_group(options.backend, rank=rank, world_size=options.ranks, **named)
    try:
        measured(options, device)
    finally:
        dist.destroy_process_group()


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--backend", default="nccl", choices=("nccl", "gloo"))
    parser.add_argument("--ranks", type=int, default=int(os.environ.get("WORLD_SIZE", torch.cuda.device_count())))
    parser.add_argument("--width", type=int, default=8192)
    parser.add_argument("--inner", type=int, default=28672)
    parser.add_argument("--tokens", default="4096,16")
    parser.add_argument("--kinds", default="bf16,e4m3")
    parser.add_argument("--reduce", default="one-shot", choices=("nccl", "one-shot"))
    options = parser.parse_args()
    if options.ranks < 2:
        raise SystemExit(f"error: tensor parallel blocks need 2 GPUs, got {options.ranks}")
    # A program that uses NVLink's multicast can disturb other users of the host's GPUs.
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
    if "LOCAL_RANK" in os.environ:
        process(int(os.environ["LOCAL_RANK"]), options)
        return
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29553")
    torch.multiprocessing.spawn(process, (options,), nprocs=options.ranks)


if __name__ == "__main__":
    main()
