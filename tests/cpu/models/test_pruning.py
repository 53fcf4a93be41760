"""What `louver prune` writes for each kind of tensor, against NumPy on whole arrays."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import louver
from louver.formats.checkpoint import Checkpoint, open_checkpoint
from louver.formats.pattern import Pattern
from louver.models.pruning import PruneOptions, prune_plan
from louver.models.rewrite import Plan, Rewritten, rewrite
from louver.models.roles import Evidence, ModelFacts, Role, Scale, TensorFacts
from louver.models.workers import HERE, Workers
from support.sparse import bits_of

if TYPE_CHECKING:
    from support.command_line import Cli

E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)


def decided(path: Path, axes: Mapping[str, int], scales: Mapping[str, Scale] | None = None) -> ModelFacts:
    """Facts that prune the tensors of `axes`."""
    return ModelFacts(
        {
            name: TensorFacts(
                name,
                tensor.form,
                Role.WEIGHT if name in axes else Role.BIAS,
                Evidence.NAMES,
                name in axes,
                "the test says so",
                axes.get(name),
                scale=(scales or {}).get(name),
            )
            for name, tensor in open_checkpoint(path).tensors.items()
        }
    )


@dataclass(frozen=True)
class Decided:
    """A request to prune by facts that the test gives."""

    facts: ModelFacts
    options: PruneOptions

    def plan(self, checkpoint: Checkpoint, workers: Workers = HERE) -> Plan:
        return prune_plan(checkpoint, self.facts, self.options)


def pruned(path: Path, out: Path, facts: ModelFacts, **changed: Any) -> Rewritten:
    return rewrite(path, out, Decided(facts, PruneOptions(**({"pattern": Pattern(2, 4)} | changed))))


@pytest.mark.sampled(7)
@pytest.mark.parametrize("piece", [256, 1 << 22])
@pytest.mark.parametrize("compressed", [False, True], ids=["dense", "compressed"])
@pytest.mark.parametrize("pattern", ["2:4", "1:2", "3:7", "2:8@4", "2:8@V4", "2:6@V16", "1:3@64", "2:5@V99"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((37, 70), 1), ((70, 37), 0), ((3, 18, 26), 2), ((3, 26, 18), 1), ((5, 12, 3, 3), 1), ((2, 40, 45, 6), 1)],
)
def test_any_axis_is_pruned_as_in_memory(
    shape: tuple[int, ...],
    axis: int,
    pattern: str,
    compressed: bool,
    piece: int,
    tmp_path: Path,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In pieces that are smaller than a tensor and larger than it."""
    monkeypatch.setattr("louver.formats.checkpoint.PIECE", piece)
    monkeypatch.setattr("louver.models.steps.PIECE", piece)
    weight = rng.standard_normal(shape).astype(np.float16)
    louver.save(tmp_path / "in", {"w": weight, "b": rng.standard_normal(7)})
    done = pruned(
        tmp_path / "in",
        tmp_path / "out",
        decided(tmp_path / "in", {"w": axis}),
        pattern=Pattern.parse(pattern),
        compressed=compressed,
    )
    expected = louver.prune(weight, pattern, axis=axis)
    after = louver.load(tmp_path / "out")
    if compressed:
        wanted = louver.compress(expected, pattern, axis=axis)
        got = after["w"]
        assert isinstance(got, louver.SparseTensor) and got.axis == axis
        assert got.values.tobytes() == wanted.values.tobytes() and got.indices.tobytes() == wanted.indices.tobytes()
    else:
        np.testing.assert_array_equal(bits_of(np.asarray(after["w"])), bits_of(expected))
    wide, lost = weight.astype(float), weight.astype(float) - expected.astype(float)
    (row,) = done.rows
    assert row.error == pytest.approx(np.linalg.norm(lost) / np.linalg.norm(wide)) and row.shape == shape


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("compressed", [False, True], ids=["dense", "compressed"])
def test_memory_does_not_grow_with_windows(
    compressed: bool, axis: int, tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("checkpoint.PIECE", "writer.PIECE", "rows.BLOCK"):
        monkeypatch.setattr(f"louver.formats.{name}", 1 << 17)
    monkeypatch.setattr("louver.models.steps.PIECE", 1 << 17)
    monkeypatch.setattr("louver.models.steps.BLOCK", 1 << 17)
    peaks: list[int] = []
    for rows in (128, 2048):
        weight = rng.standard_normal((rows, 1024)).astype(np.float16)
        louver.save(tmp_path / "in", {"w": weight if axis == 1 else weight.T})
        facts = decided(tmp_path / "in", {"w": axis})
        tracemalloc.start()
        pattern = Pattern.parse(f"2:8@V{rows}")
        pruned(tmp_path / "in", tmp_path / f"{rows}", facts, pattern=pattern, compressed=compressed)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0] < 16 << 20, "a window has 2 Mi elements"


