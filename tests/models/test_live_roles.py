"""A model in memory has the roles that `analyze` gives its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

from safetensors.torch import save_file  # noqa: E402

from louver.models.analyze import analyze  # noqa: E402
from louver.models.live import live  # noqa: E402
from louver.models.roles import Role, TensorFacts  # noqa: E402
from support.architectures.judge import smallest  # noqa: E402

KINDS = (
    "llama", "mixtral", "qwen2_moe", "deepseek_v3", "gpt2", "bert", "t5", "vit", "clip", "whisper", "mamba", "opt", "gemma",
    "phi", "bloom",
)  # fmt: skip


def decided(each: TensorFacts) -> tuple[Any, ...]:
    return each.role, each.axis, each.prune


@pytest.mark.parametrize("kind", KINDS)
def test_a_live_model_has_the_roles_of_its_checkpoint(kind: str, tmp_path: Path) -> None:
    model = smallest(kind)
    # Under the model's own names, which `save_pretrained` changes.
    model.config.save_pretrained(tmp_path)
    save_file({name: each.clone() for name, each in model.state_dict().items()}, tmp_path / "model.safetensors")
    stored, found = analyze(tmp_path).tensors, live(model).tensors
    assert set(found) <= set(stored) and sum(each.prune for each in found.values()) >= 4
    assert {name: decided(each) for name, each in found.items()} == {name: decided(stored[name]) for name in found}


def test_on_the_meta_device_and_inside_another_module() -> None:
    model = smallest("qwen2_moe")
    whole = torch.nn.ModuleDict({"inner": model, "after": torch.nn.Linear(8, 8)})
    expected = {f"inner.{name}": decided(each) for name, each in live(model).tensors.items()}
    found = live(whole.to("meta")).tensors
    after = decided(found["after.weight"])
    assert after == (Role.WEIGHT, 1, True)
    assert {name: decided(each) for name, each in found.items() if name.startswith("inner.")} == expected


def test_the_model_stays_as_it_is_and_hooks_do_not_run() -> None:
    model = smallest("llama")
    ran: list[str] = []
    layer = model.model.layers[0].mlp.up_proj
    layer.register_forward_hook(lambda *_: ran.append("hook"))
    layer.forward = lambda x: ran.append("forward") or x
    before = {name: (id(each), each.clone()) for name, each in model.state_dict(keep_vars=True).items()}
    implementation, state = model.config._attn_implementation, torch.random.get_rng_state()
    live(model)
    assert not ran and layer._forward_hooks and "forward" in vars(layer)
    after = model.state_dict(keep_vars=True)
    assert all(id(after[name]) == key and torch.equal(after[name], each) for name, (key, each) in before.items())
    assert model.config._attn_implementation == implementation and torch.equal(torch.random.get_rng_state(), state)


def test_a_model_that_cannot_run_is_judged_by_structure_and_names() -> None:
    model = smallest("llama")

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no")

    model.__class__ = type("Broken", (type(model),), {"__deepcopy__": fails})
    facts = live(model)
    assert facts.notes == ("the model was not run: RuntimeError: no",)
    assert facts.tensors["lm_head.weight"].role in (Role.HEAD, Role.EMBEDDING)
    assert facts.tensors["model.layers.0.mlp.up_proj.weight"].prune
