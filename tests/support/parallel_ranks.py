"""One of some processes that share sparse models: `python -m support.parallel_ranks RANK RANKS FOLDER DEVICE
[CASE…]`. It runs every case, or the named ones, and saves what each gave: tensors, or the text of an error.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import louver.torch

TOKENS, WIDTH, INNER, HEADS, KV, HEAD = 6, 384, 768, 12, 12, 32
"""Sizes that 2, 3 and 4 ranks divide."""


class Mlp(nn.Module):
    """A gated layer, whose gate and up projection become one product."""

    def __init__(self, bias: bool = False, inner: int = INNER) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(WIDTH, inner, bias), nn.Linear(WIDTH, inner, bias)
        self.down_proj = nn.Linear(inner, WIDTH, bias)

    def forward(self, x: Any) -> Any:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Attention(nn.Module):
    """q, k and v become one product. Heads are those of this rank."""

    def __init__(self, bias: bool = False) -> None:
        super().__init__()
        self.q_proj = nn.Linear(WIDTH, HEADS * HEAD, bias)
        self.k_proj, self.v_proj = nn.Linear(WIDTH, KV * HEAD, bias), nn.Linear(WIDTH, KV * HEAD, bias)
        self.o_proj = nn.Linear(HEADS * HEAD, WIDTH, bias)

    def forward(self, x: Any) -> Any:
        q = self.q_proj(x)
        k = self.k_proj(x)
        v = self.v_proj(x)
        q, k, v = (each.reshape(len(x), -1, HEAD).transpose(0, 1) for each in (q, k, v))
        y = functional.scaled_dot_product_attention(q, k, v)
        return self.o_proj(y.transpose(0, 1).reshape(len(x), -1))


def dense(kind: Callable[..., Any], *arguments: Any, dtype: Any = torch.bfloat16, pattern: str = "2:4") -> Any:
    """The same pruned dense model in every process."""
    torch.manual_seed(41)
    made = nn.Sequential(kind(*arguments)).to(dtype)
    louver.torch.prune_(made, pattern)
    return made


def sparse(kind: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    made = dense(kind, *arguments, **options)
    louver.torch.compress_(made, patterns=[options.get("pattern", "2:4")], force=True)
    return made


def tokens(width: int = WIDTH, dtype: Any = torch.bfloat16) -> Any:
    return torch.randn(TOKENS, width, generator=torch.Generator().manual_seed(5)).to(dtype)


def plan(styles: Any, row: dict[str, Any] | None = None, column: dict[str, Any] | None = None) -> dict[str, Any]:
    """A style for each layer of the blocks above. styles: a module with `ColwiseParallel` and `RowwiseParallel`."""
    names = ("gate_proj", "up_proj", "q_proj", "k_proj", "v_proj")
    made = {f"0.{name}": styles.ColwiseParallel(**column or {}) for name in names}
    return made | {f"0.{name}": styles.RowwiseParallel(**row or {}) for name in ("down_proj", "o_proj")}


def shared(made: Any, mesh: Any, styles: Any = None, **options: Any) -> Any:
    """A model on the ranks of a mesh."""
    from torch.distributed.tensor.parallel import parallelize_module

    import louver.torch.parallel

    with warnings.catch_warnings():
        # The plan names layers of both blocks.
        warnings.simplefilter("ignore")
        return parallelize_module(made, mesh, plan(styles or louver.torch.parallel, **options))


def step(made: Any, x: Any) -> dict[str, Any]:
    """The output, and the gradients of x and of all parameters, whole."""
    x = x.clone().requires_grad_()
    y = made(x)
    y.float().square().sum().backward()
    grads = {name: whole(each.grad) for name, each in made.named_parameters() if each.grad is not None}
    return {"y": y.detach(), "x": x.grad, **grads}


def whole(x: Any) -> Any:
    """A DTensor as one tensor."""
    from torch.distributed.tensor import DTensor

    if not isinstance(x, DTensor):
        return x.detach()
    bits = DTensor.from_local(
        x.detach().to_local().view(torch.uint8) if x.itemsize == 1 else x.detach().to_local(),
        x.device_mesh,
        x.placements,
        run_check=False,
        shape=x.shape,
        stride=x.stride(),
    )
    full = bits.full_tensor()
    return full.view(x.dtype) if x.itemsize == 1 else full


EXPERTS = ("experts", "few experts")
"""Cases that import Transformers, which takes long: they run if they are named."""


def sparse_experts(count: int = 5) -> Any:
    """A layer of experts of Transformers with sparse weights."""
    from transformers import Qwen3MoeConfig
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts

    config = Qwen3MoeConfig(hidden_size=64, moe_intermediate_size=48, num_experts=count, num_experts_per_tok=2)
    config._experts_implementation = "grouped_mm"
    torch.manual_seed(8)
    layer = Qwen3MoeExperts(config)
    for each in layer.parameters():
        nn.init.normal_(each, std=0.2)
    made = nn.Sequential(layer).bfloat16()
    louver.torch.prune_(made)
    louver.torch.compress_(made, force=True)
    return made


def step_experts(made: Any, device: str) -> dict[str, Any]:
    """Output and gradients of 9 tokens that go to 2 experts each."""
    rng = torch.Generator().manual_seed(3)
    x = torch.randn(9, 64, generator=rng).bfloat16().to(device).requires_grad_()
    weights, index = torch.rand(9, 5, generator=rng).topk(2)
    weights = weights.bfloat16().to(device).requires_grad_()
    y = made[0](x, index.to(device), weights)
    y.float().square().sum().backward()
    with torch.no_grad():
        again = made[0](x, index.to(device), weights)
    return {"y": y.detach(), "again": again, "x": x.grad, "weights": weights.grad}


@contextlib.contextmanager
def counted() -> Iterator[list[int]]:
    """The bytes that are read of files, headers and all."""
    from louver.formats.regular import RegularFile

    total, plain = [0], RegularFile.read_into

    def read_into(self: Any, offset: int, buffer: Any) -> int:
        done = plain(self, offset, buffer)
        total[0] += done
        return done

    RegularFile.read_into = read_into  # type: ignore[method-assign]
    try:
        yield total
    finally:
        RegularFile.read_into = plain  # type: ignore[method-assign]


def settled(found: Any) -> Any:
    """Results of collectives that have ended, as plain tensors."""
    found = {key: each.wait() if hasattr(each, "wait") else each for key, each in found.items()}
    return {key: each.cpu() if torch.is_tensor(each) else each for key, each in found.items()}


def placements(made: Any) -> dict[str, str]:
    return {
        name: str(tuple(each.placements)) for name, each in made.state_dict().items() if hasattr(each, "placements")
    }


def cases(mesh: Any, folder: Path) -> dict[str, Callable[[], Any]]:
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor import parallel as styles
    from torch.distributed.tensor.parallel import parallelize_module

    import louver.torch.parallel as mine

    device = mesh.device_type

    def linear(rows: int, columns: int, style: Any, pattern: str, dtype: Any) -> Any:
        made = sparse(nn.Linear, columns, rows, dtype=dtype, pattern=pattern).to(device)
        parallelize_module(made, mesh, {"0": style})
        return {"y": made(tokens(columns, dtype).to(device)).detach(), "dense": whole(made[0].weight.dense())}

    def column(rows: int, columns: int = 64, pattern: str = "2:4", dtype: Any = torch.bfloat16) -> Any:
        return linear(rows, columns, mine.ColwiseParallel(output_layouts=Replicate()), pattern, dtype)

    def row(columns: int, pattern: str = "2:4", dtype: Any = torch.bfloat16) -> Any:
        return linear(40, columns, mine.RowwiseParallel(input_layouts=Replicate()), pattern, dtype)

    def block(kind: Any, **options: Any) -> Any:
        made = shared(sparse(kind, True).to(device), mesh)
        found = step(made, tokens().to(device))
        with torch.no_grad():
            found["inference"] = made(tokens().to(device))
        state = made.state_dict()
        return found | {f"state.{name}": whole(each) for name, each in state.items()}

    def quantized(first: bool) -> Any:
        made = sparse(Mlp).to(device)
        if first:
            louver.torch.quantize_(made)
        made = shared(made, mesh)
        if not first:
            louver.torch.quantize_(made)
        found = step(made, tokens().to(device))
        state = made.state_dict()
        with torch.no_grad():
            found["inference"] = made(tokens().to(device))
        return found | {f"state.{name}": whole(each).float() for name, each in state.items()}

    def already(own: bool, kind: Any) -> Any:
        made = shared(dense(kind, True).to(device), mesh, None if own else styles)
        report = louver.torch.compress_(made, force=True)
        found = step(made, tokens().to(device))
        found["placements"] = placements(made)
        found["class"] = type(made[0]).__name__ + str(hasattr(made[0], "louver_products"))
        found["done"] = [each.done for each in report]
        louver.torch.decompress_(made)
        found["decompressed"] = made(tokens().to(device)).detach()
        return found

    def sequence() -> Any:
        made = sparse(Mlp).to(device)
        made = shared(made, mesh, row={"output_layouts": Shard(0)}, column={"input_layouts": Shard(0)})
        ranks, rank = mesh.size(), mesh.get_local_rank()
        mine = tokens(WIDTH).to(device)[:12].repeat(2, 1).chunk(ranks)[rank]
        return {"y": DTensor.from_local(made(mine).detach(), mesh, [Shard(0)]).full_tensor()}

    def mixed() -> Any:
        made = sparse(Attention).to(device)
        parallelize_module(made, mesh, {"0.q_proj": mine.ColwiseParallel(), "0.k_proj": mine.ColwiseParallel()})
        return made(tokens().to(device))

    def differing() -> Any:
        made = sparse(Attention).to(device)
        other = mine.ColwiseParallel(input_layouts=Shard(0))
        return parallelize_module(made, mesh, {"0.q_proj": mine.ColwiseParallel(), "0.k_proj": other})

    def across() -> Any:
        return parallelize_module(sparse(Attention).to(device), mesh, {"0.q_proj": mine.RowwiseParallel()})

    def twice() -> Any:
        return shared(shared(sparse(Mlp).to(device), mesh), mesh)

    def plain() -> Any:
        made = dense(nn.Linear, 64, 32).to(device)
        parallelize_module(made, mesh, {"0": styles.ColwiseParallel()})
        louver.torch.compress_(made, force=True)
        made[0]._forward_pre_hooks.clear()
        return made(tokens(64).to(device))

    def turns() -> Any:
        return shared(sparse(Mlp, False, 24 * mesh.size() + 8).to(device), mesh)

    def verified() -> Any:
        made = shared(sparse(Mlp, True).to(device), mesh)
        made(tokens().to(device))
        return {"verify": louver.torch.verify(made), "transposable": made[0].down_proj.weight.is_transposable}

    def loaded(file: str, kind: Any) -> Any:
        made = shared(sparse(kind, True).to(device), mesh)
        with torch.no_grad():
            for each in made.parameters():
                each.to_local().zero_()
        held = sum(each.to_local().nbytes for each in made.parameters())
        if "dense" in file:
            # Values are half of the dense elements, of 2 bytes, and indices an eighth of their bytes.
            weights = [each.to_local() for name, each in made.named_parameters() if "bias" not in name]
            held += sum(each.nbytes if each.dtype != torch.uint8 else -each.nbytes for each in weights)
        with counted() as bytes_of:
            read = mine.load_(made, folder / f"{file}.safetensors")
        with torch.no_grad():
            y = made(tokens().to(device))
        return {"y": y, "read": read, "held": held, "from disk": bytes_of[0]}

    def restored(kind: Any, by_fsdp: bool) -> Any:
        from torch.distributed.checkpoint import state_dict as states
        from torch.distributed.fsdp import fully_shard

        made = sparse(kind, True).to(device)
        if by_fsdp:
            for each in (made[0], made):
                fully_shard(each, mesh=mesh)
        else:
            made = shared(made, mesh)
        x, whole_state = tokens().to(device), states.StateDictOptions(full_state_dict=True)
        before = made(x).detach()
        full = states.get_model_state_dict(made, options=whole_state)
        with torch.no_grad():
            for name, each in full.items():
                if not name.endswith("indices"):
                    full[name] = each * 2
            states.set_model_state_dict(made, full, options=whole_state)
            assert not torch.equal(made(x), before)
            full = {name: each if name.endswith("indices") else each / 2 for name, each in full.items()}
            states.set_model_state_dict(made, full, options=whole_state)
            return {"y": made(x), "before": before}

    def experts() -> Any:
        made = sparse_experts().to(device)
        parallelize_module(made, mesh, {"0": mine.ExpertParallel()})
        found = {"placed": placements(made), **step_experts(made, device)}
        return found | {"dense": whole(made[0].down_proj.dense())}

    def few_experts() -> Any:
        return parallelize_module(sparse_experts(mesh.size() - 1).to(device), mesh, {"0": mine.ExpertParallel()})

    def no_experts() -> Any:
        return parallelize_module(dense(Mlp), mesh, {"0": mine.ExpertParallel()})

    def packed() -> Any:
        from louver.torch.linear import SparseWeight

        made = sparse(Attention).to(device)
        for each in made.modules():
            if isinstance(each, SparseWeight):
                each.pack_()
        with torch.no_grad():
            return {"y": shared(made, mesh)(tokens().to(device))}

    def wrong() -> Any:
        return mine.load_(sparse(nn.Linear, 64, 32, dtype=torch.float32).to(device), folder / "wrong.safetensors")

    def lacking() -> Any:
        return mine.load_(shared(sparse(Mlp).to(device), mesh), folder / "attention-sparse.safetensors")

    return {
        "load mlp": lambda: loaded("mlp-sparse", Mlp),
        "load attention": lambda: loaded("attention-sparse", Attention),
        "load dense mlp": lambda: loaded("mlp-dense", Mlp),
        "load dense attention": lambda: loaded("attention-dense", Attention),
        "divided mlp restored": lambda: restored(Mlp, False),
        "divided attention restored": lambda: restored(Attention, False),
        "fsdp mlp restored": lambda: restored(Mlp, True),
        "fsdp attention restored": lambda: restored(Attention, True),
        "experts": experts,
        "few experts": few_experts,
        "no experts": no_experts,
        "packed": packed,
        "load wrong": wrong,
        "load lacking": lacking,
        "columns.even": lambda: column(72),
        "columns.odd": lambda: column(25),
        "columns.few": lambda: column(2),
        "columns.4:8": lambda: column(36, 64, "4:8", torch.float32),
        "columns.windows": lambda: column(48, 64, "4:8@4", torch.float32),
        "columns.cut windows": lambda: column(28, 64, "4:8@8", torch.float32),
        "rows.even": lambda: row(192),
        "rows.odd": lambda: row(176),
        "rows.1:2": lambda: row(96, "1:2", torch.float32),
        "rows.windows": lambda: row(64, "4:8@4", torch.float32),
        "mlp": lambda: block(Mlp),
        "attention": lambda: block(Attention),
        "e4m3 first": lambda: quantized(True),
        "e4m3 after": lambda: quantized(False),
        "already": lambda: already(True, Mlp),
        "already attention": lambda: already(True, Attention),
        "already, PyTorch's": lambda: already(False, Mlp),
        "sequence": sequence,
        "some members": mixed,
        "differing members": differing,
        "member by columns": across,
        "twice": twice,
        "plain x": plain,
        "turns": turns,
        "verify": verified,
    }


def start(ranks: int, folder: Path, device: str = "cpu", names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """What each of the processes has."""
    tests = Path(__file__).resolve().parents[1]
    paths = os.pathsep.join([str(tests), str(tests.parent), os.environ.get("PYTHONPATH", "")])
    write_files(folder)
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "support.parallel_ranks", str(rank), str(ranks), str(folder), device, *names],
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    errors = [each.communicate(timeout=250)[1] for each in started]
    assert [each.returncode for each in started] == [0] * ranks, "\n".join(errors)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(ranks)]


def write_files(folder: Path) -> None:
    """Checkpoints that the ranks read: of two blocks, sparse and dense with zeros."""
    import numpy as np

    import louver

    for name, kind in (("mlp", Mlp), ("attention", Attention)):
        made = dense(kind, True)
        state = {key: each.detach() for key, each in made.state_dict().items()}
        louver.save(folder / f"{name}-dense.safetensors", state)
        held = {key: louver.compress(each, "2:4") if each.ndim == 2 else each for key, each in state.items()}
        louver.save(folder / f"{name}-sparse.safetensors", held)
    wrong = {"0.weight": np.ones((32, 64), np.float32), "0.bias": np.zeros(32, np.float32)}
    louver.save(folder / "wrong.safetensors", wrong)


def main(rank: int, ranks: int, folder: Path, device: str, names: list[str]) -> None:
    """names: of the cases to run; all without any."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_device(rank)
    store = torch.distributed.FileStore(str(folder / "store"), ranks)
    backend = "nccl" if device == "cuda" else "gloo"
    torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=ranks)
    mesh = torch.distributed.init_device_mesh(device, (ranks,))
    found: dict[str, Any] = {}
    known = cases(mesh, folder)
    for name in names or [name for name in known if name not in EXPERTS]:
        try:
            found[name] = settled(known[name]())
        except (ValueError, RuntimeError, ImportError) as error:
            found[name] = f"{type(error).__name__}: {error}"
    torch.save(found, folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], sys.argv[5:])
    # DTensor keeps the group and its threads, which may abort an interpreter that ends.
    os._exit(0)
