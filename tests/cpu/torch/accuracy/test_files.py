"""`prune_folder`: the same bits as in memory, with two blocks resident, whatever the checkpoint calls its tensors."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import louver
import louver.torch
from support.model_folders import saved, tokens_file
from support.tiny_models import ids

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")

from louver.formats.checkpoint import open_checkpoint  # noqa: E402
from louver.formats.pattern import Pattern  # noqa: E402
from louver.models.analyze import analyze  # noqa: E402
from louver.models.pruning import PruneOptions  # noqa: E402
from louver.models.selection import Choice  # noqa: E402
from louver.torch.accuracy import folder  # noqa: E402
from louver.torch.accuracy.files import Calibration, prune_folder  # noqa: E402
from louver.torch.accuracy.matrix import Method  # noqa: E402
from louver.torch.accuracy.text import evaluate  # noqa: E402

FULL = Method("sparsegpt", correct=True, reconstruct=6)
TWO_FOUR = PruneOptions(Pattern.parse("2:4"))


def model_in(path: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(path)


def asked(path: Path, method: Method = FULL, **more: Any) -> Calibration:
    return Calibration(method, (str(tokens_file(torch, path / "text.npy")),), length=24, **more)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("llama", "bfloat16"),
        ("llama", "float32"),
        ("gpt2", "float16"),
        ("gemma3", "bfloat16"),
        ("qwen2_moe", "bfloat16"),
        ("mixtral", "float32"),
        ("phi3", "bfloat16"),
    ],
)
def test_a_folder_gives_the_bits_of_the_model_in_memory(kind: str, dtype: str, tmp_path: Path) -> None:
    source = saved(torch, transformers, tmp_path / "in", kind, dtype)
    more = {"tune": 3, "permute": kind in ("llama", "gemma3")}
    done = prune_folder(source, tmp_path / "out", TWO_FOUR, asked(tmp_path, **more))
    wanted = model_in(source)
    report = louver.torch.prune_(
        wanted, method="sparsegpt", correct=True, reconstruct=6, calibration={"text.npy": ids(torch, 24)}, **more
    )
    got = model_in(tmp_path / "out")
    state = wanted.state_dict()
    assert state.keys() == got.state_dict().keys()
    assert [name for name, tensor in got.state_dict().items() if not torch.equal(tensor, state[name])] == []
    assert [(row.name, row.done, row.error, row.damping, row.tokens) for row in done.report] == [
        (row.name, row.done, row.error, row.damping, row.tokens) for row in report
    ]
    facts, after = analyze(source), louver.load(tmp_path / "out")
    assert {row.name for row in done.written.rows} == {each.name for each in facts.pruned}
    assert all(louver.check(np.asarray(after[each.name]), "2:4", axis=each.axis or 0).ok for each in facts.pruned)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out", "text.npy"]


def test_two_blocks_are_resident_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = saved(torch, transformers, tmp_path / "in", "llama", num_hidden_layers=4)
    most: list[int] = []
    fill = folder.Folder._fill

    def watched(self: Any, name: str, tensors: Any) -> None:
        fill(self, name, tensors)
        blocks = [self.model.get_submodule(each) for each in self.chain.names]
        most.append(sum(any(not p.is_meta for p in block.parameters()) for block in blocks))

    monkeypatch.setattr(folder.Folder, "_fill", watched)
    prune_folder(source, tmp_path / "out", TWO_FOUR, asked(tmp_path, judged=(str(tmp_path / "text.npy"),)))
    assert max(most) == 1, "the block at hand; its new weights are the second one"


def test_evaluation_is_that_of_the_whole_models(tmp_path: Path) -> None:
    source = saved(torch, transformers, tmp_path / "in", "gemma3", "float32")
    judged = tokens_file(torch, tmp_path / "other.npy", 10, 24, seed=5)
    done = prune_folder(source, tmp_path / "out", TWO_FOUR, asked(tmp_path, judged=(str(judged),)))
    before, after = done.judged["other.npy"]
    tokens = ids(torch, 10, 24, 5)
    dense, pruned = model_in(source), model_in(tmp_path / "out")
    wanted = evaluate(pruned, tokens, dense)
    assert before.perplexity == pytest.approx(evaluate(dense, tokens).perplexity, rel=1e-6)
    assert after.perplexity == pytest.approx(wanted.perplexity, rel=1e-6)
    assert after.kl == pytest.approx(wanted.kl, rel=1e-3) and after.top1 == wanted.top1
    assert after.kl > 1e-4 and after.counted == 10 * 23


def test_compressed_tensors_are_those_of_the_dense_output(tmp_path: Path) -> None:
    source = saved(torch, transformers, tmp_path / "in", "llama")
    work = tmp_path / "work"
    prune_folder(source, tmp_path / "out", TWO_FOUR, asked(tmp_path), resume=work)
    compressed = PruneOptions(Pattern.parse("2:4"), compressed=True)
    prune_folder(source, tmp_path / "small", compressed, asked(tmp_path), resume=work)
    dense, sparse = louver.load(tmp_path / "out"), louver.load(tmp_path / "small")
    found = {name for name, tensor in sparse.items() if isinstance(tensor, louver.SparseTensor)}
    assert len(found) == 14
    for name, tensor in sparse.items():
        got = tensor.dense() if isinstance(tensor, louver.SparseTensor) else np.asarray(tensor)
        np.testing.assert_array_equal(got.view(np.uint16), np.asarray(dense[name]).view(np.uint16))


def test_elements_that_did_not_change_keep_wider_bits(tmp_path: Path) -> None:
    """A file in f32 of a model that runs in bf16: Wanda leaves the kept elements of the file as they are."""
    source = saved(torch, transformers, tmp_path / "in", "llama", "float32")
    config = source / "config.json"
    config.write_text(config.read_text().replace("float32", "bfloat16"))
    prune_folder(source, tmp_path / "out", TWO_FOUR, asked(tmp_path, Method("wanda")))
    before, after = louver.load(source), louver.load(tmp_path / "out")
    name = "model.layers.1.mlp.up_proj.weight"
    w, got = np.asarray(before[name]), np.asarray(after[name])
    assert got.dtype == np.float32 and (got == 0).mean() == 0.5
    np.testing.assert_array_equal(got[got != 0], w[got != 0])


def test_globs_choose_the_weights_and_the_rest_is_copied(tmp_path: Path) -> None:
    source = saved(torch, transformers, tmp_path / "in", "llama")
    options = PruneOptions(Pattern.parse("2:4"), choice=Choice(exclude=("*.q_proj.*", "*layers.0.mlp*")))
    done = prune_folder(source, tmp_path / "out", options, asked(tmp_path))
    before, after = louver.load(source), louver.load(tmp_path / "out")
    changed = {name for name in before if not np.array_equal(np.asarray(before[name]), np.asarray(after[name]))}
    assert changed == {row.name for row in done.written.rows} and len(changed) == 9
    assert "excluded by the user" in done.report["model.layers.0.self_attn.q_proj"].reason
    assert done.report["lm_head"].done == "dense" and "score" in done.report["lm_head"].reason


def test_other_patterns(tmp_path: Path) -> None:
    source = saved(torch, transformers, tmp_path / "in", "llama", intermediate_size=70)
    for number, text in enumerate(("1:4", "2:8@16", "2:8@V16")):
        options = PruneOptions(Pattern.parse(text))
        done = prune_folder(source, tmp_path / str(number), options, asked(tmp_path, Method("sparsegpt")))
        after = louver.load(tmp_path / str(number))
        assert len(done.written.rows) == 14
        assert all(louver.check(np.asarray(after[row.name]), text).ok for row in done.written.rows)


def test_held_out_texts_choose_the_damping(tmp_path: Path) -> None:
    source = saved(torch, transformers, tmp_path / "in", "llama")
    files = [str(tokens_file(torch, tmp_path / f"{name}.npy", 8, 24, seed)) for seed, name in enumerate(("a", "b"), 3)]
    done = prune_folder(source, tmp_path / "out", TWO_FOUR, asked(tmp_path, held_out=tuple(files)))
    assert all(row.held_out.keys() == {"a.npy", "b.npy"} for row in done.report if row.done == "pruned")


def test_text_of_its_own_is_kept_for_the_same_call(tmp_path: Path) -> None:
    source = saved(torch, transformers, tmp_path / "in", "llama", bos_token_id=1, eos_token_id=2)
    own = Calibration(Method("wanda"), rows=9, length=17)
    done = prune_folder(source, tmp_path / "out", TWO_FOUR, own, resume=tmp_path / "work")
    assert done.report["model.layers.0.mlp.down_proj"].tokens == 8 * 17, "a row of nine is held out"
    again = prune_folder(source, tmp_path / "out2", TWO_FOUR, own, resume=tmp_path / "work")
    assert again.report.rows == done.report.rows
    shutil.rmtree(tmp_path / "work")
    with pytest.raises(ValueError, match=r"out/model.* exists: choose another name, or replace it with --force"):
        prune_folder(source, tmp_path / "out", TWO_FOUR, own)


def test_a_model_of_other_names_is_refused(tmp_path: Path) -> None:
    source = saved(torch, transformers, tmp_path / "in", "llama")
    tensors = louver.load(source)
    one = tmp_path / "one"
    one.mkdir()
    shutil.copy(source / "config.json", one)
    lost = "model.layers.1.mlp.up_proj.weight"
    louver.save(one / "model.safetensors", {name: t for name, t in tensors.items() if name != lost})
    with pytest.raises(
        ValueError, match=f"holds every parameter of its model, got none that Transformers takes for {lost}"
    ):
        prune_folder(one, tmp_path / "out", TWO_FOUR, asked(tmp_path))
    (one / "config.json").write_text("{}")
    louver.save(one / "model.safetensors", tensors)
    with pytest.raises(ValueError, match=r"config\.json that names a model_type: leave out --method"):
        prune_folder(one, tmp_path / "out", TWO_FOUR, asked(tmp_path))
    assert not (tmp_path / "out").exists() and not (tmp_path / ".out.blocks").exists()


def test_a_part_of_a_stack_is_refused(tmp_path: Path) -> None:
    source = saved(torch, transformers, tmp_path / "in", "mixtral")
    options = PruneOptions(Pattern.parse("2:4"), choice=Choice(exclude=("*layers.1*experts.2.w2*",)))
    with pytest.raises(
        ValueError, match=r"layers\.1\.mlp\.experts\.down_proj is one parameter of 4 tensors, pruned all or none"
    ):
        prune_folder(source, tmp_path / "out", options, asked(tmp_path))


def test_bad_calls_are_refused_before_any_work(tmp_path: Path) -> None:
    source = saved(torch, transformers, tmp_path / "in", "llama")
    text = str(tokens_file(torch, tmp_path / "text.npy"))
    with pytest.raises(ValueError, match='texts are files, or "self" alone, got self, '):
        Calibration(FULL, ("self", text))
    with pytest.raises(ValueError, match="rows is 1 or more, got 0"):
        Calibration(FULL, rows=0)
    with pytest.raises(ValueError, match="texts have names of their own, got text.npy, text.npy"):
        Calibration(FULL, (text, str(tmp_path / "in" / "text.npy")))
    call = asked(tmp_path)
    with pytest.raises(ValueError, match="is written to a folder, got"):
        prune_folder(source, tmp_path / "out.json", TWO_FOUR, call)
    with pytest.raises(FileNotFoundError, match="no such folder: make it first"):
        prune_folder(source, tmp_path / "no" / "out", TWO_FOUR, call)
    with pytest.raises(ValueError, match="blocks names a torch.nn.ModuleList or Sequential"):
        prune_folder(source, tmp_path / "out", TWO_FOUR, asked(tmp_path, blocks="model.rows"))
    file = open_checkpoint(source).files[0].path
    with pytest.raises(ValueError, match="a folder"):
        prune_folder(file, tmp_path / "out", TWO_FOUR, call)
    louver.models.prune(source, tmp_path / "sparse", compressed=True)
    with pytest.raises(ValueError, match="louver decompress"):
        prune_folder(
            tmp_path / "sparse",
            tmp_path / "out",
            PruneOptions(Pattern.parse("2:4"), choice=Choice(include=("lm_head*",))),
            call,
        )
    assert not (tmp_path / "out").exists()


def test_nan_names_the_layer_and_the_same_call_goes_on(tmp_path: Path) -> None:
    source = saved(torch, transformers, tmp_path / "in", "llama", "float32")
    model = model_in(source)
    with torch.no_grad():
        model.model.layers[1].input_layernorm.weight[3] = torch.nan
    model.save_pretrained(tmp_path / "bad")
    with pytest.raises(ArithmeticError, match=r"^model\.layers\.1\.self_attn\.[qkv]_proj: "):
        prune_folder(tmp_path / "bad", tmp_path / "out", TWO_FOUR, asked(tmp_path))
    assert not (tmp_path / "out").exists()
    assert (tmp_path / ".out.blocks" / "model.layers.0.block").exists()


def test_an_encoder_is_pruned_but_not_judged(tmp_path: Path) -> None:
    source = saved(torch, transformers, tmp_path / "in", "bert", "float32")
    done = prune_folder(source, tmp_path / "out", TWO_FOUR, asked(tmp_path))
    assert len(done.written.rows) == 12
    assert done.notes == ("left dense, because they are outside of the blocks: pooler.dense.weight",)
    wanted = transformers.AutoModel.from_pretrained(source)
    louver.torch.prune_(
        wanted, method="sparsegpt", correct=True, reconstruct=6, calibration={"text.npy": ids(torch, 24)}
    )
    got, state = transformers.AutoModel.from_pretrained(tmp_path / "out").state_dict(), wanted.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in got.items())
    with pytest.raises(
        ValueError, match="are for a causal language model, got BertModel: leave out --eval and --distill"
    ):
        prune_folder(source, tmp_path / "again", TWO_FOUR, asked(tmp_path, judged=(str(tmp_path / "text.npy"),)))
    with pytest.raises(ValueError, match="and give --calibration FILE"):
        prune_folder(source, tmp_path / "again", TWO_FOUR, Calibration(Method("wanda")))
