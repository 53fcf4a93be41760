"""Weights of compressed-tensors with a bitmask: read and written without a loss, damage found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats import checkpoint
from louver.formats.bitmask import written_form
from louver.formats.checkpoint import open_checkpoint
from louver.formats.dtypes import element_type
from louver.formats.regular import FormatError
from louver.formats.schema import BitmaskForm
from support.bitmasks import parts_of, two_of_four, write_bitmask
from support.command_line import Cli
from support.containers import entry, raw_file, read_container, write_container
from support.sparse import bits_of, random_bits, same_bits

# Written by compressed-tensors 0.14.0 (Apache-2.0) from random weights, which it holds as `expected.NAME`: `sparse-24-bitmask`
# of f16, bf16, e4m3 and int8, and `any`, a `sparse-bitmask`.
FILE = Path(__file__).parent / "files" / "compressed_tensors.safetensors"

TYPES = ("f16", "bf16", "e4m3", "s8", "f32")
SHAPES = ((5, 12), (3, 4), (2, 88), (1, 20), (0, 8), (4, 0))


def with_zeros(dense: Any, mask: Any) -> Any:
    """Dense, with +0.0 in dropped places."""
    element = element_type(dense.dtype)
    return np.where(mask, bits_of(dense), 0).astype(element.bits_dtype).view(element.numpy)


def test_a_file_of_compressed_tensors() -> None:
    tensors = louver.load(FILE)
    arrays, _ = read_container(FILE)
    assert len(tensors) == 5 + 1 + 5
    for name in ("half", "brain", "eight", "byte"):
        s, dense = tensors[f"{name}.weight"], arrays[f"expected.{name}.weight"]
        assert isinstance(s, louver.SparseTensor) and str(s.pattern) == "2:4" and s.axis == 1
        assert same_bits(s.dense(), dense)
    assert same_bits(np.asarray(tensors["any.weight"]), arrays["expected.any.weight"])
    forms = {name: tensor.form for name, tensor in open_checkpoint(FILE).tensors.items()}
    assert forms["half.weight"] == BitmaskForm("F16", (5, 12)) and str(forms["any.weight"]).startswith("sparse-bitmask")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_read_whole_and_in_pieces(
    shape: tuple[int, int], dtype: str, tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense, mask = random_bits(rng, shape, dtype), two_of_four(rng, shape)
    parts = parts_of("a.b", dense, mask)
    write_container(tmp_path / "t", {**parts, "a.b.bias": rng.random(3)}, {"format": "pt"})
    (file,) = open_checkpoint(tmp_path / "t").files
    assert file.tensors.keys() == {"a.b.weight", "a.b.bias"}
    tensor = file.tensors["a.b.weight"]
    assert tensor.nbytes == tensor.form.nbytes == sum(part.nbytes for part in parts.values())
    expected = with_zeros(dense, mask)
    s = louver.load(tmp_path / "t")["a.b.weight"]
    assert isinstance(s, louver.SparseTensor) and s.negative_zeros_dropped == 0 and same_bits(s.dense(), expected)
    for piece in (8, 16, 64):
        monkeypatch.setattr(checkpoint, "PIECE", piece)
        with file.open() as reader:
            pieces = [bits_of(np.asarray(p)).ravel() for p in reader.pieces(tensor, louver.Pattern(2, 4))]
        together = np.concatenate([*pieces, bits_of(expected)[:0].ravel()])
        np.testing.assert_array_equal(together, bits_of(expected).ravel())


@pytest.mark.parametrize("shape", [(5, 11), (1, 3), (6, 16), (0, 5), (2, 0)])
def test_any_elements_kept(shape: tuple[int, int], tmp_path: Path, rng: np.random.Generator) -> None:
    dense = random_bits(rng, shape, "bf16")
    mask = rng.random(shape) < 0.4
    write_container(tmp_path / "t", parts_of("v", dense, mask, of_groups=False), {})
    loaded = louver.load(tmp_path / "t")
    assert loaded.keys() == {"v.weight"} and same_bits(np.asarray(loaded["v.weight"]), with_zeros(dense, mask))


def test_groups_that_rows_cut_are_dense(tmp_path: Path, rng: np.random.Generator) -> None:
    """The writer's groups run on from row to row, so that rows of 6 elements need not hold 2:4."""
    dense = rng.standard_normal((4, 6)).astype(np.float16)
    mask = np.tile([[0, 1, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0]], (2, 1)) > 0
    write_container(tmp_path / "t", parts_of("v", dense, mask), {})
    loaded = louver.load(tmp_path / "t")["v.weight"]
    assert isinstance(loaded, np.ndarray) and same_bits(loaded, with_zeros(dense, mask))


