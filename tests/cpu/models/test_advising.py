"""`louver.models.advise`: totals of a model's weights, what patterns keep of them, experts, and bad input."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import louver
import louver.models
from louver.advice.formats import Format
from louver.advice.rates import Time, known, time_of
from louver.formats.pattern import Pattern
from louver.formats.schema import BitmaskForm
from louver.models.advising import Crossing
from louver.models.kept import Kept, kept_by
from louver.models.roles import TensorFacts
from louver.models.steps import Source

BF16 = np.dtype(ml_dtypes.bfloat16)
FORMATS = ("bf16", "bf16 2:4", "bf16 4:8@128")
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 1,
    "vocab_size": 99,
}


def folder(path: Path, tensors: Mapping[str, Any], config: Mapping[str, Any] = CONFIG) -> Path:
    path.mkdir(exist_ok=True)
    louver.save(path / "model.safetensors", dict(tensors))
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.fixture
def weights(rng: np.random.Generator) -> dict[str, Any]:
    def drawn(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(BF16)

    up, gate = drawn(192, 128), drawn(192, 128)
    return {
        "model.embed_tokens.weight": drawn(99, 128),
        "lm_head.weight": drawn(99, 128),
        "model.layers.0.mlp.up_proj.weight": up,
        "model.layers.0.mlp.gate_proj.weight": louver.prune(gate, "2:4"),
        "model.layers.0.mlp.down_proj.weight": louver.compress(louver.prune(drawn(128, 192), "2:4"), "2:4"),
    }


def test_totals_are_sums_over_the_products_of_the_model(tmp_path: Path, weights: dict[str, Any]) -> None:
    found = louver.models.advise(folder(tmp_path / "m", weights), (1, 300), device="H200", formats=FORMATS)
    assert [(each.m, each.k, each.count) for each in found.layers] == [(128, 192, 1), (192, 128, 1), (192, 128, 1)]
    device = known()["NVIDIA H200"]
    for format in map(Format.parse, FORMATS):
        for n in (1, 300):
            times = [time_of(format, m, n, k, device, {}) for m, k in ((192, 128), (192, 128), (128, 192))]
            total = found.total(format, n)
            assert total is not None and all(times)
            for end in ("us", "low", "high"):
                assert getattr(total, end) == pytest.approx(sum(getattr(each, end) for each in times))
            assert total.origin == "model"
    assert found.nbytes(Format("bf16")) == 2 * 3 * 128 * 192
    assert found.nbytes(Format("bf16", "2:4")) == 3 * (128 * 192 + 128 * 192 // 8)
    assert "not counted, they stay dense: lm_head.weight" in " ".join(found.notes)


def test_what_a_pattern_keeps(tmp_path: Path, weights: dict[str, Any]) -> None:
    found = louver.models.advise(folder(tmp_path / "m", weights), (1,), device="H200", formats=FORMATS)
    kept = {layer.name.split(".")[-2]: layer.kept for layer in found.layers}
    two, vectors = Pattern(2, 4), Pattern(4, 8, 128)
    assert kept["gate_proj"][two] == Kept(True, 1.0, 192 * 128) and kept["down_proj"] == {two: Kept(True, 1.0, 0)}
    up = weights["model.layers.0.mlp.up_proj.weight"].astype(np.float32)
    for pattern in (two, vectors):
        expected = np.abs(louver.prune(up, pattern)).sum() / np.abs(up).sum()
        assert not kept["up_proj"][pattern].holds and kept["up_proj"][pattern].share == pytest.approx(expected)
    assert found.kept(Format("bf16", "2:4")) == (2, pytest.approx((2 + kept["up_proj"][two].share) / 3))
    assert found.kept(Format("bf16")) is None
    sparse = {"model.layers.0.mlp.down_proj.weight": weights["model.layers.0.mlp.down_proj.weight"]}
    found = louver.models.advise(folder(tmp_path / "s", sparse), (1,), device="H200", formats=FORMATS)
    assert found.kept(Format("bf16", "2:4")) == (1, 1.0) and found.kept(Format("bf16", "4:8@128")) is None


@pytest.mark.parametrize(("stored", "held"), [(None, {Pattern(2, 4): Kept(True, 1.0, 0)}), (70, {})])
def test_bits_of_any_places_hold_no_pattern(stored: int | None, held: dict[Pattern, Kept]) -> None:
    facts = TensorFacts("w", BitmaskForm("F16", (8, 16), stored), "linear", "name", True, "", 1)
    assert kept_by(Source.__new__(Source), facts, [Pattern(2, 4), Pattern(1, 2)]) == held


def test_reading_ends_where_a_pattern_is_broken(tmp_path: Path, rng: np.random.Generator, monkeypatch: Any) -> None:
    """A weight whose last rows break the pattern is read to the end; one whose first rows do, is not."""
    monkeypatch.setattr("louver.formats.checkpoint.PIECE", 1 << 12)
    monkeypatch.setattr("louver.models.steps.PIECE", 1 << 12)
    weight = louver.prune(rng.standard_normal((256, 128)).astype(np.float16), "2:4")
    late, early = weight.copy(), weight.copy()
    late[-1], early[0] = 1, 1
    tensors = {f"model.layers.{i}.mlp.up_proj.weight": w for i, w in enumerate((weight, late, early))}
    found = louver.models.advise(folder(tmp_path / "m", tensors), (1,), device="H200", formats=["f16 2:4"])
    kept = [layer.kept[Pattern(2, 4)] for layer in found.layers]
    assert [each.holds for each in kept] == [True, False, False]
    assert kept[0].elements == kept[1].elements == weight.size == 8 * kept[2].elements
    assert kept[1].share == pytest.approx(1 - 64 / np.abs(late.astype(np.float64)).sum())


def test_experts_get_their_share_of_the_tokens(tmp_path: Path, rng: np.random.Generator) -> None:
    weight = rng.standard_normal((8, 96, 128)).astype(np.float16)
    apart = {f"model.layers.0.mlp.experts.{e}.up_proj.weight": weight[e] for e in range(8)}
    config = {**CONFIG, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_experts_per_tok": 2}
    found = louver.models.advise(folder(tmp_path / "m", apart, config), (1, 100), device="H200", formats=["f16"])
    assert [(layer.share, layer.tokens(1), layer.tokens(100)) for layer in found.layers] == [(0.25, 1, 25)] * 8
    one = time_of(Format("f16"), 96, 25, 128, known()["NVIDIA H200"], {})
    total = found.total(Format("f16"), 100)
    assert one is not None and total is not None and total.us == pytest.approx(8 * one.us)


def test_measured_times_are_asked_once_a_shape_and_decide(tmp_path: Path, weights: dict[str, Any]) -> None:
    asked: list[tuple[int, int, int]] = []

    def timer(formats: Iterable[Format], m: int, n: int, k: int) -> Mapping[Format, Time]:
        asked.append((m, n, k))
        # Dense is faster for few tokens.
        return {each: Time.spread(n if each.pattern is None else 10.0, 0.1, "measured") for each in formats}

    path = folder(tmp_path / "m", weights)
    found = louver.models.advise(path, (4, 20), formats=["bf16", "bf16 2:4"], timer=timer)
    assert sorted(asked) == [(128, 4, 192), (128, 20, 192), (192, 4, 128), (192, 20, 128)]
    assert found.drawn == (4, 20) and found.leaders == ((4, Format("bf16")), (20, Format("bf16", "2:4")))
    assert found.crossings == (Crossing(20, Format("bf16", "2:4"), Format("bf16")),)
    total = found.total(Format("bf16"), 4)
    assert total is not None and total.us == 12 and total.origin == "measured"


def test_bad_input(tmp_path: Path, weights: dict[str, Any]) -> None:
    path = folder(tmp_path / "m", weights)
    for tokens in ((), (0,), (1.5,)):
        with pytest.raises(ValueError, match="tokens are positive numbers, at least one, got"):
            louver.models.advise(path, tokens)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="got 'A100': run louver advise --measure on that GPU"):
        louver.models.advise(path, (1,), device="A100")
    with pytest.raises(ValueError, match="leave out timer or device, got 'H200'"):
        louver.models.advise(path, (1,), device="H200", timer=lambda formats, m, n, k: {})
    norms = folder(tmp_path / "n", {"model.norm.weight": np.ones(128, np.float16)})
    with pytest.raises(ValueError, match=re.escape(f"no weight of {norms} can be pruned (")):
        louver.models.advise(norms, (1,))
    (path / "config.json").unlink()
    rule = "a model is a folder with config.json beside its weights, got "
    with pytest.raises(ValueError, match=re.escape(f"{rule}{path} without one: for one weight give M N K")):
        louver.models.advise(path, (1,))
    with pytest.raises(ValueError, match="a pattern keeps a share of 0 to 1 of a weight, got 1.5"):
        Kept(False, 1.5, 4)
