from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import louver
from louver.formats.container import array_bytes, type_name
from louver.formats.dtypes import NARROW_FLOATS
from louver.formats.regular import FormatError
from support.containers import read_container, write_container
from support.sparse import SPARSE_TYPES, bits_of, random_bits, same_bits


def sparse(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "f16", pattern: str = "2:4", axis: int = -1):
    return louver.compress(louver.prune(random_bits(rng, shape, dtype), pattern, axis=axis), pattern, axis=axis)


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, louver.SparseTensor):
        return (
            isinstance(b, louver.SparseTensor)
            and (a.pattern, a.dtype, a.shape, a.axis) == (b.pattern, b.dtype, b.shape, b.axis)
            and a.negative_zeros_dropped == b.negative_zeros_dropped
            and np.array_equal(a.indices, b.indices)
            and np.array_equal(bits_of(a.values), bits_of(b.values))
        )
    return isinstance(b, np.ndarray) and same_bits(a, b)


@pytest.mark.parametrize("dtype", SPARSE_TYPES)
@pytest.mark.parametrize("pattern", ["2:4", "1:2", "6:8"])
def test_round_trip(dtype: str, pattern: str, tmp_path: Path, rng: np.random.Generator) -> None:
    tensors = {
        "w": sparse(rng, (9, 37), dtype, pattern),
        "blocks.0.proj": sparse(rng, (3, 10, 7), dtype, pattern, axis=1),
        'Ünïcode "name"': sparse(rng, (5,), dtype, pattern),
        "nothing": sparse(rng, (0, 8), dtype, pattern),
        "bias": random_bits(rng, (11,), "f16" if dtype in NARROW_FLOATS else dtype),
        "steps": np.array(7, np.int64),
        "flags": rng.random((3, 2)) < 0.5,
        "scale": rng.standard_normal((4, 2)).T,
        "empty": np.zeros((0, 3), np.float64),
    }
    louver.save(tmp_path / "t.safetensors", tensors)
    loaded = louver.load(tmp_path / "t.safetensors")
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert alike(tensor, loaded[name]), name
    for name in ("w", "blocks.0.proj"):
        assert loaded[name].values.strides[0] % 16 == 0


def test_tf32_keeps_its_name(tmp_path: Path, rng: np.random.Generator) -> None:
    from dataclasses import replace

    from louver.formats.dtypes import element_type

    s = replace(sparse(rng, (4, 8), "f32", "1:2"), dtype=element_type("tf32"))
    louver.save(tmp_path / "t.safetensors", {"w": s})
    assert alike(s, louver.load(tmp_path / "t.safetensors")["w"])


def test_the_same_tensors_give_the_same_bytes(tmp_path: Path, rng: np.random.Generator) -> None:
    tensors = {"b": random_bits(rng, (3, 5), "e4m3"), "w": sparse(rng, (9, 37))}
    louver.save(tmp_path / "one", tensors, {"format": "pt", "a": "b"})
    louver.save(tmp_path / "two", dict(reversed(tensors.items())), {"a": "b", "format": "pt"})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_the_safetensors_package_reads_it(tmp_path: Path, rng: np.random.Generator) -> None:
    s = sparse(rng, (9, 37))
    bias = random_bits(rng, (9,), "bf16")
    louver.save(tmp_path / "t.safetensors", {"w": s, "bias": bias}, {"format": "pt"})
    with safe_open(tmp_path / "t.safetensors", framework="np") as file:
        assert set(file.keys()) == {"w.values", "w.indices", "bias"}
        assert same_bits(file.get_tensor("w.values"), np.ascontiguousarray(s.values))
        assert np.array_equal(file.get_tensor("w.indices"), s.indices)
        assert same_bits(file.get_tensor("bias"), bias)
        assert file.metadata()["format"] == "pt"


