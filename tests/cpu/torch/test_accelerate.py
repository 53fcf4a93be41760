"""Sparse layers whose weights accelerate places, offloads and loads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import louver.torch
from support.torch_weights import close

torch: Any = pytest.importorskip("torch")
accelerate: Any = pytest.importorskip("accelerate")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

from louver.torch.blocks import JoinedBlock  # noqa: E402
from louver.torch.linear import SparseLinear  # noqa: E402

nn = torch.nn
WIDTH, INNER = 48, 72


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(WIDTH, INNER, bias=False), nn.Linear(WIDTH, INNER, bias=False)
        self.down_proj = nn.Linear(INNER, WIDTH)

    def forward(self, x: Any) -> Any:
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


def model(*, gated: bool = False) -> Any:
    torch.manual_seed(6)
    first = Gated() if gated else nn.Linear(WIDTH, WIDTH, bias=False)
    made = nn.Sequential(first, nn.ReLU(), nn.Linear(WIDTH, 24)).bfloat16().requires_grad_(False)
    louver.torch.prune_(made)
    louver.torch.compress_(made, force=True)
    return made


def tokens() -> Any:
    return torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(5)).bfloat16()


def on_cpu(made: Any, _: Path) -> Any:
    return accelerate.cpu_offload(made, execution_device=torch.device("cpu"))


def on_disk(made: Any, folder: Path) -> Any:
    accelerate.disk_offload(made, str(folder), execution_device=torch.device("cpu"))
    return made


def in_part(made: Any, folder: Path) -> Any:
    places = {"0": "cpu", "1": "cpu", "2": "disk"}
    return accelerate.dispatch_model(made, places, main_device="cpu", offload_dir=str(folder), force_hooks=True)


OFFLOADS = (on_cpu, on_disk, in_part)


def test_one_place() -> None:
    made = accelerate.dispatch_model(model(gated=True), {"": "cpu"})
    assert torch.equal(made(tokens()), model(gated=True)(tokens()))


@pytest.mark.parametrize("kind", [None, "e4m3", "int8"])
@pytest.mark.parametrize("offload", OFFLOADS)
def test_offloaded_weights_are_brought_for_each_product(
    offload: Callable[[Any, Path], Any], kind: Any, tmp_path: Path
) -> None:
    made, expected = model(), model()
    if kind:
        louver.torch.quantize_(made, kind)
        louver.torch.quantize_(expected, kind)
    made = offload(made, tmp_path)
    assert made[2].weight.values.is_meta
    for x in (tokens(), 3 * tokens()):
        assert torch.equal(made(x), expected(x))
    assert made[2].weight.values.is_meta and louver.torch.verify(made) == {}
    x = tokens().requires_grad_()
    made(x).float().sum().backward()
    mine, x = x.grad, tokens().requires_grad_()
    expected(x).float().sum().backward()
    assert torch.equal(mine, x.grad)


@pytest.mark.parametrize("offload", OFFLOADS)
def test_weights_come_back_when_the_hooks_go(offload: Callable[[Any, Path], Any], tmp_path: Path) -> None:
    made, before = offload(model(), tmp_path), model()
    with pytest.raises(ValueError, match=r"parameters hooks bring stays sparse, got .\.weight: remove the hooks first"):
        louver.torch.decompress_(made)
    accelerate.hooks.remove_hook_from_module(made, recurse=True)
    for each in (made, before):
        louver.torch.decompress_(each)
    assert made.state_dict().keys() == before.state_dict().keys()
    assert all(torch.equal(each, before.state_dict()[name]) for name, each in made.state_dict().items())


def test_a_pair_stays_where_its_block_is(tmp_path: Path) -> None:
    made = in_part(model(gated=True), tmp_path)
    assert isinstance(made[0], JoinedBlock) and made[2].weight.values.is_meta
    close(torch, made(tokens()), model(gated=True)(tokens()), 0.02)


@pytest.mark.parametrize("offload", [on_cpu, on_disk])
def test_an_offloaded_pair_is_refused_by_name(offload: Callable[[Any, Path], Any], tmp_path: Path) -> None:
    made = offload(model(gated=True), tmp_path)
    with pytest.raises(RuntimeError, match=r"one storage, which is not offloaded(.|\n)*load it with a device_map"):
        made(tokens())


def test_layers_with_hooks_stay_dense() -> None:
    made = nn.Sequential(nn.Linear(WIDTH, 24), nn.Linear(24, 24)).bfloat16()
    louver.torch.prune_(made)
    accelerate.cpu_offload(made[0], execution_device=torch.device("cpu"))
    report = louver.torch.compress_(made, force=True)
    assert report["0"].reason == "it has hooks: attach them after the swap"
    assert type(made[0]) is nn.Linear and type(made[1]) is SparseLinear


def test_an_empty_model_is_loaded_and_dispatched(tmp_path: Path) -> None:
    saved = SparseLinear.of(nn.Linear(WIDTH, 24).bfloat16(), prune=True)
    accelerate.utils.save(saved.state_dict(), str(tmp_path / "model.safetensors"), safe_serialization=True)
    with accelerate.init_empty_weights():
        empty = SparseLinear(WIDTH, 24, dtype=torch.bfloat16)
    assert empty.weight.values.is_meta
    with pytest.raises(ValueError, match="got x on cpu, values on meta, indices on meta: move them, or load"):
        empty(tokens())
    loaded = accelerate.load_checkpoint_and_dispatch(empty, str(tmp_path / "model.safetensors"), {"": "cpu"})
    assert torch.equal(loaded(tokens()), saved(tokens()))


@pytest.mark.parametrize("dense", [False, True], ids=["sparse files", "dense files"])
def test_a_device_map_of_transformers(dense: bool, tmp_path: Path) -> None:
    transformers: Any = pytest.importorskip("transformers")
    import louver.torch.transformers

    torch.manual_seed(12)
    sizes = {"vocab_size": 99, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    made = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, num_attention_heads=4)).bfloat16()
    louver.torch.prune_(made)
    if not dense:
        louver.torch.compress_(made, force=True)
    made.save_pretrained(tmp_path / "saved")
    places = dict.fromkeys(("model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head", "model.layers.0"), "cpu")
    load = transformers.AutoModelForCausalLM.from_pretrained
    options = {"device_map": {**places, "model.layers.1": "disk"}, "offload_folder": str(tmp_path / "folder")}
    config = {"quantization_config": louver.torch.transformers.LouverConfig(force=True)} if dense else {}
    loaded, ids = load(tmp_path / "saved", **config, **options), torch.arange(11)[None]
    weights = [block.mlp.up_proj.weight.values for block in loaded.model.layers]
    assert [each.is_meta for each in weights] == [False, True]
    close(torch, loaded(ids).logits, made(ids).logits, 0.02)
    loaded.save_pretrained(tmp_path / "again")
    close(torch, load(tmp_path / "again")(ids).logits, made(ids).logits, 0.02)