def test_rows_that_do_not_hold_2_of_4_are_dense(tmp_path: Path, rng: np.random.Generator) -> None:
    dense = np.abs(rng.standard_normal((2, 8)).astype(np.float16)) + 1
    mask = np.array([[1, 1, 1, 1, 0, 0, 0, 0], [1, 0, 0, 1, 1, 0, 1, 0]]) > 0
    write_container(tmp_path / "t", parts_of("v", dense, mask), {})
    loaded = louver.load(tmp_path / "t")["v.weight"]
    assert isinstance(loaded, np.ndarray) and same_bits(loaded, with_zeros(dense, mask))


def test_a_type_that_sparse_tensors_do_not_have(tmp_path: Path, rng: np.random.Generator) -> None:
    dense, mask = rng.standard_normal((3, 8)), two_of_four(rng, (3, 8))
    write_container(tmp_path / "t", parts_of("v", dense, mask), {})
    assert same_bits(np.asarray(louver.load(tmp_path / "t")["v.weight"]), np.where(mask, dense, 0.0))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("columns", [None, 8])
def test_written(
    columns: int | None, shape: tuple[int, int], dtype: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    weight = louver.prune(random_bits(rng, shape, dtype), "2:4")
    dropped = write_bitmask(tmp_path / "t", {"x.weight": weight}, columns)
    arrays, _ = read_container(tmp_path / "t")
    s = louver.compress(weight, "2:4")
    mask = np.zeros(shape, np.bool_)
    if weight.size:
        where = s.unpacked_indices() + np.arange(s.kept) // 2 * 4
        np.put_along_axis(mask, where.astype(np.intp), True, axis=1)
    expected = parts_of("x", s.dense(), mask)
    assert arrays.keys() == expected.keys()
    for name, array in expected.items():
        assert same_bits(arrays[name], array)
    back = louver.load(tmp_path / "t")["x.weight"]
    assert isinstance(back, louver.SparseTensor)
    assert same_bits(back.values, s.values) and same_bits(back.indices, s.indices)
    assert dropped == s.negative_zeros_dropped


def test_negative_zeros(tmp_path: Path) -> None:
    """In a kept place -0.0 stays. Where a group has no free place it becomes +0.0 and is counted."""
    weight = np.array([[1, -0.0, 2, -0.0, -0.0, 3, -0.0, -0.0]], np.float16)
    assert write_bitmask(tmp_path / "t", {"x.weight": weight}) == 4
    back = np.asarray(louver.load(tmp_path / "t")["x.weight"])
    assert same_bits(back, np.array([[1, 0, 2, 0, -0.0, 3, 0, 0]], np.float16))
    # One value too many in the bits, but a zero: rows hold 2:4, and the third -0.0 of the group has no place.
    mask = np.array([[1, 1, 1, 0, 1, 0, 0, 0]]) > 0
    write_container(tmp_path / "u", parts_of("x", weight, mask), {})
    loaded = louver.load(tmp_path / "u")["x.weight"]
    assert isinstance(loaded, louver.SparseTensor) and loaded.negative_zeros_dropped == 1


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("x.kernel", (4, 8), r"names end in \.weight, got 'x\.kernel': leave it dense"),
        ("x.weight", (4, 6), r"rows are multiples of 4 elements, got \[4, 6\] of 'x\.weight': leave it dense"),
        ("x.weight", (2, 4, 8), r"matrices whose rows .* got \[2, 4, 8\] of 'x\.weight'"),
    ],
)
def test_what_a_bitmask_cannot_hold(name: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        written_form(name, element_type("f16"), shape)


def _changed(parts: dict[str, Any], name: str, change: Any) -> dict[str, Any]:
    return parts | {name: change(parts[name])}


def _moved(bits: Any) -> Any:
    """A bit of row 1 to row 2: the sum stays."""
    bits = bits.copy()
    kept, free = bits[1, 0] & -bits[1, 0].astype(np.int16), ~bits[2, 0] & -(~bits[2, 0]).astype(np.int16)
    bits[1, 0] ^= kept
    bits[2, 0] ^= free
    return bits


def _flipped(bits: Any) -> Any:
    bits = bits.copy()
    bits[2, 0] ^= 4
    return bits


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("v.bitmask", lambda b: b | np.uint8(15), "the bits up to row . keep more elements than there are values"),
        ("v.bitmask", lambda b: b & np.uint8(0), "the bits keep 0 elements, got 30 values"),
        ("v.bitmask", _flipped, "keep more elements than there are values|the bits keep 29 elements, got 30 values"),
        ("v.bitmask", _moved, "the bits of row 1 keep 5 elements, got 6 values of the row"),
        ("v.bitmask", lambda b: b | np.array([0, 128], np.uint8), "the bits of row 0 go on past its end, column 12"),
        ("v.bitmask", lambda b: b[:, :1], r"of shape \[5, 12\] has v\.bitmask of U8 \[5, 2\], got U8 \[5, 1\]"),
        ("v.compressed", lambda v: v[:, :4], r"has v\.compressed of F16 \[5, 6\], got F16 \[5, 4\]"),
        ("v.shape", lambda s: s[::-1], r"sparse-24-bitmask F16 of shape \[12, 5\]|keep half of their elements, got 5"),
        ("v.shape", lambda s: s * 2, r"of shape \[10, 24\] has v\.compressed of F16 \[10, 12\], got F16 \[5, 6\]"),
        ("v.shape", lambda s: -s, r"'v\.shape' cannot be used: dimensions are 0 or more, got shape \[-5, -12\]"),
        ("v.shape", lambda s: s + np.array([[0], [1]]), "'v.shape' cannot be used: .* got 13 columns"),
        ("v.shape", lambda s: s + (1 << 61), "has v.compressed of F16"),
    ],
)
def test_damage(part: str, change: Any, message: str, tmp_path: Path, rng: np.random.Generator) -> None:
    dense, mask = rng.standard_normal((5, 12)).astype(np.float16), two_of_four(rng, (5, 12))
    parts = _changed(parts_of("v", dense, mask), part, change)
    write_container(tmp_path / "t.safetensors", parts, {})
    with pytest.raises(FormatError, match=rf"t\.safetensors: .*({message})"):
        louver.load(tmp_path / "t.safetensors")


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("v.row_offsets", lambda o: o + 1, "row 0 begins with value 0 by its bits, but row_offsets have another"),
        ("v.row_offsets", lambda o: o[:-1], r"has v\.row_offsets of I64 \[5\], got I64 \[4\]"),
        ("v.compressed", lambda v: np.concatenate([v, v]), r"cannot keep 72 values|the bits keep 36 elements, got 72"),
    ],
)
def test_damage_where_any_elements_are_kept(
    part: str, change: Any, message: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    dense, mask = rng.standard_normal((5, 12)).astype(np.float16), np.arange(60).reshape(5, 12) % 5 > 1
    write_container(tmp_path / "t", _changed(parts_of("v", dense, mask, of_groups=False), part, change), {})
    with pytest.raises(FormatError, match=message):
        louver.load(tmp_path / "t")


def test_a_name_stored_twice(tmp_path: Path, rng: np.random.Generator) -> None:
    dense, mask = rng.standard_normal((5, 12)).astype(np.float16), two_of_four(rng, (5, 12))
    write_container(tmp_path / "t", {**parts_of("v", dense, mask), "v.weight": dense}, {})
    with pytest.raises(FormatError, match=r"a tensor is either sparse or dense, got both for 'v\.weight'"):
        louver.load(tmp_path / "t")
    louver.save(
        tmp_path / "u", {"v.weight": louver.compress(with_zeros(dense, mask), "2:4"), **parts_of("v", dense, mask)}
    )
    with pytest.raises(FormatError, match=r"'v\.weight' is stored both as values with indices and as a bitmask"):
        louver.load(tmp_path / "u")


def without(parts: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: array for key, array in parts.items() if key != name}


@pytest.mark.parametrize(
    "change",
    [
        lambda p: without(p, "v.shape"),
        lambda p: without(p, "v.bitmask"),
        lambda p: _changed(p, "v.bitmask", lambda b: b.astype(np.int32)),
        lambda p: _changed(p, "v.shape", lambda s: s.astype(np.float32)),
        lambda p: _changed(p, "v.shape", lambda s: s.ravel()),
        lambda p: _changed(p, "v.compressed", lambda v: v.ravel()),
        lambda p: _changed(p, "v.compressed", lambda v: v.reshape(5, 2, 3)),
    ],
)
def test_other_tensors_of_such_names_are_dense(change: Any, tmp_path: Path, rng: np.random.Generator) -> None:
    dense, mask = rng.standard_normal((5, 12)).astype(np.float16), two_of_four(rng, (5, 12))
    parts = change(parts_of("v", dense, mask))
    write_container(tmp_path / "t", parts, {})
    loaded = louver.load(tmp_path / "t")
    assert loaded.keys() == parts.keys() and all(same_bits(np.asarray(loaded[name]), parts[name]) for name in parts)


def test_parts_in_different_files(tmp_path: Path, rng: np.random.Generator) -> None:
    """Other programs cut checkpoints between any two arrays."""
    parts = parts_of("v", rng.standard_normal((5, 12)).astype(np.float16), two_of_four(rng, (5, 12)))
    files = {name: "b" if name == "v.bitmask" else "a" for name in parts}
    for file in "ab":
        write_container(tmp_path / file, {name: array for name, array in parts.items() if files[name] == file}, {})
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    loaded = louver.load(tmp_path)
    assert loaded.keys() == parts.keys() and all(same_bits(np.asarray(loaded[name]), parts[name]) for name in parts)
    (note,) = open_checkpoint(tmp_path).notes
    assert note == "bitmask and values of 'v' are not beside a shape in one file: they stay as they are stored"


def test_commands(cli: Cli, tmp_path: Path, rng: np.random.Generator) -> None:
    """`inspect` reads the weights, and `prune` copies them bit for bit."""
    rows = {row["name"]: row for row in json.loads(cli("inspect", FILE, "--json").stdout)["tensors"]}
    assert (rows["half.weight"]["form"], rows["half.weight"]["holds"]) == ("bitmask", True)
    assert (rows["half.weight"]["shape"], rows["half.weight"]["dtype"]) == ([5, 12], "f16")
    before = {name: array for name, array in read_container(FILE)[0].items() if not name.startswith("expected")}
    source, out = tmp_path / "in", tmp_path / "out"
    write_container(source, {**before, "fc.weight": rng.standard_normal((8, 8)).astype(np.float16)}, {})
    assert cli("prune", source, out).exit_code == 0
    after, _ = read_container(out)
    for name, array in before.items():
        assert same_bits(after[name], array)
    content = bytearray(out.read_bytes())
    content[content.index(before["half.compressed"].tobytes())] ^= 1
    out.write_bytes(content)
    assert "do not have the checksum" in cli.refused("inspect", out)


def test_rows_of_nothing_cost_nothing(tmp_path: Path) -> None:
    rows = 1 << 40
    shape = np.array([[rows], [0]], np.int64)
    header = {
        "v.compressed": entry("F16", [rows, 0], [0, 0]),
        "v.bitmask": entry("U8", [rows, 0], [0, 0]),
        "v.shape": entry("I64", [2, 1], [0, 16]),
    }
    raw_file(tmp_path / "t", header, shape.tobytes())
    assert louver.load(tmp_path / "t")["v.weight"].shape == (rows, 0)


def test_more_than_a_block(tmp_path: Path, rng: np.random.Generator) -> None:
    """More than a block of the encoder."""
    weight = louver.prune(rng.standard_normal((160, 2048)).astype(np.float16), "2:4")
    write_bitmask(tmp_path / "t", {"x.weight": weight})
    assert same_bits(np.asarray(louver.load(tmp_path / "t")["x.weight"]), weight)
