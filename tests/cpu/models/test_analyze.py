"""What `analyze` decides by configuration, siblings, names and shapes, and what a user's choice changes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.dtypes import element_type
from louver.formats.pattern import Pattern
from louver.formats.schema import DenseForm, Form, SparseForm
from louver.models.analyze import analyze, decide
from louver.models.evidence.config import Config
from louver.models.roles import Evidence, ModelFacts, Role, Scale
from louver.models.selection import DEFAULT, Choice

LISTINGS = sorted((Path(__file__).parent / "listings").glob("*.json"))

REST = tuple(kind for kind in Evidence if kind is not Evidence.MODEL)


def forms_of(shapes: dict[str, tuple[int, ...] | tuple[str, tuple[int, ...]]]) -> dict[str, Form]:
    """Forms of float16 tensors, or of the given types."""
    made: dict[str, Form] = {}
    for name, given in shapes.items():
        dtype, shape = given if given and isinstance(given[0], str) else ("F16", given)
        made[name] = DenseForm(dtype, shape)
    return made


def facts_of(
    shapes: dict[str, Any], config: dict[str, Any] | None = None, choice: Choice = DEFAULT, **more: Any
) -> ModelFacts:
    metadata = more.pop("metadata", {})
    return decide(forms_of(shapes), Config(config or {}), metadata, choice, evidence=REST, **more)


BLOCK = {
    "model.embed_tokens.weight": (300, 64),
    "model.layers.0.self_attn.q_proj.weight": (64, 64),
    "model.layers.0.mlp.up_proj.weight": (96, 64),
    "model.layers.0.input_layernorm.weight": (64,),
    "lm_head.weight": (300, 64),
}


@pytest.mark.parametrize("path", LISTINGS, ids=lambda path: path.stem)
def test_kept_architectures(path: Path) -> None:
    """None wrongly pruned, and fewer than 10% of the weights left; the truth is measured (tests/models/oracle.py)."""
    listing = json.loads(path.read_text())
    forms: dict[str, Form] = {
        name: DenseForm(dtype, tuple(shape)) for name, (dtype, shape) in listing["tensors"].items()
    }
    facts = decide(forms, Config(listing["config"]), {}, evidence=REST)
    weights = listing["weights"]
    assert {each.name: each.axis for each in facts.pruned}.items() <= weights.items()
    left = [name for name in weights if not facts.tensors[name].prune]
    assert 10 * len(left) < len(weights), left


def test_a_plain_block() -> None:
    facts = facts_of(BLOCK, {"vocab_size": 300}).tensors
    roles = {name.split(".")[-2]: each.role for name, each in facts.items()}
    assert roles == {
        "embed_tokens": Role.EMBEDDING,
        "q_proj": Role.WEIGHT,
        "up_proj": Role.WEIGHT,
        "input_layernorm": Role.NORM,
        "lm_head": Role.HEAD,
    }
    assert [name for name, each in facts.items() if each.prune] == [name for name in BLOCK if "_proj" in name]
    assert facts["lm_head.weight"].evidence is Evidence.CONFIG and "300 tokens" in facts["lm_head.weight"].reason
    assert "heads stay dense" in facts["lm_head.weight"].reason


def test_weights_stored_transposed() -> None:
    shapes = {
        "h.0.attn.c_attn.weight": (64, 192),
        "h.0.attn.c_attn.bias": (192,),
        "h.0.attn.c_proj.weight": (64, 64),
        "h.0.attn.c_proj.bias": (64,),
    }
    facts = facts_of(shapes).tensors
    assert [facts[name].axis for name in shapes if name.endswith("weight")] == [0, 0]
    assert "[in, out]" in facts["h.0.attn.c_attn.weight"].reason
    mixed = facts_of({**shapes, "h.0.mlp.fc.weight": (96, 64), "h.0.mlp.fc.bias": (96,)}).tensors
    assert mixed["h.0.mlp.fc.weight"].axis == 1 and mixed["h.0.attn.c_attn.weight"].axis == 0
    square = mixed["h.0.attn.c_proj.weight"]
    assert square.role is Role.UNKNOWN and not square.prune and "square" in square.reason


@pytest.mark.parametrize("transposed", [False, True])
def test_stacked_experts(transposed: bool) -> None:
    up, down = ((4, 64, 160), (4, 80, 64)) if transposed else ((4, 160, 64), (4, 64, 80))
    shapes = {
        "layers.0.mlp.router.weight": (4, 64),
        "layers.0.mlp.experts.gate_up_proj": up,
        "layers.0.mlp.experts.gate_up_proj_bias": (4, 160),
        "layers.0.mlp.experts.down_proj": down,
        "layers.0.mlp.experts.down_proj_bias": (4, 64),
    }
    for config, given in (({}, shapes), ({"hidden_size": 64}, {n: s for n, s in shapes.items() if "bias" not in n})):
        facts = facts_of(given, config).tensors
        axis = 1 if transposed else 2
        assert facts["layers.0.mlp.experts.gate_up_proj"].axis == axis
        assert facts["layers.0.mlp.experts.down_proj"].axis == axis
        assert facts["layers.0.mlp.router.weight"].role is Role.ROUTER
        assert all(each.role is Role.BIAS for name, each in facts.items() if "bias" in name)
    blind = facts_of({n: s for n, s in shapes.items() if "bias" not in n}).tensors["layers.0.mlp.experts.down_proj"]
    assert blind.role is Role.UNKNOWN and "axis" in blind.reason and not blind.prune


def test_experts_stored_apart() -> None:
    shapes = {f"layers.0.mlp.experts.{e}.up_proj.weight": (96, 64) for e in range(3)}
    facts = facts_of({**shapes, "layers.0.mlp.gate.weight": (3, 64), "layers.0.mlp.shared_expert_gate.weight": (1, 64)})
    assert len(facts.pruned) == 3
    assert facts.tensors["layers.0.mlp.gate.weight"].role is Role.ROUTER
    assert facts.tensors["layers.0.mlp.shared_expert_gate.weight"].role is Role.ROUTER


def test_parameters_that_no_product_reads() -> None:
    shapes = {
        "layers.0.mixer.A_log": (128, 16),
        "layers.0.attn.relative_attention_bias.weight": (32, 8),
        "layers.0.attn.rel_pos_h": (27, 8),
        "wpe.weight": (64, 32),
        "embeddings.token_type_embeddings.weight": (2, 32),
        "embeddings.position_ids": ("I64", (1, 64)),
    }
    facts = facts_of(shapes)
    assert not facts.pruned
    assert facts.tensors["layers.0.mixer.A_log"].role is Role.UNKNOWN
    assert facts.tensors["embeddings.position_ids"].role is Role.STATE


def test_convolutions() -> None:
    shapes = {"layers.0.conv.weight": (64, 32, 3, 3), "layers.0.depthwise.weight": (64, 1, 4)}
    facts = facts_of(shapes).tensors
    for each in facts.values():
        assert each.role is Role.CONVOLUTION and each.axis == 1 and not each.prune
        assert "no product of Louver runs a convolution" in each.reason
    chosen = facts_of(shapes, choice=Choice(include=("layers.0.conv*",)), pattern="2:4")
    assert [each.name for each in chosen.pruned] == ["layers.0.conv.weight"]
    with pytest.raises(ValueError, match="fewer than a group of 4"):
        facts_of(shapes, choice=Choice(include=("*depthwise*",)), pattern="2:4")


@pytest.mark.parametrize(
    ("scale", "shape", "config", "block"),
    [
        ("weight_scale", (), {}, (200, 300)),
        ("weight_scale", (1,), {}, (200, 300)),
        ("weight_scale", (200, 1), {}, (1, 300)),
        ("weight_scale", (200,), {}, (1, 300)),
        ("weight_scale_inv", (2, 3), {"weight_block_size": [128, 128]}, (128, 128)),
        ("scale_weight", (), {}, (200, 300)),
    ],
)
def test_fp8_with_scales(scale: str, shape: tuple[int, ...], config: dict[str, Any], block: tuple[int, ...]) -> None:
    shapes = {
        "layers.0.q_proj.weight": ("F8_E4M3", (200, 300)),
        f"layers.0.q_proj.{scale}": ("F32", shape),
        "layers.0.q_proj.input_scale": ("F32", ()),
    }
    facts = facts_of(shapes, {"quantization_config": config}).tensors
    weight = facts["layers.0.q_proj.weight"]
    assert weight.prune and weight.scale == Scale(f"layers.0.q_proj.{scale}", block)
    assert facts[f"layers.0.q_proj.{scale}"].role is Role.SCALE and not facts[f"layers.0.q_proj.{scale}"].prune


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"weight_scale": (2, 3)}, "do not fit"),
        ({"weight_scale": (), "weight_zero_point": ()}, "more than its elements"),
        ({"weight_scale": (), "weight_scale_2": ()}, "more than its elements"),
    ],
)
def test_fp8_that_is_not_read(parts: dict[str, tuple[int, ...]], said: str) -> None:
    shapes = {f"layers.0.q_proj.{name}": ("F32", shape) for name, shape in parts.items()}
    facts = facts_of({"layers.0.q_proj.weight": ("F8_E4M3", (200, 300)), **shapes})
    weight = facts.tensors["layers.0.q_proj.weight"]
    assert weight.role is Role.PACKED and said in weight.reason and not facts.pruned


@pytest.mark.parametrize(
    "parts",
    [
        {"qweight": ("I32", (8, 96)), "qzeros": ("I32", (1, 12)), "scales": ("F16", (1, 96)), "g_idx": ("I32", (64,))},
        {"weight_packed": ("I32", (96, 8)), "weight_scale": ("F16", (96, 2)), "weight_shape": ("I64", (2,))},
        {"weight_packed": ("U8", (96, 32)), "weight_scale": ("F8_E4M3", (96, 4)), "weight_global_scale": ("F32", (1,))},
        {"weight": ("I8", (96, 64)), "weight_scale": ("F32", (96, 1))},
        {"weight": ("U8", (3072, 1)), "weight.absmax": ("F32", (48,)), "weight.quant_map": ("F32", (16,))},
    ],
    ids=["gptq", "pack-quantized", "nvfp4", "int8", "bitsandbytes"],
)
def test_packed_weights_are_left_and_named(parts: dict[str, Any]) -> None:
    facts = facts_of({f"layers.0.q_proj.{name}": given for name, given in parts.items()})
    assert not facts.pruned
    roles = {each.role for each in facts.tensors.values()}
    assert roles == {Role.PACKED, Role.SCALE}
    assert all(each.evidence is Evidence.SIBLINGS for each in facts.tensors.values())


def test_mxfp4_experts() -> None:
    shapes = {
        "layers.0.mlp.experts.gate_up_proj_blocks": ("U8", (4, 160, 2, 16)),
        "layers.0.mlp.experts.gate_up_proj_scales": ("U8", (4, 160, 2)),
        "layers.0.mlp.experts.gate_up_proj_bias": ("BF16", (4, 160)),
    }
    facts = facts_of(shapes)
    assert not facts.pruned
    assert [each.role for each in facts.tensors.values()] == [Role.PACKED, Role.SCALE, Role.BIAS]


def test_a_sparse_tensor_is_not_pruned_again() -> None:
    sparse = SparseForm(Pattern(2, 4), element_type("f16"), (96, 64), 1)
    facts = decide({"layers.0.up_proj.weight": sparse}, Config(), {}, evidence=REST)
    (fact,) = facts.tensors.values()
    assert not fact.prune and fact.reason == "it is sparse already"


def test_ties_by_metadata_and_by_configuration() -> None:
    alias = facts_of(
        {"lm_head.weight": (96, 64)}, {"vocab_size": 96}, metadata={"model.embed_tokens.weight": "lm_head.weight"}
    )
    head = alias.tensors["lm_head.weight"]
    assert head.role is Role.EMBEDDING and head.ties == ("model.embed_tokens.weight",) and not head.prune
    assert "one parameter with model.embed_tokens.weight" in head.reason
    with pytest.raises(ValueError, match="names no tensor that can be pruned"):
        facts_of(
            {"lm_head.weight": (96, 64)},
            {"vocab_size": 96},
            Choice(include=("lm_head*",)),
            metadata={"model.embed_tokens.weight": "lm_head.weight"},
        )
    tied = facts_of(BLOCK, {"vocab_size": 300, "tie_word_embeddings": True}).tensors
    assert tied["lm_head.weight"].role is Role.EMBEDDING
    both = facts_of(BLOCK, {"vocab_size": 300, "tie_word_embeddings": True}, Choice(include=("lm_head*", "*embed*")))
    assert both.tensors["lm_head.weight"].prune and both.tensors["model.embed_tokens.weight"].prune


def test_tied_tensors_that_are_stored_twice_are_compared(tmp_path: Path, rng: np.random.Generator) -> None:
    """Equal bytes are one parameter; a difference in the last element makes two. They may be in different files."""
    table = rng.standard_normal((300, 7001)).astype(np.float16)  # More than one piece.
    other = table.copy()
    other[-1, -1] += 1
    for name, head in (("equal", table), ("apart", other)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"vocab_size": 300, "tie_word_embeddings": True}))
        parts = {"lm_head.weight": head}, {"model.embed_tokens.weight": table}
        for shard, part in enumerate(parts):
            louver.save(folder / f"{shard}.safetensors", part)
        index = {name: f"{shard}.safetensors" for shard, part in enumerate(parts) for name in part}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    equal = analyze(tmp_path / "equal", evidence=REST)
    assert equal.tensors["lm_head.weight"].ties == ("model.embed_tokens.weight",) and not equal.notes
    assert equal.tensors["lm_head.weight"].role is Role.EMBEDDING
    with pytest.raises(ValueError, match="names no tensor that can be pruned"):
        analyze(tmp_path / "equal", Choice(include=("lm_head*",)), evidence=REST)
    apart = analyze(tmp_path / "apart", Choice(include=("lm_head*",)), evidence=REST)
    assert apart.tensors["lm_head.weight"].prune and not apart.tensors["lm_head.weight"].ties
    assert apart.tensors["model.embed_tokens.weight"].role is Role.EMBEDDING
    assert not apart.tensors["model.embed_tokens.weight"].prune
    (note,) = apart.notes
    assert note.startswith(
        "the configuration ties lm_head.weight and model.embed_tokens.weight, but their stored bytes"
    )


def test_nothing_is_read_unless_tensors_are_tied() -> None:
    def same(first: str, second: str) -> bool:
        asked.append((first, second))
        return False

    asked: list[tuple[str, str]] = []
    decide(forms_of(BLOCK), Config({"vocab_size": 300}), {}, evidence=REST, same=same)
    assert not asked
    tied = decide(
        forms_of(BLOCK), Config({"vocab_size": 300, "tie_word_embeddings": True}), {}, evidence=REST, same=same
    )
    assert asked == [("lm_head.weight", "model.embed_tokens.weight")]
    assert tied.tensors["lm_head.weight"].role is Role.HEAD and not tied.tensors["lm_head.weight"].ties


def test_experts_of_another_width_than_the_blocks_are_unknown() -> None:
    """Both axes of the stacked weights are widths: shapes do not tell which one is contracted."""
    shapes = {"layers.0.mlp.experts.gate_up_proj": (4, 128, 64), "layers.0.mlp.experts.down_proj": (4, 64, 64)}
    facts = facts_of(shapes, {"hidden_size": 128, "moe_hidden_size": 64, "moe_intermediate_size": 64})
    assert {each.role for each in facts.tensors.values()} == {Role.UNKNOWN} and not facts.pruned


def test_a_router_of_shared_experts_too() -> None:
    """It has more rows than the experts beside it; a projection beside experts is no router."""
    facts = facts_of(
        {
            "layers.0.mlp.experts.down_proj": (4, 64, 48),
            "layers.0.mlp.shared_experts.down_proj": (2, 64, 48),
            "layers.0.mlp.gate.weight": (6, 64),
            "layers.0.mlp.gate_proj.weight": (48, 64),
        },
        {"hidden_size": 64},
    ).tensors
    assert facts["layers.0.mlp.gate.weight"].role is Role.ROUTER
    assert facts["layers.0.mlp.gate_proj.weight"].role is Role.WEIGHT


def test_include_adds_exclude_removes_only_replaces() -> None:
    config = {"vocab_size": 300}
    names = lambda choice: {each.name for each in facts_of(BLOCK, config, choice).pruned}  # noqa: E731
    default = {name for name in BLOCK if "_proj" in name}
    assert names(Choice(include=("lm_head.weight",))) == default | {"lm_head.weight"}
    assert names(Choice(exclude=("*q_proj*",))) == {"model.layers.0.mlp.up_proj.weight"}
    assert names(Choice(only=("*up_proj*", "lm_head*"))) == {"model.layers.0.mlp.up_proj.weight", "lm_head.weight"}
    assert names(Choice(only=("*up_proj*", "lm_head*"), exclude=("lm_head*",))) == {"model.layers.0.mlp.up_proj.weight"}
    assert names(Choice(only=("model.layers.*",))) == default, "norms that a broad glob names too are left"


def test_an_unknown_tensor_is_pruned_where_the_user_says() -> None:
    shapes = {"layers.0.mystery": (3, 40, 24), "layers.0.up_proj.weight": (96, 64)}
    assert facts_of(shapes, choice=Choice(include=("*mystery",))).tensors["layers.0.mystery"].axis == 2
    facts = facts_of(shapes, choice=Choice(include=("*mystery",), axis=-2)).tensors
    assert facts["layers.0.mystery"].axis == 1 and facts["layers.0.up_proj.weight"].axis == 1


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (Choice(include=("*layernorm*",)), "is a norm"),
        (Choice(only=("nothing*",)), "names none of 5 tensors"),
        (Choice(exclude=("nothing*",)), "names none of 5 tensors"),
        (Choice(only=("*q_proj*",), axis=2), "got 2 for model.layers.0.self_attn.q_proj.weight"),
    ],
)
def test_choices_that_contradict(choice: Choice, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("*", r"\*")):
        facts_of(BLOCK, {"vocab_size": 300}, choice)


def test_choices_that_are_none() -> None:
    with pytest.raises(ValueError, match="--only replaces the default tensors and --include adds to them"):
        Choice(include=("a",), only=("b",))
    with pytest.raises(ValueError, match="--axis is for tensors that --include or --only names"):
        Choice(axis=0)


def test_an_axis_shorter_than_a_group_is_a_reason() -> None:
    facts = facts_of({"layers.0.up_proj.weight": (96, 6)}, pattern="2:8")
    assert "its axis 1 has 6 elements, fewer than a group of 8" in facts.tensors["layers.0.up_proj.weight"].reason


def test_files_and_damaged_configurations(tmp_path: Path, rng: np.random.Generator) -> None:
    louver.save(tmp_path / "model.safetensors", {"layers.0.up_proj.weight": rng.standard_normal((12, 20)).astype("f4")})
    assert analyze(tmp_path).pruned and not analyze(tmp_path).notes
    for text, said in (("{", "config.json was not read"), ("[]", "not a JSON object"), ("[" * 100_000, "was not read")):
        (tmp_path / "config.json").write_text(text)
        facts = analyze(tmp_path)
        assert said in facts.notes[0] and facts.pruned


def test_a_configuration_larger_than_the_checkpoint_is_not_built(tmp_path: Path, rng: np.random.Generator) -> None:
    pytest.importorskip("transformers", reason="needs transformers: pip install transformers torch")
    louver.save(tmp_path / "model.safetensors", {"layers.0.up_proj.weight": rng.standard_normal((12, 20)).astype("f4")})
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "num_hidden_layers": 10**9}))
    facts = analyze(tmp_path)
    assert "num_hidden_layers = 1000000000, but the checkpoint has 1 tensors" in facts.notes[0] and facts.pruned


@pytest.mark.parametrize("config", [None, "{}", '{"model_type": 7}'])
def test_large_packages_are_imported_for_an_architecture_only(
    config: str | None, tmp_path: Path, rng: np.random.Generator
) -> None:
    louver.save(tmp_path / "model.safetensors", {"layers.0.up_proj.weight": rng.standard_normal((12, 20)).astype("f4")})
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    code = (
        "import sys, louver.models; print(*louver.models.analyze(sys.argv[1]).notes); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers')))"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], check=False, capture_output=True, text=True)
    assert done.returncode == 0
    said = "the model was not run: "
    assert done.stdout.startswith(said) if config else done.stdout == "\n"
