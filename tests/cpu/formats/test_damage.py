"""Thousands of damaged files: each loads right or is refused, soon, by a message that names the file and the tensor."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

import louver
from louver.cli.commands.inspect import inspect_file
from louver.formats.index import Index
from louver.formats.regular import FormatError
from support.bitmasks import write_bitmask
from support.containers import raw_file, write_container
from support.sparse import random_bits

CASES = 500
"""Damaged files of a test."""

HOSTILE = (-1, 0, 1, 3, 63, 1 << 31, 1 << 40, 1 << 63, 1 << 70, 10**400, 0.5, 1e400, True, None, "", "w", "F16", [], {})
"""JSON values that headers seldom have."""


def sparse(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, pattern: str) -> louver.SparseTensor:
    return louver.compress(louver.prune(random_bits(rng, shape, dtype), pattern), pattern)


def ours(folder: Path, rng: np.random.Generator) -> dict[str, Any]:
    tensors = {
        "w": sparse(rng, (3, 6), "f16", "2:4"),
        "layers.0.v": sparse(rng, (2, 3, 5), "e4m3", "1:3"),
        "bias": random_bits(rng, (5,), "bf16"),
        "none": np.empty((0, 4), np.float32),
    }
    louver.save(folder / "model.safetensors", tensors, {"format": "pt"})
    return tensors


def foreign(folder: Path, rng: np.random.Generator) -> dict[str, Any]:
    tensors = {"a.weight": rng.random((3, 4), np.float32), "b": rng.integers(0, 99, 6), "c": rng.random(()).reshape(())}
    write_container(
        folder / "model.safetensors", {name: np.asarray(t) for name, t in tensors.items()}, {"format": "pt"}
    )
    return tensors


def bitmasks(folder: Path, rng: np.random.Generator) -> dict[str, Any]:
    weight = sparse(rng, (3, 12), "e4m3", "2:4")
    write_bitmask(folder / "model.safetensors", {"x.weight": weight.dense()})
    return {"x.weight": weight}


def sharded(folder: Path, rng: np.random.Generator) -> dict[str, Any]:
    one, two = {"w": sparse(rng, (3, 6), "bf16", "1:2")}, {"b": rng.random(3)}
    louver.save(folder / "1.safetensors", one)
    louver.save(folder / "2.safetensors", two)
    weight_map = {"w.values": "1.safetensors", "w.indices": "1.safetensors", "b": "2.safetensors"}
    (folder / "model.safetensors.index.json").write_text(Index({"total_size": 45}, weight_map).text())
    return one | two


def changed_bytes(data: bytes, chance: random.Random) -> bytes:
    """The bytes with one to three flipped bits, changed, removed, added, moved or cut bytes."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        at, other = sorted(chance.randrange(len(data) + 1) for _ in range(2))
        match chance.randrange(6):
            case 0:
                flipped = bytearray(data or b"\0")
                flipped[min(at, len(flipped) - 1)] ^= 1 << chance.randrange(8)
                data = bytes(flipped)
            case 1:
                data = data[:at] + chance.randbytes(1) + data[at + 1 :]
            case 2:
                data = data[:at] + data[at + chance.randint(1, 9) :]
            case 3:
                data = data[:at] + chance.randbytes(chance.randint(1, 9)) + data[at:]
            case 4:
                data = data[other:] + data[at:other] + data[:at] if chance.random() < 0.5 else data[:at] + data[:other]
            case _:
                data = data[:at]
    return data


def changed_json(x: Any, chance: random.Random) -> Any:
    """A JSON value with one part of it replaced, removed, renamed or repeated."""
    if isinstance(x, dict) and x and chance.random() < 0.9:
        key = chance.choice(list(x))
        if chance.random() < 0.7:
            return x | {key: changed_json(x[key], chance)}
        rest = {name: value for name, value in x.items() if name != key}
        return rest if chance.random() < 0.5 else rest | {chance.choice((key + "2", "w", "\ud800", "", "b")): x[key]}
    if isinstance(x, list) and x and chance.random() < 0.8:
        at = chance.randrange(len(x))
        return [*x[:at], changed_json(x[at], chance), *x[at + 1 :]]
    if isinstance(x, str) and x.startswith("{"):
        return json.dumps(changed_json(json.loads(x), chance))
    return chance.choice(HOSTILE)


def damage(path: Path, chance: random.Random) -> None:
    data = path.read_bytes()
    if chance.random() < 0.6:
        path.write_bytes(changed_bytes(data, chance))
    elif path.suffix == ".json":
        path.write_text(json.dumps(changed_json(json.loads(data), chance)))
    else:
        stop = 8 + int.from_bytes(data[:8], "little")
        raw_file(path, changed_json(json.loads(data[8:stop]), chance), data[stop:])


def same(a: Any, b: Any) -> bool:
    if isinstance(a, louver.SparseTensor) or isinstance(b, louver.SparseTensor):
        return type(a) is type(b) and str(a) == str(b) and same(a.dense(), b.dense())
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def check_foreign(path: Path, loaded: Mapping[str, Any]) -> None:
    """The safetensors package has no checksums either: it must see what Louver sees."""
    with safe_open(path, "np") as file:
        assert set(file.keys()) == set(loaded)
        for name, tensor in loaded.items():
            piece = file.get_slice(name)
            assert tuple(piece.get_shape()) == tensor.shape
            if not piece.get_dtype().startswith("F8"):
                assert same(file.get_tensor(name), tensor)


def check_message(error: Exception, folder: Path, names: set[str], data_only: bool) -> None:
    text = str(error)
    assert str(folder) in text, "names the file"
    assert text.isprintable()
    if data_only:
        assert any(name.removesuffix(".weight") in text for name in names), "names the tensor"


@pytest.mark.sampled(7, every=4)
@pytest.mark.parametrize("seed", range(20))
def test_damaged_files(seed: int, tmp_path: Path, rng: np.random.Generator) -> None:
    chance = random.Random(seed)
    kinds: tuple[Callable[[Path, np.random.Generator], dict[str, Any]], ...] = (ours, ours, foreign, sharded, bitmasks)
    loaded = refused = 0
    for case in range(CASES):
        folder = tmp_path / str(case)
        folder.mkdir()
        kind = chance.choice(kinds)
        tensors = kind(folder, rng)
        victim = chance.choice(sorted(folder.iterdir()))
        before = victim.read_bytes()
        damage(victim, chance)
        after = victim.read_bytes()
        start = 8 + int.from_bytes(before[:8], "little")
        data_only = victim.suffix != ".json" and before[:start] == after[:start] and len(before) == len(after)
        try:
            found = louver.load(folder)
        except (FormatError, OSError) as error:
            refused += 1
            check_message(error, folder, set(tensors), data_only)
            if kind is foreign and "of which NumPy has no arrays" in str(error):
                # A damaged type name may be that of another type, which is listed.
                inspect_file(folder, "2:4")
                continue
            with pytest.raises((FormatError, OSError)):
                inspect_file(folder, "2:4")
        else:
            loaded += 1
            inspect_file(folder, "2:4")
            if kind is foreign:
                check_foreign(victim, found)
            else:
                assert found.keys() == tensors.keys() and all(same(found[name], tensors[name]) for name in tensors), (
                    case
                )
    assert loaded > 5 and refused > 300
