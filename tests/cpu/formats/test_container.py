from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.container import DTYPES, Entry, Header, header_of
from louver.formats.regular import FormatError, RegularFile
from support.containers import entry, raw_file
from support.sparse import same_bits


def _header(path: Path) -> Header:
    with RegularFile.open(path) as file:
        return header_of(file)


@pytest.mark.parametrize("name", DTYPES)
def test_every_element_type(name: str, tmp_path: Path, rng: np.random.Generator) -> None:
    bits = rng.integers(0, 256 if name != "BOOL" else 2, 3 * 5 * DTYPES[name].itemsize, dtype=np.uint8)
    array = bits.view(DTYPES[name]).reshape(3, 5)
    louver.save(tmp_path / "t", {"a": array, "one": array[0, 0].reshape(()), "none": array[:0]})
    arrays = louver.load(tmp_path / "t")
    assert arrays["a"].tobytes() == array.tobytes() and arrays["a"].dtype == array.dtype
    assert arrays["one"].shape == () and arrays["one"].tobytes() == array[0, 0].tobytes()
    assert arrays["none"].shape == (0, 5)
    assert _header(tmp_path / "t").entries["a"].dtype == name


def test_arrays_start_at_multiples_of_their_elements(tmp_path: Path, rng: np.random.Generator) -> None:
    arrays = {
        "a": rng.integers(0, 9, 3, dtype=np.uint8),
        "b": rng.random(5),
        "c": rng.random(1).astype(np.float16),
        "d": rng.random((2, 2)).astype(np.float32),
    }
    louver.save(tmp_path / "t", arrays, {"k": "v"})
    header = _header(tmp_path / "t")
    assert header.metadata["k"] == "v"
    for name, array in arrays.items():
        assert (header.data_start + header.entries[name].start) % array.dtype.itemsize == 0
        assert same_bits(louver.load(tmp_path / "t")[name], array)


def test_strided_arrays_are_written_in_c_order(tmp_path: Path, rng: np.random.Generator) -> None:
    array = rng.random((6, 7))[::2, ::-3].T
    louver.save(tmp_path / "t", {"a": array})
    assert np.array_equal(louver.load(tmp_path / "t")["a"], array)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"{]", "not a safetensors file, or a corrupt header"),
        (b"\xff\xfe", "not a safetensors file, or a corrupt header"),
        (b"[" * 100_000, "not a safetensors file, or a corrupt header"),
        (b'{"a": {}, "a": {}}', "the name 'a' appears twice"),
        ([1], "is a JSON object, got list"),
        ({"__metadata__": {"a": 1}}, "metadata maps Unicode text to text, got 1 for 'a': the header is corrupt"),
        ({"__metadata__": "a"}, "metadata is a JSON object, got str"),
        ({"a": 3}, "the header's entry for 'a' cannot be used"),
        ({"a": {"dtype": "U8", "shape": [4]}}, "entry for 'a' cannot be used: 'data_offsets'"),
        ({"a": entry("f4")}, "entry for 'a' .*name is capital letters, digits and _, got 'f4'"),
        ({"a": entry(None)}, "entry for 'a' .*name is capital letters, digits and _, got 'None'"),
        ({"a": entry("A" * 33)}, "entry for 'a' .*name is capital letters"),
        ({"a": entry("F4", [33])}, r"F4 of shape \[33\] cannot fill bytes 0 to 4"),
        ({"a": entry("F4", [0, 3])}, r"F4 of shape \[0, 3\] cannot fill bytes 0 to 4"),
        ({"a": entry("F4", [1], [4, 0])}, r"F4 of shape \[1\] cannot fill bytes 4 to 0"),
        ({"a": entry(shape=[-4])}, "dimensions are 0 or more"),
        ({"a": entry(shape=[4.0])}, r"a list of integers is needed, got \[4.0\]"),
        ({"a": entry(shape=[True, 4])}, r"a list of integers is needed, got \[True, 4\]"),
        ({"a": entry(shape=None)}, "entry for 'a' cannot be used"),
        ({"a": entry(shape=[5])}, r"U8 of shape \[5\] cannot fill bytes 0 to 4"),
        ({"a": entry(shape=[1 << 40, 1 << 20])}, "cannot fill"),
        ({"a": entry(shape=[1 << 40, 1 << 40])}, r"entry for 'a' .* less than 2\*\*63 bytes"),
        ({"a": entry(shape=[1 << 40, 0, 1 << 40], offsets=[0, 0])}, r"entry for 'a' .* less than 2\*\*63 bytes"),
        ({"a": entry(shape=[1] * 64 + [4])}, "entry for 'a' .* at most 64 dimensions, got 65"),
        ({"": entry()}, "entry for '' .* Unicode text, not empty"),
        (
            b'{"\\ud800w": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}',
            r"entry for '\\ud800w' .* Unicode text",
        ),
        (b'{"__metadata__": {"k": "\\udfff"}}', "metadata maps Unicode text to text"),
        (json.dumps({"a": entry()}).encode("utf-16-le"), "not a safetensors file, or a corrupt header"),
        ({"a": entry(shape={}, offsets=[0, 1]), "b": entry(shape=[3], offsets=[1, 4])}, "list of integers .* got {}"),
        ({"a": entry(shape="", offsets=[0, 1]), "b": entry(shape=[3], offsets=[1, 4])}, "list of integers .* got ''"),
        ({"a": entry(offsets=[0, 4, 4])}, "entry for 'a' cannot be used"),
        ({"a": entry(offsets=[1, 5])}, "'a' must start at data byte 0, got 1"),
        ({"a": entry(), "b": entry()}, "'b' must start at data byte 4, got 0"),
        ({"a": entry(), "b": entry(offsets=[4, 8])}, "describes 8 bytes of data, got 4: the file is truncated"),
        ({}, "describes 0 bytes of data, got 4: the file is followed by bytes"),
    ],
)
def test_headers_that_cannot_be_used(header: Any, message: str, tmp_path: Path) -> None:
    path = raw_file(tmp_path / "bad.safetensors", header, b"\1\2\3\4")
    with pytest.raises(FormatError, match=r"bad\.safetensors: .*" + message):
        _header(path)


@pytest.mark.parametrize("content", [b"", b"\1", b"\0" * 8, (1 << 60).to_bytes(8, "little") + b"{}", b"PK\3\4" * 40])
def test_files_of_another_kind(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(FormatError, match="not a safetensors file, or truncated"):
        louver.load(tmp_path / "t")


def test_an_entry_knows_its_size() -> None:
    assert Entry("F16", (2, 3), 4, 16).shape == (2, 3)
    with pytest.raises(ValueError, match=r"F16 of shape \[2, 3\] cannot fill bytes 4 to 15"):
        Entry("F16", (2, 3), 4, 15)


def test_a_header_over_the_limit_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("louver.formats.container.MAX_HEADER", 100)
    with pytest.raises(ValueError, match="at most 100 bytes, got .*: save to several files"):
        louver.save(tmp_path / "t", {"a" * 100: np.ones(3)})
    assert not list(tmp_path.iterdir())
