"""`distill_`: it learns, zeros stay, errors change nothing, and a run that was killed ends with the same bits."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest

import louver
import louver.torch

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

from louver.torch.accuracy import distill, faster, loop, working  # noqa: E402
from louver.torch.accuracy.course import Options, Order, default_rate, windows  # noqa: E402
from louver.torch.accuracy.distill_report import Point, Shown  # noqa: E402
from louver.torch.accuracy.graphed import Body  # noqa: E402
from louver.torch.accuracy.text import evaluate, generate_tokens  # noqa: E402
from louver.torch.accuracy.trained import trained_parameters, zero_masks  # noqa: E402

QUICK = {"batch": 8, "length": 24, "rate": 3e-3, "generate": 800}


def dense_model(kind: str = "Llama", seed: int = 0, **more: Any) -> Any:
    torch.manual_seed(seed)
    if kind == "GPT2":
        config = transformers.GPT2Config(vocab_size=99, n_embd=64, n_layer=2, n_head=4, bos_token_id=3, eos_token_id=3)
        return transformers.GPT2LMHeadModel(config).eval()
    config = transformers.LlamaConfig(
        vocab_size=99, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, initializer_range=0.1, tie_word_embeddings=True, **more,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def pair(kind: str = "Llama", pattern: str = "2:4") -> tuple[Any, Any]:
    dense = dense_model(kind)
    model = copy.deepcopy(dense)
    louver.torch.prune_(model, pattern)
    return model, dense


def state(model: Any) -> dict[str, Any]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one: Any, other: Any) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.parametrize(
    ("kind", "pattern"), [("Llama", "2:4"), ("GPT2", "2:4"), ("Llama", "2:8@16"), ("Llama", "2:8@V16")]
)
def test_it_learns_and_zeros_stay(kind: str, pattern: str) -> None:
    model, dense = pair(kind, pattern)
    text = generate_tokens(dense, 32, 24, seed=9)
    before, old, untouched = evaluate(model, text, dense), state(model), state(dense)
    report = louver.torch.distill_(model, teacher=dense, steps=40, **QUICK)
    after = evaluate(model, text, dense)
    assert after.kl < 0.75 * before.kl
    pruned = [name for name, value in old.items() if value.ndim > 1 and (value == 0).float().mean() >= 0.05]
    for name, value in model.state_dict().items():
        if name in pruned:
            assert (value[old[name] == 0] == 0).all() and not torch.equal(value, old[name])
        elif "lm_head" in name or "embed" in name or ".wte" in name or ".wpe" in name:
            assert torch.equal(value, old[name])
        elif value.is_floating_point() and name in dict(model.named_parameters()):
            assert not torch.equal(value, old[name]), name
    assert report.masked == len(pruned) > 0 and report.moved == 0 and report.steps == 40
    assert report.tokens == 40 * 8 * 24 and report.rate == 3e-3
    assert [point.step for point in report.curve] == [20, 40] and report.curve[1].loss < report.curve[0].loss
    assert json.loads(report.json())["tokens_per_second"] == report.tokens_per_second > 0
    assert "40 steps, 7,680 tokens in" in str(report)
    assert same(untouched, dense.state_dict()) and "forward" not in vars(dense.lm_head)


def test_a_weight_with_accidental_zeros_is_not_masked() -> None:
    model, _ = pair()
    accidental = model.model.layers[0].mlp.down_proj.weight
    with torch.no_grad():
        accidental.normal_()
        accidental.view(-1)[::33] = 0
    masks = zero_masks(trained_parameters(model))
    assert len(masks) == 13 and "model.layers.0.mlp.down_proj.weight" not in masks
    assert not any("embed" in name or "head" in name for name in trained_parameters(model))


def test_a_frozen_parameter_stays() -> None:
    model, dense = pair()
    norm = model.model.norm.weight.requires_grad_(False)
    old = norm.clone()
    louver.torch.distill_(model, teacher=dense, steps=3, **QUICK)
    assert torch.equal(norm, old)


@pytest.mark.parametrize("context", ["inference_mode", "no_grad"])
def test_it_trains_whatever_the_caller_switched_off(context: str) -> None:
    with getattr(torch, context)():
        model, dense = pair()
        old = state(model)
        for parts in ("model", "blocks"):
            louver.torch.distill_(model, teacher=dense, steps=6, parts=parts, **QUICK)
    assert not torch.equal(old["model.norm.weight"], model.model.norm.weight)


def test_text_learnt_by_heart_is_told_of() -> None:
    model, dense = pair()
    few = generate_tokens(dense, 64, 12, seed=9)
    report = louver.torch.distill_(model, few, teacher=dense, steps=150, batch=4, length=12, rate=1e-2)
    # 4 of the 64 rows are held out.
    assert report.passes == pytest.approx(150 * 4 / 60) and report.by_heart
    assert report.held_out > 1.5 * report.curve[-1].loss
    assert f"loss of rows apart {report.held_out:.4f}; each other row was read 10.0 times" in str(report)
    assert "learns its text by heart: give more text" in str(report)
    many = louver.torch.distill_(pair()[0], teacher=dense, steps=8, **QUICK)
    assert many.passes < 2 and not many.by_heart and "by heart" not in str(many)


def test_writing_ends_with_the_time_for_it(monkeypatch: Any) -> None:
    _, dense = pair()
    monkeypatch.setattr(distill, "WRITTEN_TOGETHER", 50)
    assert distill._written(dense, 30, 12, math.inf, 3).shape == (30, 12)
    clock = iter(range(0, 100, 10))
    monkeypatch.setattr(distill.time, "monotonic", lambda: next(clock))
    assert distill._written(dense, 30, 12, 15, 3).shape == (8, 12)


def test_a_terminal_shows_the_time_left(monkeypatch: Any, capsys: Any) -> None:
    shown = Shown(None)
    shown.step(Point(20, 100, 30.0, 0.25), 0.25)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    shown.step(Point(20, 100, 30.0, 0.25), 0.25)
    shown.step(Point(80, 400, 121.0, 0.125), 1.01)
    assert (
        capsys.readouterr().err == "\rdistilled 25%, loss 0.2500, 1:30 left \rdistilled 100%, loss 0.1250, 0:00 left \n"
    )


def test_values_of_sparse_layers_train() -> None:
    model, dense = pair()
    louver.torch.compress_(model, force=True)
    old, text = state(model), generate_tokens(dense, 8, 24, seed=9)
    before = evaluate(model, text, dense)
    report = louver.torch.distill_(model, teacher=dense, steps=6, **QUICK)
    assert "14 sparse layers train their values" in str(report)
    assert evaluate(model, text, dense).kl < before.kl
    for name, value in model.state_dict().items():
        if name.endswith("indices"):
            assert torch.equal(value, old[name])
        if name.endswith("values"):
            assert not torch.equal(value, old[name])
    assert louver.torch.verify(model) == {}


@pytest.mark.parametrize("kind", ["Llama", "GPT2"])
@pytest.mark.parametrize("transposable", [False, True])
def test_layers_that_are_faster_train_sparse_with_the_same_result(
    kind: str, transposable: bool, monkeypatch: Any, tmp_path: Path
) -> None:
    dense = dense_model(kind)
    model = copy.deepcopy(dense)
    louver.torch.prune_(model, transposable=transposable)
    layers = [name.removesuffix(".weight") for name in zero_masks(trained_parameters(model))]
    # A zero among the kept values, which stays.
    first = model.get_submodule(layers[0]).weight
    with torch.no_grad():
        first[tuple(first.nonzero()[5])] = 0
    old, plain = state(model), copy.deepcopy(model)
    data = generate_tokens(dense, 21, 24, seed=3)
    expected = louver.torch.distill_(plain, data, teacher=dense, steps=6, **QUICK)
    asked: list[int] = []

    def is_faster(there: Any, sparse: Any, tokens: int) -> bool:
        assert tokens == 8 * 24
        asked.append(sparse.in_features)
        return sparse.in_features == 64

    monkeypatch.setattr(faster, "is_faster", is_faster)
    for resume in (tmp_path, tmp_path):
        made = copy.deepcopy(model)
        report = louver.torch.distill_(made, data, teacher=dense, steps=6, resume=resume, **QUICK)
        assert f"{len(layers) - 2} sparse layers train their values" in str(report)
        assert (report.masked, report.zeros, report.moved) == (expected.masked, expected.zeros, 0)
        assert type(made.get_submodule(layers[0])) is type(model.get_submodule(layers[0]))
        for name, value in made.state_dict().items():
            torch.testing.assert_close(value, plain.state_dict()[name], rtol=0, atol=2e-4)
            if name.removesuffix(".weight") in layers:
                assert not value[old[name] == 0].any()
    # The second run took the choice of the first.
    assert len(asked) == len({(layer.weight.shape) for layer in map(model.get_submodule, layers)})


@pytest.mark.parametrize("kind", ["Llama", "GPT2"])
def test_masks_move_within_their_pattern(kind: str) -> None:
    model, dense = pair(kind)
    old = state(model)
    report = louver.torch.distill_(model, teacher=dense, steps=44, moving=True, **QUICK)
    assert 0.02 < report.moved < 0.5 and "of the kept places moved" in str(report)
    turned = kind == "GPT2"
    for name in zero_masks(trained_parameters(model)):
        value = model.state_dict()[name]
        assert louver.check((value.t() if turned else value).contiguous().numpy(), "2:4").ok
        assert (value == 0).float().mean() == (old[name] == 0).float().mean()


def test_masks_move_by_given_patterns() -> None:
    model, dense = pair(pattern="4:8@16")
    names = [name.removesuffix(".weight") for name in zero_masks(trained_parameters(model))]
    report = louver.torch.distill_(
        model, teacher=dense, steps=24, moving=True, patterns=dict.fromkeys(names, "4:8@16"), **QUICK
    )
    assert report.moved > 0
    assert all(louver.check(model.get_submodule(name).weight.detach().numpy(), "4:8@16").ok for name in names)


class Killed(Exception):
    pass


@pytest.mark.parametrize("moving", [False, True])
def test_a_killed_run_goes_on_with_the_same_bits(moving: bool, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(loop, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(loop, "LOOK", 7)
    model, dense = pair()
    old = state(model)
    whole = copy.deepcopy(model)
    data = generate_tokens(dense, 21, 24, seed=3)
    options: Any = dict(teacher=dense, steps=30, moving=moving, **QUICK)
    expected = louver.torch.distill_(whole, data, **options)

    def kill(point: Any) -> None:
        if point.step == 21:
            raise Killed

    with pytest.raises(Killed):
        louver.torch.distill_(model, data, resume=tmp_path, progress=kill, **options)
    assert same(old, model.state_dict())
    seen: list[int] = []
    report = louver.torch.distill_(model, data, resume=tmp_path, progress=lambda p: seen.append(p.step), **options)
    assert seen == [21, 28, 30] and same(whole.state_dict(), model.state_dict())
    assert [(p.step, p.loss) for p in report.curve] == [(p.step, p.loss) for p in expected.curve]
    assert not list(tmp_path.glob("*.part"))
    with pytest.raises(ValueError, match="same model, data and options, got other rate: give another folder"):
        louver.torch.distill_(copy.deepcopy(dense_pruned()), data, resume=tmp_path, **{**options, "rate": 1e-3})
    # A run that has ended gives its result again.
    again = dense_pruned()
    louver.torch.distill_(again, data, resume=tmp_path, **options)
    assert same(whole.state_dict(), again.state_dict())


def dense_pruned() -> Any:
    return pair()[0]


def test_minutes_end_a_run() -> None:
    model, dense = pair()
    report = louver.torch.distill_(model, teacher=lambda: dense, minutes=0.02, batch=4, length=16, generate=64)
    assert report.seconds >= 1.2 and report.steps > 0 and report.rate == 1.4e-3


def test_text_of_several_kinds_is_cut_and_mixed() -> None:
    parts = {"a": torch.arange(40).view(2, 20) % 9, "b": torch.ones(3, 11, dtype=torch.int32)}
    cut = windows(parts, 8, 9)
    assert cut.shape == (2 * 2 + 3, 8) and cut.dtype == torch.int64
    assert torch.equal(cut[:2], parts["a"][0, :16].view(2, 8))
    with pytest.raises(ValueError, match="tokens of b are 0 to 8 for this model, got 9"):
        windows({"b": torch.full((2, 3), 9)}, 8, 9)
    with pytest.raises(ValueError, match="got no text"):
        windows({}, 8, 9)


def test_rows_come_once_a_pass_and_the_rate_falls() -> None:
    order = Order(10, 3, 0)
    seen = torch.cat([order.next() for _ in range(3)])
    assert len(seen.unique()) == 9
    options = Options(None, 100, None, 3, 4, None, False, "model", 0)
    rates = [options.rate_at(1.0, step, options.done(step, 0.0)) for step in range(101)]
    assert rates[0] == pytest.approx(0.1) and max(rates) == pytest.approx(1, abs=0.05)
    assert rates[100] == pytest.approx(0.03) and rates[10:] == sorted(rates[10:], reverse=True)
    assert default_rate(64) == default_rate(576) == 1.4e-3 and default_rate(4096) == pytest.approx(1.4e-3 * 576 / 4096)


def test_a_working_copy_keeps_the_types_of_buffers(monkeypatch: Any) -> None:
    model, _ = pair()
    monkeypatch.setattr(working, "compute_type", lambda device: torch.bfloat16)
    made = working.working_copy(model.train(), torch.device("cpu"))
    assert all(p.dtype == torch.bfloat16 for p in made.parameters()) and not made.training and model.training
    for name, buffer in model.named_buffers():
        assert torch.equal(made.get_buffer(name), buffer) and buffer.dtype == torch.float32
    assert made.lm_head.weight is made.model.embed_tokens.weight
    assert working.ready(model, torch.device("cpu")) is not model
    assert working.ready(made, torch.device("cpu")) is made


@pytest.mark.parametrize("kind", ["Llama", "GPT2"])
def test_a_body_runs_all_blocks_for_the_model(kind: str) -> None:
    model, _ = pair(kind)
    tokens, other = torch.randint(99, (3, 12)), torch.randint(99, (3, 12))
    expected = [model(each).logits for each in (tokens, other)]
    expected[1].sum().backward()
    gradient = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    body = Body(model, tokens)
    for block in body.blocks:
        assert "forward" not in vars(block)
    # A first call finds the form of the output.
    body(body.sample)
    calls: list[int] = []
    body.enter(lambda x: calls.append(len(x)) or body(x))
    found = [model(each).logits for each in (tokens, other)]
    found[1].sum().backward()
    assert calls == [3, 3] and all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert all(torch.equal(p.grad, gradient[name]) for name, p in model.named_parameters())
    body.leave()
    assert torch.equal(model(tokens).logits, expected[0]) and calls == [3, 3]


@pytest.mark.parametrize("graph", ["right", "wrong", "failing"])
def test_a_graph_that_fails_or_errs_is_left(graph: str, monkeypatch: Any) -> None:
    """The ways of a GPU, on a CPU: nothing is compiled or captured."""

    def captured(body: Any) -> Any:
        if graph == "failing":
            raise RuntimeError("operation not permitted\nmore")
        body(body.sample)
        return body if graph == "right" else lambda x: body(x) + 0.1 * torch.arange(64.0)

    model, dense = pair()
    whole = copy.deepcopy(model)
    options: Any = {"teacher": dense, "steps": 20, **QUICK}
    expected = louver.torch.distill_(whole, **options)
    monkeypatch.setattr(loop, "graph", captured)
    monkeypatch.setattr(loop.Run, "warm", lambda self: self._settle())
    monkeypatch.setattr(torch, "compile", lambda forward, **_: forward)
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, **_: None)
    report = louver.torch.distill_(model, **options)
    said = {
        "right": (),
        "wrong": ("no CUDA graph of the blocks: ArithmeticError: loss and norm of the gradient are",),
        "failing": ("no CUDA graph of the blocks: RuntimeError: operation not permitted",),
    }[graph]
    assert len(report.notes) == len(said) and all(a.startswith(b) for a, b in zip(report.notes, said, strict=True))
    assert same(whole.state_dict(), model.state_dict())
    assert report.curve[-1].loss == expected.curve[-1].loss


def test_models_whose_blocks_are_no_body() -> None:
    model, _ = pair()
    model.model.layers[1].register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="blocks have no hooks, got model.layers.1 with some"):
        Body(model, torch.randint(99, (3, 12)))


def test_dense_states_are_computed_once() -> None:
    class Head:
        width, calls, model = 5, 0, torch.nn.Linear(1, 1)

        def hidden(self, tokens: Any) -> Any:
            self.calls += 1
            return tokens[..., None] * torch.arange(5.0)

    head: Any = Head()
    data = torch.arange(12).view(4, 3)
    for limit, calls in ((4 * 12 * 5, 2), (4 * 12 * 5 - 1, 4)):
        head.calls = 0
        states = working.DenseStates(head, data, limit)
        for rows in (torch.tensor([2, 0]), torch.tensor([3, 1]), torch.tensor([0, 1]), torch.tensor([3, 2])):
            assert torch.equal(states(rows, rows), data[rows][..., None] * torch.arange(5.0))
        assert head.calls == calls


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"teacher": None}, "needs the dense model, got teacher=None and a model that was loaded from no folder: keep it before"),
        ({"steps": 3, "minutes": 1.0}, "ends by minutes or by steps, got minutes=1.0 and steps=3"),
        ({"steps": 0}, "steps is an integer of 1 or more, got 0"),
        ({"batch": 0}, "batch is an integer of 1 or more, got 0"),
        ({"length": 1}, "length is an integer of 2 or more, got 1"),
        ({"rate": math.nan}, "rate is a positive number, got nan"),
        ({"parts": "halves"}, 'parts is "model" or "blocks", got \'halves\''),
        ({"parts": "blocks", "moving": True}, 'masks move where the whole model trains, got moving=True and parts="blocks"'),
        ({"generate": 0}, "needs text, got data=None and generate=0"),
    ],
)  # fmt: skip
def test_bad_arguments(change: Any, message: str) -> None:
    model, dense = pair()
    old = state(model)
    with pytest.raises(ValueError, match=message):
        louver.torch.distill_(model, **{"teacher": dense, "steps": 3, **QUICK, **change})
    assert same(old, model.state_dict())


def test_the_folder_of_the_model_is_its_teacher(tmp_path: Path) -> None:
    dense = dense_model("Llama")
    dense.save_pretrained(tmp_path / "dense")
    model = type(dense).from_pretrained(tmp_path / "dense")
    louver.torch.prune_(model)
    again = copy.deepcopy(model)
    louver.torch.distill_(model, steps=3, **QUICK)
    louver.torch.distill_(again, teacher=dense, steps=3, **QUICK)
    assert same(state(model), again.state_dict())
    model.save_pretrained(tmp_path / "pruned")
    loaded = type(dense).from_pretrained(tmp_path / "pruned")
    with pytest.raises(
        ValueError, match="a teacher has dense weights, got .*_proj.weight with the zeros of the pruned"
    ):
        louver.torch.distill_(loaded, steps=3, **QUICK)


def test_bad_models() -> None:
    model, dense = pair()
    with pytest.raises(ValueError, match="dense weights of its own, got .*q_proj.weight that is the pruned model's"):
        louver.torch.distill_(model, teacher=model, steps=3)
    with pytest.raises(TypeError, match="a torch.nn.Module, a folder, or a function that makes the module, got int"):
        louver.torch.distill_(model, teacher=3, steps=3)  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match="has pruned weights, got LlamaForCausalLM without one of 5% zeros: call prune_"
    ):
        louver.torch.distill_(dense, teacher=copy.deepcopy(dense), steps=3)
    with pytest.raises(ValueError, match="parameters that require grad beside embeddings and head"):
        louver.torch.distill_(copy.deepcopy(model).requires_grad_(False), teacher=dense, steps=3)
    with pytest.raises(ValueError, match="of one vocabulary, got 99 and 77"):
        torch.manual_seed(1)
        config = copy.deepcopy(dense.config)
        config.vocab_size = 77
        louver.torch.distill_(model, teacher=type(dense)(config), steps=3)
    with pytest.raises(ValueError, match="keep a known pattern, got none: give patterns="):
        louver.torch.distill_(model, teacher=dense, steps=3, moving=True, patterns=("1:4",), **QUICK)
    with pytest.raises(ValueError, match="which breaks 1:4"):
        names = dict.fromkeys(["model.layers.0.mlp.up_proj"], "1:4")
        louver.torch.distill_(model, teacher=dense, steps=3, moving=True, patterns=names, **QUICK)


def test_a_loss_that_is_not_finite_changes_nothing() -> None:
    model, dense = pair()
    dense.model.norm.weight.data[0] = math.nan
    old = state(model)
    data = torch.randint(99, (8, 24))
    with pytest.raises(ArithmeticError, match="divergence of each step is finite, got nan among the steps to 3"):
        louver.torch.distill_(model, data, teacher=dense, steps=3, batch=8, length=24)
    assert same(old, model.state_dict())


@pytest.mark.parametrize("kind", ["Llama", "GPT2"])
def test_blocks_learn_one_after_the_other(kind: str) -> None:
    model, dense = pair(kind)
    text = generate_tokens(dense, 32, 24, seed=9)
    before, old, untouched = evaluate(model, text, dense), state(model), state(dense)
    report = louver.torch.distill_(model, teacher=dense, steps=40, parts="blocks", **QUICK)
    assert evaluate(model, text, dense).kl < 0.8 * before.kl
    assert report.parts == "blocks" and report.steps == 80 and len(report.curve) == 2
    assert report.masked == 14 if kind == "Llama" else 8
    for name in zero_masks(trained_parameters(model)):
        value = model.state_dict()[name]
        assert (value[old[name] == 0] == 0).all() and not torch.equal(value, old[name])
    assert same(untouched, dense.state_dict())


def test_killed_blocks_go_on_with_the_same_bits(tmp_path: Any) -> None:
    model, dense = pair()
    old, whole = state(model), copy.deepcopy(model)
    options: Any = {"teacher": dense, "steps": 12, "parts": "blocks", **QUICK}
    expected = louver.torch.distill_(whole, **options)

    def kill(point: Any) -> None:
        raise Killed

    with pytest.raises(Killed):
        louver.torch.distill_(model, resume=tmp_path, progress=kill, **options)
    assert same(old, model.state_dict())
    report = louver.torch.distill_(model, resume=tmp_path, **options)
    assert same(whole.state_dict(), model.state_dict())
    assert [point.loss for point in report.curve] == [point.loss for point in expected.curve]


def test_blocks_that_do_not_learn_stay() -> None:
    model, dense = pair()
    old = state(model)
    losses = []
    for rate in (10.0, 1e-9):
        report = louver.torch.distill_(model, teacher=dense, steps=2, parts="blocks", **{**QUICK, "rate": rate})
        losses.append([point.loss for point in report.curve])
        if rate == 10.0:
            assert same(old, model.state_dict())
    # The next block reads the stream of the old values.
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_bad_blocks() -> None:
    model, dense = pair()
    sparse = copy.deepcopy(model)
    louver.torch.compress_(sparse, force=True)
    with pytest.raises(
        ValueError, match="same parameters, got .*q_proj.weight .* of the teacher alone: call decompress_"
    ):
        louver.torch.distill_(sparse, teacher=dense, steps=2, parts="blocks", **QUICK)
    with torch.no_grad():
        dense.model.layers[1].mlp.up_proj.weight[3, 4] = math.inf
    old = state(model)
    with pytest.raises(
        ArithmeticError, match="model.layers.1: the error of its output is finite, got nan: look for NaN"
    ):
        louver.torch.distill_(model, torch.randint(99, (8, 24)), teacher=dense, steps=2, parts="blocks")
    assert same(old, model.state_dict())
