"""Distillation behind the pruning of a folder: trained values reach the files, zeros stay, and a killed run goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import louver
from support.model_folders import saved, tokens_file

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")

from louver.formats.pattern import Pattern  # noqa: E402
from louver.models.pruning import PruneOptions  # noqa: E402
from louver.torch.accuracy import written  # noqa: E402
from louver.torch.accuracy.files import Calibration, prune_folder  # noqa: E402
from louver.torch.accuracy.matrix import Method  # noqa: E402
from louver.torch.accuracy.text import evaluate  # noqa: E402
from support.tiny_models import ids  # noqa: E402

TWO_FOUR = PruneOptions(Pattern.parse("2:4"))


@pytest.mark.parametrize("kind", ["llama", "mixtral"])
def test_training_reaches_the_files(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = saved(torch, transformers, tmp_path / "in", kind, "float32")
    text = str(tokens_file(torch, tmp_path / "text.npy"))
    work = tmp_path / "work"
    plain = Calibration(Method("wanda"), (text,), judged=(text,), length=24)
    before = prune_folder(source, tmp_path / "pruned", TWO_FOUR, plain, resume=work)
    seen: list[str] = []
    train = written.distill_

    def short(*given: Any, **options: Any) -> Any:
        seen.append("trained")
        options.pop("minutes")
        return train(*given, **options, steps=40, batch=8, length=24)

    monkeypatch.setattr(written, "distill_", short)
    call = Calibration(Method("wanda"), (text,), judged=(text,), length=24, distill=2.0)
    done = prune_folder(source, tmp_path / "out", TWO_FOUR, call, resume=work)
    assert done.distilled is not None and done.distilled.steps == 40
    one, two, dense = (louver.load(path) for path in (tmp_path / "pruned", tmp_path / "out", source))
    pruned = {row.name for row in done.written.rows}
    assert pruned == {row.name for row in before.written.rows}
    for name in pruned:
        w, trained = np.asarray(one[name]), np.asarray(two[name])
        assert louver.check(trained, "2:4").ok and not np.array_equal(w, trained)
        assert not trained[w == 0].any()
    assert not np.array_equal(np.asarray(two["model.norm.weight"]), np.asarray(dense["model.norm.weight"]))
    np.testing.assert_array_equal(np.asarray(two["lm_head.weight"]), np.asarray(dense["lm_head.weight"]))
    kls = [each.judged["text.npy"][1].kl for each in (before, done)]
    assert kls[1] < 0.8 * kls[0]
    load = transformers.AutoModelForCausalLM.from_pretrained
    whole = evaluate(load(tmp_path / "out"), ids(torch, 24), load(source))
    assert whole.kl == pytest.approx(kls[1], rel=1e-4), "the norm outside of the blocks counts too"
    again = prune_folder(source, tmp_path / "again", TWO_FOUR, call, resume=work)
    assert seen == ["trained"] and again.distilled == done.distilled
    assert (tmp_path / "again" / "config.json").read_bytes() == (tmp_path / "out" / "config.json").read_bytes()
    for path in (tmp_path / "out").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()