@pytest.mark.parametrize("dtype", ["bf16", "e4m3", "e5m2"])
def test_torch_reads_it(dtype: str, tmp_path: Path, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    s = sparse(rng, (9, 37), dtype)
    louver.save(tmp_path / "t.safetensors", {"w": s})
    loaded = load_file(tmp_path / "t.safetensors")
    integer = {1: torch.uint8, 2: torch.int16}[s.dtype.bytes]
    raw = loaded["w.values"].view(integer).numpy().view(s.dtype.bits_dtype)
    assert np.array_equal(raw, bits_of(s.values))


def test_a_file_of_the_safetensors_package_loads_as_dense_arrays(tmp_path: Path, rng: np.random.Generator) -> None:
    arrays = {"a": random_bits(rng, (3, 5), "bf16"), "b": np.array(2.5), "c": rng.integers(0, 9, (2, 0, 4))}
    save_file(arrays, tmp_path / "t.safetensors", {"format": "pt"})
    loaded = louver.load(tmp_path / "t.safetensors")
    assert loaded.keys() == arrays.keys() and all(alike(arrays[name], loaded[name]) for name in arrays)


def test_the_document_describes_the_file(tmp_path: Path) -> None:
    s = louver.compress(np.array([[0, 5, 0, 7, 0, 0, 3, 0]], np.int8), "2:4")
    louver.save(tmp_path / "t.safetensors", {"w": s})
    arrays, metadata = read_container(tmp_path / "t.safetensors")
    assert arrays["w.values"].tolist() == [[5, 7, 0, 3]]
    assert arrays["w.indices"].tolist() == [[0x8D]]
    schema = json.loads(metadata["louver"])
    described = {"w": {"axis": 1, "dtype": "s8", "negative_zeros_dropped": 0, "pattern": "2:4", "shape": [1, 8]}}
    assert schema == {
        "version": 1,
        "tensors": described,
        "tensors_crc32": f"{zlib.crc32(json.dumps(described).encode()):08x}",
        "crc32": {
            "w.values": f"{zlib.crc32(b'I8 [1, 4] ' + bytes([5, 7, 0, 3])):08x}",
            "w.indices": f"{zlib.crc32(b'U8 [1, 1] ' + bytes([0x8D])):08x}",
        },
    }


def small_file(path: Path, rng: np.random.Generator) -> dict[str, Any]:
    tensors = {"w": sparse(rng, (3, 6)), "v": sparse(rng, (7,), "e5m2", "1:3"), "b": random_bits(rng, (2,), "bf16")}
    louver.save(path, tensors)
    return tensors


def test_every_truncation_is_noticed(tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "t.safetensors"
    small_file(path, rng)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(FormatError, match=r"t\.safetensors: .*truncated"):
            louver.load(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(FormatError, match="followed by bytes of something else"):
        louver.load(path)


@pytest.mark.parametrize("flip", [*(1 << bit for bit in range(8)), 0xFF])
def test_every_changed_byte_is_noticed(flip: int, tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "t.safetensors"
    tensors = small_file(path, rng)
    whole = bytearray(path.read_bytes())
    for at in range(len(whole)):
        changed = whole.copy()
        changed[at] ^= flip
        path.write_bytes(changed)
        try:
            loaded = louver.load(path)
        except FormatError:
            continue
        assert loaded.keys() == tensors.keys() and all(alike(tensors[name], loaded[name]) for name in tensors), at


@pytest.mark.parametrize("key", ["louver", "louver_crc32"])
def test_one_of_two_keys_is_lost(key: str, tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "t.safetensors"
    tensors = small_file(path, rng)
    arrays, metadata = read_container(path)
    write_container(path, arrays, {k: text for k, text in metadata.items() if k != key})
    if key == "louver":
        with pytest.raises(FormatError, match=r"t\.safetensors: the metadata have 'louver_crc32' but no 'louver'"):
            louver.load(path)
    else:
        # Files of Louver 0.1.0 have one key.
        assert louver.load(path).keys() == tensors.keys()


@pytest.mark.parametrize("lost", ["b", "w.values", "v.indices"])
def test_a_tensor_that_was_cut_out_is_missed(lost: str, tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "t.safetensors"
    small_file(path, rng)
    arrays, metadata = read_container(path)
    del arrays[lost]
    write_container(path, arrays, metadata)
    with pytest.raises(FormatError, match=rf"t\.safetensors: .*a checksum for '{lost}', which the file does not hold"):
        louver.load(path)


def test_a_tensor_that_was_put_in_is_noticed(tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "t.safetensors"
    small_file(path, rng)
    arrays, metadata = read_container(path)
    write_container(path, arrays | {"more": rng.random(3)}, metadata)
    with pytest.raises(FormatError, match=r"t\.safetensors: 'more' has no checksum in the metadata"):
        louver.load(path)


def rewrite(path: Path, change: Any) -> None:
    """Change the schema (and seal it again), or the arrays, of a file."""
    arrays, metadata = read_container(path)
    schema = json.loads(metadata["louver"])
    change(schema, arrays)
    if "tensors" in schema:
        schema["tensors_crc32"] = f"{zlib.crc32(json.dumps(schema['tensors'], sort_keys=True).encode()):08x}"
    if isinstance(schema.get("crc32"), dict):
        schema["crc32"] = {}
        for name, array in arrays.items():
            text = f"{type_name(array.dtype)} {list(array.shape)} ".encode()
            schema["crc32"][name] = f"{zlib.crc32(array_bytes(array), zlib.crc32(text)):08x}"
    write_container(path, arrays, {"louver": json.dumps(schema)})


def put(*keys: str, value: Any) -> Any:
    def change(schema: dict[str, Any], arrays: dict[str, Any]) -> None:
        for key in keys[:-1]:
            schema = schema[key]
        schema[keys[-1]] = value

    return change


def first_code(value: int) -> Any:
    def change(schema: dict[str, Any], arrays: dict[str, Any]) -> None:
        arrays["w.indices"][0, 0] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("version", value=2), "reads files of schema version 1, got version 2: use the Louver that wrote the file"),
        (put("version", value=True), "got version True"),
        (put("version", value="1"), "got version '1'"),
        (lambda schema, arrays: schema.pop("version"), "got version None"),
        (lambda schema, arrays: schema.pop("crc32"), "must have an object 'crc32'"),
        (put("tensors", value=[]), "must have an object 'tensors'"),
        (put("tensors", "w", value=3), "sparse tensor 'w' cannot be read: its description needs pattern, dtype"),
        (lambda schema, arrays: schema["tensors"]["w"].pop("axis"), "its description needs .*axis"),
        (put("tensors", "w", "pattern", value="4:2"), "'w' cannot be read: a pattern N:M keeps 1 to M"),
        (put("tensors", "w", "pattern", value=24), "'w' cannot be read"),
        (
            put("tensors", "w", "pattern", value="1:2"),
            r"'w' cannot be read: 1:2 f16 of shape \[3, 6\] along axis 1 has w.values of F16 \[3, 3\]",
        ),
        (put("tensors", "w", "dtype", value="f64"), "'w' cannot be read: an element type is one of"),
        (put("tensors", "w", "dtype", value="bf16"), r"2:4 bf16 of shape .* has w.values of BF16 \[3, 4\], got F16"),
        (put("tensors", "w", "shape", value=[3, 13]), r"has w.values of F16 \[3, 8\], got F16 \[3, 4\]"),
        (put("tensors", "w", "shape", value=[3, 6.0]), "are integers"),
        (put("tensors", "w", "shape", value=18), "'w' cannot be read"),
        (put("tensors", "w", "axis", value="1"), "are integers"),
        (put("tensors", "w", "axis", value=2), "from 0 to 1, got 2"),
        (put("tensors", "x", value={}), "sparse tensor 'x' cannot be read: its description needs"),
        (lambda schema, arrays: arrays.pop("w.indices"), r"the file holds no w\.indices"),
        (lambda schema, arrays: arrays.update(w=np.ones(3)), "either sparse or dense, got both for 'w'"),
        (
            lambda schema, arrays: arrays.update({"w.values": np.ones(12, np.float16)}),
            r"has w.values of F16 \[3, 4\], got F16 \[12\]",
        ),
        (first_code(0x40), "a code of 2:4 is one of .* got 0x0 in row 0, group 0: the indices are corrupt"),
        (first_code(0x45), "got 0x5 in row 0, group 0"),
        (first_code(0x46), "got 0x6 in row 0, group 0"),
    ],
)
def test_a_wrong_schema_is_refused(change: Any, message: str, tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "t.safetensors"
    small_file(path, rng)
    rewrite(path, lambda schema, arrays: None)
    louver.load(path)
    rewrite(path, change)
    with pytest.raises(FormatError, match=r"t\.safetensors: .*" + message):
        louver.load(path)


@pytest.mark.parametrize("text", ["", "{", "[1]", "3", "[" * 100_000])
def test_metadata_that_is_no_schema(text: str, tmp_path: Path) -> None:
    write_container(tmp_path / "t", {"a": np.ones(3)}, {"louver": text})
    with pytest.raises(FormatError, match="corrupt"):
        louver.load(tmp_path / "t")


def test_what_cannot_be_saved(tmp_path: Path, rng: np.random.Generator) -> None:
    s = sparse(rng, (3, 8))
    path = tmp_path / "t.safetensors"
    for tensors, metadata, message in [
        ({"w": s, "w.values": np.ones(3)}, None, r"two tensors need the stored name 'w\.values': rename one"),
        ({"w": s}, {"louver": "x"}, "metadata key 'louver' is Louver's own"),
        ({"": np.ones(3)}, None, "Unicode text, not empty and not __metadata__, got ''"),
        ({"__metadata__": np.ones(3)}, None, "not empty and not __metadata__"),
        ({"a": np.ones(3, ">f4")}, None, "little-endian.*convert first"),
        ({"a": np.array(["text"])}, None, "got <U4: convert first"),
        ({"a": "text"}, None, "'a' cannot be saved: .* got <U4: convert first"),
        ({"\ud800": np.ones(3)}, None, r"Unicode text, .* got '\\ud800': rename it"),
        ({"a": np.ones(3)}, {"k": 1}, r"maps Unicode text to text, got 1 for 'k': convert it with str\(\)"),
        ({"a": np.ones(3)}, {1: "k"}, "maps Unicode text to text, got 'k' for 1"),
        ({"a": np.ones(3)}, {"k": "\udfff"}, r"maps Unicode text to text, got '\\udfff' for 'k'"),
        ({"a": np.ones(3)}, {"louver_crc32": "x"}, "metadata key 'louver_crc32' is Louver's own"),
    ]:
        with pytest.raises(ValueError, match=message):
            louver.save(path, tensors, metadata)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(
    failing: str, tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.safetensors"
    tensors = small_file(path, rng)

    def fail(*args: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(*{"fsync": (os, "fsync"), "replace": (Path, "replace")}[failing], fail)
    with pytest.raises(OSError, match="no space left"):
        louver.save(path, {"w": np.ones(3)})
    monkeypatch.undo()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert louver.load(path).keys() == tensors.keys()


def test_saving_replaces_a_file_whole(tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "t.safetensors"
    small_file(path, rng)
    with path.open("rb") as reader:
        before = path.read_bytes()
        louver.save(path, {"a": np.ones(3)})
        assert reader.read() == before
    assert list(louver.load(str(path))) == ["a"]
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        louver.load(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        louver.save(tmp_path / "no" / "folder", {"a": np.ones(3)})
