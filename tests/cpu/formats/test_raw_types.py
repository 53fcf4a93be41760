"""Tensors of element types that NumPy does not hold: copied as bytes, whatever else the file has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.checkpoint import open_checkpoint
from louver.formats.container import Entry
from louver.formats.regular import FormatError
from louver.formats.schema import RawForm, array_form
from support.command_line import Cli
from support.containers import entry, raw_file

WEIGHT = "fc.weight"

RAW = {
    "F4": ((6, 10), 30),
    "F6_E2M3": ((4, 8), 24),
    "F6_E3M2": ((8,), 6),
    "X3_LATER": ((1, 5), 15),
    "C128": ((3,), 48),
    "B1": ((9,), 2),
    "F5_EMPTY": ((0, 4), 0),
}
"""Types of safetensors and types of the future: shape and bytes."""


def file_with(path: Path, rng: np.random.Generator, weight: np.ndarray[Any, Any]) -> dict[str, bytes]:
    """A file of a weight and of a tensor of each raw type. Returns the bytes of each."""
    parts = {WEIGHT: weight.tobytes()} | {name: rng.bytes(nbytes) for name, (_, nbytes) in RAW.items()}
    header: dict[str, Any] = {}
    start = 0
    for name, data in parts.items():
        dtype, shape = ("F16", weight.shape) if name == WEIGHT else (name, RAW[name][0])
        header[name] = entry(dtype, shape, (start, start + len(data)))
        start += len(data)
    raw_file(path, header, b"".join(parts.values()))
    return parts


def stored(path: Path) -> dict[str, tuple[Mapping[str, Any], bytes]]:
    """The header's entry and the bytes of each tensor."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    return {
        name: (e, content[start + e["data_offsets"][0] : start + e["data_offsets"][1]]) for name, e in header.items()
    }


@pytest.fixture
def weight(rng: np.random.Generator) -> np.ndarray[Any, Any]:
    return rng.standard_normal((6, 16)).astype(np.float16)


@pytest.mark.parametrize("arguments", [[], ["--compressed"]])
def test_prune_copies_them(
    arguments: list[str], cli: Cli, tmp_path: Path, rng: np.random.Generator, weight: np.ndarray[Any, Any]
) -> None:
    source, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    parts = file_with(source, rng, weight)
    assert cli("prune", source, out, *arguments).exit_code == 0
    written = stored(out)
    for name in RAW:
        described, data = written[name]
        assert (described["dtype"], tuple(described["shape"]), data) == (name, RAW[name][0], parts[name])
    assert written.keys() == ({f"{WEIGHT}.values", f"{WEIGHT}.indices", *RAW} if arguments else parts.keys())
    if not arguments:
        assert np.array_equal(np.frombuffer(written[WEIGHT][1], np.float16).reshape(6, 16), louver.prune(weight, "2:4"))


def test_inspect_lists_them(cli: Cli, tmp_path: Path, rng: np.random.Generator, weight: np.ndarray[Any, Any]) -> None:
    file_with(tmp_path / "in.safetensors", rng, weight)
    listed = {
        row["name"]: row for row in json.loads(cli("inspect", tmp_path / "in.safetensors", "--json").stdout)["tensors"]
    }
    for name, (shape, nbytes) in RAW.items():
        row = listed[name]
        assert (row["dtype"], row["shape"], row["bytes"], row["form"]) == (name, list(shape), nbytes, "bytes")
        assert row["holds"] is None
    assert listed[WEIGHT]["form"] == "dense"


def test_load_names_the_first_of_them(tmp_path: Path, rng: np.random.Generator, weight: np.ndarray[Any, Any]) -> None:
    file_with(tmp_path / "in.safetensors", rng, weight)
    with pytest.raises(
        FormatError, match=r"in\.safetensors: 'F4' has elements of type F4, of which NumPy has no arrays"
    ):
        louver.load(tmp_path / "in.safetensors")
    (file,) = open_checkpoint(tmp_path / "in.safetensors").files
    with file.open() as reader:
        assert reader.read(file.tensors[WEIGHT]).tobytes() == weight.tobytes()
        with pytest.raises(FormatError, match="'B1' has elements of type B1"):
            next(reader.pieces(file.tensors["B1"], louver.Pattern(2, 4)))


def test_their_damage_is_found(
    cli: Cli, tmp_path: Path, rng: np.random.Generator, weight: np.ndarray[Any, Any]
) -> None:
    source, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    file_with(source, rng, weight)
    cli("prune", source, out)
    content = bytearray(out.read_bytes())
    content[-1] ^= 1
    out.write_bytes(content)
    assert "do not have the checksum that was saved" in cli.refused("inspect", out)


def test_units_of_their_alignment() -> None:
    sizes = {"F4": 1, "F6_E2M3": 1, "X3_LATER": 1, "C128": 16, "B1": 1, "F5_EMPTY": 1}
    for name, size in sizes.items():
        shape, nbytes = RAW[name]
        form = array_form(Entry(name, shape, 8, 8 + nbytes))
        assert isinstance(form, RawForm) and form.itemsize == size and form.arrays("x") == {"x": form}


def test_what_the_safetensors_package_writes(cli: Cli, tmp_path: Path, weight: np.ndarray[Any, Any]) -> None:
    """Types of PyTorch, by the package's own writer, and read by it after a copy."""
    torch: Any = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    names = ("float4_e2m1fn_x2", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz")
    bits = torch.randint(0, 256, (6, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    tensors = {name: bits.clone().view(getattr(torch, name)) for name in names}
    source, out = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    save_file({**tensors, WEIGHT: torch.from_numpy(weight)}, source)
    assert cli("prune", source, out).exit_code == 0
    written = load_file(out)
    for name, tensor in tensors.items():
        assert written[name].dtype == tensor.dtype and torch.equal(written[name].view(torch.uint8), bits)
        assert stored(out)[name][0]["shape"] == stored(source)[name][0]["shape"]


def test_8_bit_types_of_other_machines_load(tmp_path: Path, rng: np.random.Generator) -> None:
    data = rng.bytes(12)
    for name, numpy in (("F8_E4M3FNUZ", "float8_e4m3fnuz"), ("F8_E5M2FNUZ", "float8_e5m2fnuz")):
        raw_file(tmp_path / "t", {"a": entry(name, [3, 4], [0, 12])}, data)
        array = louver.load(tmp_path / "t")["a"]
        assert array.dtype.name == numpy and array.tobytes() == data