def scaled_weight(rng: np.random.Generator, shape: tuple[int, ...], block: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """A weight in e4m3, its scales of very unequal size, and its numbers."""
    stored = rng.standard_normal(shape).astype(np.float32).astype(E4M3)
    counts = tuple(-(-size // part) for size, part in zip(shape, block, strict=True))
    scales = np.exp(rng.normal(0, 3, counts)).astype(np.float32)
    places = np.ix_(*(np.arange(size) // part for size, part in zip(shape, block, strict=True)))
    return stored, scales, stored.astype(np.float32) * scales[places]


@pytest.mark.parametrize("compressed", [False, True], ids=["dense", "compressed"])
@pytest.mark.parametrize(
    ("shape", "axis", "block", "pattern"),
    [
        ((64, 96), 1, (1, 96), "2:8@V32"),
        ((64, 96), 1, (16, 6), "2:4"),
        ((70, 90), 1, (32, 7), "8:32"),
        ((3, 24, 40), 1, (1, 5, 40), "2:8@V4"),
    ],
)
def test_quantized_weights_are_pruned_by_their_numbers(
    shape: tuple[int, ...],
    axis: int,
    block: tuple[int, ...],
    pattern: str,
    compressed: bool,
    tmp_path: Path,
    rng: np.random.Generator,
) -> None:
    stored, scales, numbers = scaled_weight(rng, shape, block)
    louver.save(tmp_path / "in", {"w": stored, "w_scale": scales})
    facts = decided(tmp_path / "in", {"w": axis}, {"w": Scale("w_scale", block)})
    done = pruned(tmp_path / "in", tmp_path / "out", facts, pattern=Pattern.parse(pattern), compressed=compressed)
    after = louver.load(tmp_path / "out")
    np.testing.assert_array_equal(np.asarray(after["w_scale"]), scales)
    kept = louver.prune(numbers, pattern, axis=axis) != 0
    expected = np.where(kept, stored, np.zeros((), E4M3))
    dense = after["w"].dense() if compressed else np.asarray(after["w"])
    np.testing.assert_array_equal(dense.astype(np.float32), expected.astype(np.float32))
    assert (bits_of(dense)[kept] == bits_of(stored)[kept]).all()
    by_bits = louver.prune(stored, pattern, axis=axis).astype(np.float32) != 0
    assert (by_bits != (expected.astype(np.float32) != 0)).any(), "the scales matter"
    lost = np.where(kept, 0, numbers)
    assert done.rows[0].error == pytest.approx(np.linalg.norm(lost) / np.linalg.norm(numbers), rel=1e-5)


def test_a_weight_and_its_scales_may_lie_in_two_files(tmp_path: Path, rng: np.random.Generator) -> None:
    stored, scales, numbers = scaled_weight(rng, (24, 40), (8, 4))
    (tmp_path / "in").mkdir()
    weight_map = {"w": "1.safetensors", "w_scale": "2.safetensors"}
    louver.save(tmp_path / "in" / "1.safetensors", {"w": stored})
    louver.save(tmp_path / "in" / "2.safetensors", {"w_scale": scales})
    (tmp_path / "in" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    facts = decided(tmp_path / "in", {"w": 1}, {"w": Scale("w_scale", (8, 4))})
    pruned(tmp_path / "in", tmp_path / "out", facts, pattern=Pattern.parse("2:8"))
    kept = louver.prune(numbers, "2:8") != 0
    after = np.asarray(louver.load(tmp_path / "out")["w"])
    np.testing.assert_array_equal(after.astype(np.float32), np.where(kept, stored.astype(np.float32), 0))


def test_a_quantized_weight_keeps_its_type(tmp_path: Path, rng: np.random.Generator) -> None:
    stored, scales, _ = scaled_weight(rng, (8, 16), (8, 16))
    louver.save(tmp_path / "in", {"w": stored, "w_scale": scales})
    facts = decided(tmp_path / "in", {"w": 1}, {"w": Scale("w_scale", (8, 16))})
    with pytest.raises(ValueError, match=r"w is quantized, with scales in w_scale: .* leave out --dtype"):
        pruned(tmp_path / "in", tmp_path / "out", facts, dtype="f16")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("arguments", [("--dry-run",), ("OUT",)], ids=["dry", "real"])
def test_a_dry_run_refuses_what_the_run_refuses(
    arguments: tuple[str, ...], cli: Cli, tmp_path: Path, rng: np.random.Generator
) -> None:
    stored, scales, _ = scaled_weight(rng, (8, 16), (8, 16))
    louver.save(tmp_path / "in", {"0.q_proj.weight": stored, "0.q_proj.weight_scale": scales.reshape(1)})
    line = cli.refused(
        "prune", tmp_path / "in", *(tmp_path / x if x == "OUT" else x for x in arguments), "--dtype", "f16"
    )
    assert "it keeps its element type, leave out --dtype" in line


def test_a_dry_run_says_what_the_run_says(cli: Cli, tmp_path: Path, rng: np.random.Generator) -> None:
    tensors = {
        "0.q_proj.weight": rng.standard_normal((8, 16)),
        "0.k_proj.qweight": rng.integers(0, 99, (4, 6)).astype(np.int32),
        "0.k_proj.scales": rng.standard_normal((1, 6)).astype(np.float16),
    }
    louver.save(tmp_path / "in", tensors)
    notes = [
        json.loads(cli("prune", tmp_path / "in", *rest, "--json").stdout)["notes"]
        for rest in (("--dry-run",), (tmp_path / "out",))
    ]
    assert notes[0] == notes[1] and "left byte for byte" in notes[0][0]


@pytest.mark.parametrize(("sigma", "error"), [(1e-4, 1.0), (1.0, None)])
def test_the_error_is_against_the_original_weight(
    sigma: float, error: float | None, tmp_path: Path, rng: np.random.Generator
) -> None:
    weight = (sigma * rng.standard_normal((16, 32))).astype(np.float32)
    louver.save(tmp_path / "in", {"w": weight})
    (row,) = pruned(tmp_path / "in", tmp_path / "out", decided(tmp_path / "in", {"w": 1}), dtype="e4m3").rows
    after = np.asarray(louver.load(tmp_path / "out")["w"]).astype(float)
    real = np.linalg.norm(weight.astype(float) - after) / np.linalg.norm(weight.astype(float))
    assert row.error == pytest.approx(real) and (error is None or row.error == error)


def test_infinities_and_nans_are_counted(cli: Cli, tmp_path: Path, rng: np.random.Generator) -> None:
    weight = rng.standard_normal((16, 32)).astype(np.float32)
    weight[3, 5], weight[4, 9], weight[5, 9] = np.nan, np.inf, -np.inf
    louver.save(tmp_path / "in", {"0.q_proj.weight": weight})
    result = cli("prune", tmp_path / "in", tmp_path / "out", "--json")
    assert "warning: 0.q_proj.weight holds 3 infinities or NaNs" in result.stderr
    assert json.loads(result.stdout)["tensors"][0]["nonfinite"] == 3


@pytest.mark.parametrize(
    ("options", "type_after"), [({}, "F64"), ({"dtype": "f32"}, "F32"), ({"compressed": True}, "f16")]
)
def test_float64(options: dict[str, Any], type_after: str, tmp_path: Path, rng: np.random.Generator) -> None:
    weight = rng.standard_normal((16, 32))
    louver.save(tmp_path / "in", {"w": weight})
    pruned(tmp_path / "in", tmp_path / "out", decided(tmp_path / "in", {"w": 1}), **options)
    form = open_checkpoint(tmp_path / "out").tensors["w"].form
    assert str(form.dtype) == type_after
    if not options:
        kept = louver.prune(weight.astype(np.float32), "2:4") != 0
        np.testing.assert_array_equal(np.asarray(louver.load(tmp_path / "out")["w"]), np.where(kept, weight, 0))


@pytest.mark.parametrize("scaled", [False, True])
def test_element_types_that_sparse_tensors_cannot_have(scaled: bool, tmp_path: Path, rng: np.random.Generator) -> None:
    fnuz = np.dtype(ml_dtypes.float8_e4m3fnuz)
    stored = rng.standard_normal((8, 32)).astype(np.float32).astype(fnuz)
    scales = np.exp(rng.normal(0, 3, (8, 16))).astype(np.float32)
    louver.save(tmp_path / "in", {"w": stored, "w_scale": scales})
    facts = decided(tmp_path / "in", {"w": 1}, {"w": Scale("w_scale", (1, 2))} if scaled else None)
    done = pruned(tmp_path / "in", tmp_path / "out", facts, compressed=True)
    assert done.notes == ("pruned, but stored dense: w (sparse tensors have no elements of type F8_E4M3FNUZ)",)
    numbers = stored.astype(np.float32) * (np.repeat(scales, 2, axis=1) if scaled else 1)
    kept = louver.prune(numbers.astype(np.float32), "2:4") != 0
    after = np.asarray(louver.load(tmp_path / "out")["w"])
    assert after.dtype == fnuz
    np.testing.assert_array_equal(after.view(np.uint8), np.where(kept, stored.view(np.uint8), 0))


def test_a_tensor_with_an_alias_stays_readable_by_it(cli: Cli, tmp_path: Path, rng: np.random.Generator) -> None:
    import safetensors.numpy

    weights = {f"{i}.q_proj.weight": rng.standard_normal((16, 32)).astype(np.float32) for i in range(2)}
    safetensors.numpy.save_file(weights, tmp_path / "in", {"copy.0.q_proj.weight": "0.q_proj.weight", "format": "pt"})
    result = cli("prune", tmp_path / "in", tmp_path / "out", "--compressed")
    assert result.exit_code == 0, result.output
    assert "stored dense: 0.q_proj.weight (another name in the metadata stands for it)" in result.stderr
    after = open_checkpoint(tmp_path / "out")
    assert after.metadata["copy.0.q_proj.weight"] == "0.q_proj.weight"
    np.testing.assert_array_equal(
        np.asarray(louver.load(tmp_path / "out")["0.q_proj.weight"]), louver.prune(weights["0.q_proj.weight"], "2:4")
    )
    assert isinstance(louver.load(tmp_path / "out")["1.q_proj.weight"], louver.SparseTensor)


def test_packed_weights_are_left_and_named(cli: Cli, tmp_path: Path, rng: np.random.Generator) -> None:
    tensors = {
        "0.q_proj.qweight": rng.integers(0, 1 << 30, (16, 32), np.int32),
        "0.q_proj.qzeros": rng.integers(0, 1 << 30, (4, 4), np.int32),
        "0.q_proj.scales": rng.standard_normal((4, 32)).astype(np.float16),
        "0.k_proj.weight": rng.standard_normal((16, 32)).astype(np.float16),
    }
    louver.save(tmp_path / "in", tensors)
    result = cli("prune", tmp_path / "in", tmp_path / "out")
    assert (
        result.exit_code == 0 and "packed, left byte for byte" in result.stderr and "0.q_proj.qweight" in result.stderr
    )
    after = louver.load(tmp_path / "out")
    assert all(np.array_equal(np.asarray(after[name]), tensors[name]) == ("k_proj" not in name) for name in tensors)
    del tensors["0.k_proj.weight"]
    louver.save(tmp_path / "in", tensors)
    line = cli.refused("prune", tmp_path / "in", tmp_path / "out", "--force")
    assert "none of 3 tensors is pruned" in line


def test_a_dry_run_writes_nothing(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    before = checkpoint.read_bytes()
    result = cli("prune", checkpoint, "--dry-run", "--json")
    assert result.exit_code == 0
    decided = {entry["name"]: entry["prune"] for entry in json.loads(result.stdout)["tensors"]}
    assert decided.keys() == louver.load(checkpoint).keys() and sum(decided.values()) == 2
    assert checkpoint.read_bytes() == before and len(list(tmp_path.iterdir())) == 1
    assert "2 are pruned" in cli("prune", checkpoint, tmp_path / "out", "--dry-run").output
    assert not (tmp_path / "out").exists()


def test_python_does_what_the_command_does(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    import louver.models

    assert cli("prune", checkpoint, tmp_path / "a", "--compressed", "--exclude", "*query*").exit_code == 0
    done = louver.models.prune(checkpoint, tmp_path / "b", compressed=True, exclude=["*query*"])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() and done.target == tmp_path / "b"
    louver.models.decompress(tmp_path / "b", tmp_path / "c")
    done = louver.models.compress(tmp_path / "c", tmp_path / "d", only=["*dense.weight"])
    assert (tmp_path / "d").read_bytes() == (tmp_path / "a").read_bytes() and not done.notes
    assert len(louver.models.analyze(checkpoint).pruned) == 2
    with pytest.raises(AttributeError, match="its public names are advise, analyze, compress, decompress, prune"):
        louver.models.inspect  # noqa: B018  # pyright: ignore


@pytest.mark.parametrize("paths", [("", "out"), ("in", "")])
def test_empty_paths_are_refused(paths: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="IN and OUT are paths, got an empty text"):
        rewrite(*paths, PruneOptions(Pattern(2, 4)), force=True)
    for read in (louver.load, louver.models.analyze):
        with pytest.raises(ValueError, match="a checkpoint has a path, got an empty text"):
            read("")
    with pytest.raises(ValueError, match="got an empty path"):
        louver.save("", {"a": np.ones(3)})
