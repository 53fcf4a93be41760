"""Checkpoints in e4m3 with scales: dequantized for the statistics, written back in their own type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import louver
import louver.torch
from support.model_folders import quantized, saved, tokens_file
from support.tiny_models import ids

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")

from louver.formats.checkpoint import open_checkpoint  # noqa: E402
from louver.formats.pattern import Pattern  # noqa: E402
from louver.models.analyze import analyze  # noqa: E402
from louver.models.pruning import PruneOptions  # noqa: E402
from louver.models.scaled import Factors, numbers  # noqa: E402
from louver.models.steps import Source  # noqa: E402
from louver.torch.accuracy.files import Calibration, prune_folder  # noqa: E402
from louver.torch.accuracy.matrix import Method  # noqa: E402
from louver.torch.accuracy.text import evaluate  # noqa: E402

TWO_FOUR = PruneOptions(Pattern.parse("2:4"))


def dequantized(folder: Path) -> dict[str, Any]:
    """The numbers of all tensors but scales, by name."""
    source, facts = Source.of(open_checkpoint(folder).files), analyze(folder)
    scales = {each.scale.name for each in facts.tensors.values() if each.scale is not None}
    found: dict[str, Any] = {}
    for name, each in facts.tensors.items():
        if name in scales:
            continue
        array = source.array(name)
        if each.scale is not None:
            factors = Factors.of(source.array(each.scale.name), each.scale, array.shape)
            array = numbers(array, factors.at(range(array.shape[0]), range(array.shape[1])))
        found[name] = torch.from_numpy(np.asarray(array).astype(np.float32)).to(torch.bfloat16)
    return found


def model_of(folder: Path) -> Any:
    """The model of a folder, dequantized."""
    plain = folder.with_name(f"{folder.name}-plain")
    plain.mkdir()
    config = json.loads((folder / "config.json").read_text())
    config.pop("quantization_config", None)
    (plain / "config.json").write_text(json.dumps(config))
    louver.save(plain / "model.safetensors", dequantized(folder), {"format": "pt"})
    return transformers.AutoModelForCausalLM.from_pretrained(plain)


@pytest.mark.parametrize(
    ("kind", "block", "scale_type", "count"),
    [
        ("llama", (8, 16), "float32", 14),
        ("llama", (8, 16), "float8_e8m0fnu", 14),
        ("llama", None, "bfloat16", 14),
        ("qwen2_moe", None, "float32", 38),
    ],
)
def test_weights_with_scales(kind: str, block: Any, scale_type: str, count: int, tmp_path: Path) -> None:
    plain = saved(torch, transformers, tmp_path / "plain", kind)
    source = quantized(torch, plain, tmp_path / "in", block, scale_type)
    text = tokens_file(torch, tmp_path / "text.npy")
    method = Method("sparsegpt", correct=True, reconstruct=6)
    done = prune_folder(
        source, tmp_path / "out", TWO_FOUR, Calibration(method, (str(text),), judged=(str(text),), length=24)
    )
    assert len(done.written.rows) == count and {row.dtype for row in done.written.rows} == {"e4m3"}
    before, after = louver.load(source), louver.load(tmp_path / "out")
    assert {name: np.asarray(t).dtype for name, t in before.items()} == {
        n: np.asarray(t).dtype for n, t in after.items()
    }
    for row in done.written.rows:
        assert louver.check(np.asarray(after[row.name]), "2:4").ok
    changed = {
        name
        for name in before
        if not np.array_equal(np.asarray(before[name]).view(np.uint8), np.asarray(after[name]).view(np.uint8))
    }
    scales = changed - {row.name for row in done.written.rows}
    assert scales and all(name.endswith(("_scale", "_scale_inv")) for name in scales)
    # The numbers are those that pruning in memory gives, up to the rounding to e4m3.
    wanted = model_of(source)
    louver.torch.prune_(
        wanted, method="sparsegpt", correct=True, reconstruct=6, calibration={"text.npy": ids(torch, 24)}
    )
    got, state = dequantized(tmp_path / "out"), wanted.state_dict()
    first = "model.layers.0.self_attn.v_proj.weight"
    assert torch.equal(got[first] != 0, state[first] != 0)
    assert float((got[first] - state[first]).float().norm() / state[first].float().norm()) < 2**-4
    assert "rounding to the checkpoint's type adds" in " ".join(done.report.warnings)
    # Evaluation is that of what was written.
    expected = evaluate(model_of(tmp_path / "out"), ids(torch, 24))
    assert done.judged["text.npy"][1].perplexity == pytest.approx(expected.perplexity, rel=1e-5)


def test_wanda_keeps_stored_bits_and_scales(tmp_path: Path) -> None:
    plain = saved(torch, transformers, tmp_path / "plain", "llama")
    source = quantized(torch, plain, tmp_path / "in", (8, 16))
    text = tokens_file(torch, tmp_path / "text.npy")
    done = prune_folder(source, tmp_path / "out", TWO_FOUR, Calibration(Method("wanda"), (str(text),), length=24))
    before, after = louver.load(source), louver.load(tmp_path / "out")
    pruned = {row.name for row in done.written.rows}
    for name, tensor in before.items():
        old, new = (np.asarray(each).view(np.uint8) for each in (tensor, after[name]))
        if name in pruned:
            assert np.array_equal(new[new != 0], old[new != 0]) and (new == 0).mean() >= 0.5
        else:
            np.testing.assert_array_equal(old, new)
    assert not done.report.warnings


def test_a_resumed_run_goes_on_with_the_rounded_weights(tmp_path: Path) -> None:
    plain = saved(torch, transformers, tmp_path / "plain", "llama")
    source = quantized(torch, plain, tmp_path / "in", (8, 16))
    text = tokens_file(torch, tmp_path / "text.npy")
    call = Calibration(Method("sparsegpt"), (str(text),), length=24)
    prune_folder(source, tmp_path / "out", TWO_FOUR, call, resume=tmp_path / "work")
    (tmp_path / "work" / "model.layers.1.block").unlink()
    prune_folder(source, tmp_path / "again", TWO_FOUR, call, resume=tmp_path / "work")
    for path in (tmp_path / "out").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()
