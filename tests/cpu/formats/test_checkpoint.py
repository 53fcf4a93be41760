"""Checkpoints in one file or many: which files are opened, what is read of them, and how much memory that takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats import checkpoint
from louver.formats.checkpoint import open_checkpoint
from louver.formats.regular import FormatError
from support.containers import entry, raw_file, write_container
from support.sparse import bits_of, random_bits
from support.work import calls

INDEX = "model.safetensors.index.json"


def shards(folder: Path, rng: np.random.Generator) -> dict[str, Any]:
    """Two files and their index; returns the tensors."""
    folder.mkdir(exist_ok=True)
    one = {"w": louver.compress(louver.prune(random_bits(rng, (5, 22), "f16"), "2:4"), "2:4"), "b": rng.random(3)}
    two = {"v": rng.random((4, 2)), "n": rng.integers(0, 9, 5)}
    louver.save(folder / "one.safetensors", one)
    louver.save(folder / "two.safetensors", two)
    names = {"w.values": "one", "w.indices": "one", "b": "one", "v": "two", "n": "two"}
    write_index(folder, {name: f"{shard}.safetensors" for name, shard in names.items()})
    return one | two


def write_index(folder: Path, weight_map: Any, **more: Any) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map, **more}))


def change_map(change: Callable[[dict[str, Any]], object], folder: Path) -> None:
    weight_map = json.loads((folder / INDEX).read_text())["weight_map"]
    change(weight_map)
    write_index(folder, weight_map)


def test_an_index_is_loaded(tmp_path: Path, rng: np.random.Generator) -> None:
    tensors = shards(tmp_path, rng)
    for path in (tmp_path, tmp_path / INDEX):
        loaded = louver.load(path)
        assert loaded.keys() == tensors.keys()
        np.testing.assert_array_equal(bits_of(loaded["w"].dense()), bits_of(tensors["w"].dense()))
        np.testing.assert_array_equal(np.asarray(loaded["v"]), tensors["v"])


def test_a_folder_with_one_file(tmp_path: Path, rng: np.random.Generator) -> None:
    louver.save(tmp_path / "model.safetensors", {"a": rng.random(3)})
    (tmp_path / "pytorch_model.bin.index.json").write_text("{}")
    assert list(louver.load(tmp_path)) == ["a"]
    louver.save(tmp_path / "other.safetensors", {"a": rng.random(3)})
    with pytest.raises(FormatError, match=r"several checkpoints \(model.safetensors, other.safetensors\): name one"):
        louver.load(tmp_path)


def test_the_cache_of_a_hub(tmp_path: Path, rng: np.random.Generator) -> None:
    """A folder of symlinks to files elsewhere that are named by their hashes, the index too."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1"
    tensors = shards(blobs, rng)
    snapshot.mkdir(parents=True)
    for number, path in enumerate(sorted(blobs.iterdir())):
        path.rename(blobs / f"{number:064}")
        (snapshot / path.name).symlink_to(f"../../blobs/{number:064}")
    assert louver.load(snapshot).keys() == louver.load(snapshot / INDEX).keys() == tensors.keys()


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("/etc/passwd", r"names files beside it, without folders, got '/etc/passwd' for tensor 'b'"),
        ("../one.safetensors", r"without folders, got '\.\./one\.safetensors' for tensor 'b'"),
        ("sub/one.safetensors", "without folders, got 'sub/one.safetensors'"),
        ("..\\one.safetensors", "without folders, got"),
        ("C:one", "without folders, got 'C:one'"),
        ("..", "without folders, got '..'"),
        ("", "without folders, got ''"),
        ("a\0b", "without folders, got 'a.x00b'"),
        (3, "without folders, got 3 for tensor 'b'"),
        ("link", "'link' leads out of the index's folder, to .*outside.safetensors"),
        ("twin", "'twin' and 'one.safetensors' are one file"),
        ("alias", "'alias' and 'one.safetensors' are one file"),
        ("device", "'device' leads out of the index's folder, to /dev/null"),
        ("fifo", "fifo: a regular file is needed, got a FIFO: copy its content to a file first"),
        ("folder", "folder: a regular file is needed, got a directory"),
    ],
)
def test_hostile_names_in_an_index(file: Any, message: str, tmp_path: Path, rng: np.random.Generator) -> None:
    folder = tmp_path / "in"
    shards(folder, rng)
    louver.save(tmp_path / "outside.safetensors", {"b": rng.random(3)})
    (folder / "link").symlink_to("../outside.safetensors")
    (folder / "device").symlink_to("/dev/null")
    (folder / "alias").symlink_to("one.safetensors")
    os.link(folder / "one.safetensors", folder / "twin")
    os.mkfifo(folder / "fifo")
    (folder / "folder").mkdir()
    change_map(lambda weight_map: weight_map.update(b=file), folder)
    with pytest.raises(FormatError, match=message):
        louver.load(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(x="one.safetensors"), "the index says that one.safetensors holds 'x', which it does not"),
        (lambda m: m.update(b="two.safetensors"), "the index says that two.safetensors holds 'b', which it does not"),
        (lambda m: m.clear(), "an index names at least one tensor, got an empty weight_map"),
        (lambda m: m.update({"": "one.safetensors"}), "a tensor's name is Unicode text, not empty"),
    ],
)
def test_an_index_that_does_not_fit(change: Any, message: str, tmp_path: Path, rng: np.random.Generator) -> None:
    shards(tmp_path, rng)
    change_map(change, tmp_path)
    with pytest.raises(FormatError, match=rf"model\.safetensors\.index\.json: .*{message}|{message}"):
        louver.load(tmp_path)


def test_tensors_that_the_index_does_not_list(tmp_path: Path, rng: np.random.Generator) -> None:
    tensors = shards(tmp_path, rng)
    assert open_checkpoint(tmp_path).notes == ()
    change_map(lambda weight_map: [weight_map.pop(name) for name in ("n", "w.values", "w.indices")], tmp_path)
    found = open_checkpoint(tmp_path)
    assert set(found.unlisted) == {"w", "n"}
    assert found.notes == (f"{INDEX} does not list 'w', 'n', which its files hold: they are copied and stay unlisted",)
    assert louver.load(tmp_path).keys() == tensors.keys()
    # A tensor with one listed array is listed.
    change_map(lambda weight_map: weight_map.update({"w.values": "one.safetensors"}), tmp_path)
    assert open_checkpoint(tmp_path).unlisted == ("n",)
    louver.save(
        tmp_path / "one.safetensors", {name: tensors[name] for name in "wb"} | {f"x{i}": tensors["b"] for i in range(9)}
    )
    assert ", 'x7' and 2 more, which" in open_checkpoint(tmp_path).notes[0]


def test_a_shard_that_is_missing(tmp_path: Path, rng: np.random.Generator) -> None:
    shards(tmp_path, rng)
    (tmp_path / "two.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"two\.safetensors"):
        louver.load(tmp_path)


def test_a_tensor_that_is_sparse_in_one_file_and_dense_in_another(tmp_path: Path, rng: np.random.Generator) -> None:
    shards(tmp_path, rng)
    louver.save(tmp_path / "three.safetensors", {"w": rng.random(3)})
    change_map(lambda weight_map: weight_map.update(w="three.safetensors"), tmp_path)
    with pytest.raises(FormatError, match=r"both one.safetensors and three.safetensors hold a tensor 'w'"):
        louver.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not an index, or a corrupt one"),
        ('{"weight_map": {"a": "x", "a": "y"}}', "the name 'a' appears twice"),
        ('{"weight_map": 3}', "an index has objects weight_map and metadata"),
        ('{"weight_map": {"a": "x"}, "metadata": []}', "an index has objects weight_map and metadata"),
        ('{"other": 1, "and": 2}', "an index has objects weight_map and metadata: it is corrupt, or other JSON"),
        ("  {" + "[" * 100_000, "not an index, or a corrupt one"),
    ],
)
def test_json_that_is_no_index(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.index.json").write_text(text)
    with pytest.raises(FormatError, match=rf"x\.index\.json: .*{message}"):
        louver.load(tmp_path / "x.index.json")


@pytest.mark.parametrize("kind", ["fifo", "device", "folder"])
def test_what_is_no_file_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    path = tmp_path / kind
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path = Path("/dev/zero")
    else:
        path.mkdir()
    names = {"fifo": "a FIFO", "device": "a character device"}
    message = f"got {names[kind]}" if kind in names else "a directory without an index"
    with pytest.raises(FormatError, match=f"{path}: .*{message}"):
        louver.load(path)


def test_sizes_of_nothing_cost_nothing(tmp_path: Path) -> None:
    header = {"a": entry("F32", [1 << 40, 0], [0, 0]), "b": entry("F16", [0, 1 << 50], [0, 0])}
    path = raw_file(tmp_path / "x.safetensors", header)
    assert louver.load(path)["a"].shape == (1 << 40, 0)
    command = [sys.executable, "-m", "louver", "inspect", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "1099511627776×0" in done.stdout
    empty = np.empty((1 << 40, 0), np.float16)
    assert louver.compress(louver.prune(empty, "2:4"), "2:4").dense().shape == empty.shape
    assert louver.check(empty, "2:4").groups == 0


@pytest.mark.parametrize("pattern", ["2:4", "1:2", "6:8"])
@pytest.mark.parametrize("shape", [(7, 53), (1, 300), (100, 3), (3, 5, 40), (9,)])
def test_pieces_are_the_whole(
    shape: tuple[int, ...], pattern: str, tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense = louver.prune(random_bits(rng, shape, "bf16"), pattern)
    sparse = louver.compress(dense, pattern, axis=-1)
    unit = louver.Pattern.parse(pattern)
    louver.save(tmp_path / "t", {"d": dense, "s": sparse})
    monkeypatch.setattr(checkpoint, "PIECE", 64)
    (file,) = open_checkpoint(tmp_path / "t").files
    with file.open() as reader:
        for name in ("d", "s"):
            pieces = [p.dense() if name == "s" else p for p in reader.pieces(file.tensors[name], unit)]
            assert max(piece.size for piece in pieces) <= 64 and len(pieces) > (len(shape) > 1)
            together = np.concatenate([bits_of(piece).ravel() for piece in pieces])
            np.testing.assert_array_equal(together, bits_of(dense).ravel())


def test_damage_is_found_in_pieces_too(tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "t.safetensors"
    louver.save(path, {"d": rng.random((30, 8)), "i": rng.integers(0, 9, 40)})
    whole = bytearray(path.read_bytes())
    for back, name in ((8, "i"), (400, "d")):
        changed = whole.copy()
        changed[-back] ^= 4
        path.write_bytes(changed)
        for command in (["inspect"], ["prune", "--include", "d", "--force"]):
            out = [str(tmp_path / "out")] if command[0] == "prune" else []
            arguments = [sys.executable, "-m", "louver", *command, str(path), *out]
            done = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
            assert done.returncode in (1, 2)
            if command[0] == "inspect":
                assert f"{path}: the bytes of {name!r} do not have the checksum" in done.stderr


def test_a_file_that_changes_while_it_is_read(tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "t.safetensors"
    louver.save(path, {"a": rng.random((30, 8))})
    (file,) = open_checkpoint(path).files
    os.utime(path, ns=(1, 1))
    with pytest.raises(FormatError, match=r"t\.safetensors: the file was changed while it was read"), file.open():
        pass
    (file,) = open_checkpoint(path).files
    with file.open() as reader:
        os.truncate(path, file.data_start + 100)
        with pytest.raises(FormatError, match=r"t\.safetensors: the file ended inside 'a'"):
            reader.read(file.tensors["a"])


def test_memory_does_not_grow_with_the_file(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces of 16 Ki elements, and files of 1 and 32 MiB."""
    from louver.cli.commands.inspect import inspect_file
    from louver.formats.pattern import Pattern
    from louver.models.pruning import PruneOptions
    from louver.models.rewrite import rewrite

    monkeypatch.setattr(checkpoint, "PIECE", 1 << 14)
    monkeypatch.setattr("louver.formats.writer.PIECE", 1 << 14)
    monkeypatch.setattr("louver.formats.rows.BLOCK", 1 << 14)
    given = PruneOptions(Pattern(2, 4), compressed=True)
    peaks: list[int] = []
    for rows in (64, 2048):
        path = tmp_path / f"{rows}.safetensors"
        louver.save(
            path,
            {"0.proj.weight": rng.random((rows, 4096), np.float32), "other": rng.random((rows, 2, 64), np.float32)},
        )
        tracemalloc.start()
        inspect_file(path, "2:4")
        rewrite(path, tmp_path / "out", given, force=True)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0] < 2 << 20


@pytest.mark.slow
def test_less_than_a_gigabyte_for_a_file_of_four(tmp_path: Path) -> None:
    """A file of holes, which takes no space on the disk; one row is larger than any piece."""
    shapes = {"0.q_proj.weight": (32768, 16384), "1.q_proj.weight": (1, 300_000_000), "c": (300_000_000,)}
    header: dict[str, Any] = {}
    start = 0
    for name, shape in shapes.items():
        size = 4 * int(np.prod(shape))
        header[name] = entry("F32", shape, (start, start + size))
        start += size
    path = raw_file(tmp_path / "large.safetensors", header)
    os.truncate(path, path.stat().st_size + start)
    for command in (["inspect", str(path)], ["prune", str(path), str(tmp_path / "out"), "--compressed"]):
        process = subprocess.Popen([sys.executable, "-m", "louver", *command], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        assert status == 0 and usage.ru_maxrss < 1 << 19, "kibibytes: half of a gigabyte"


def test_work_is_by_the_number_of_tensors(tmp_path: Path) -> None:
    from louver.cli.commands.inspect import inspect_file

    def work(count: int) -> int:
        header = {f"layer.{i}": entry("F32", (2, 4), (32 * i, 32 * i + 32)) for i in range(count)}
        path = raw_file(tmp_path / f"{count}.safetensors", header, np.random.default_rng(0).bytes(32 * count))
        return calls(lambda: inspect_file(path, "2:4"))

    few = work(500)
    # A hundred thousand tensors take seconds at this rate.
    assert few < 1000 * 500 and work(2000) < 4.1 * few


@pytest.mark.parametrize(
    ("values", "indices"),
    [
        (np.ones((6, 8), np.float64), np.zeros((6, 8), np.uint8)),
        (np.ones((6, 8), np.int32), np.full((6, 2), 0x44, np.uint8)),
        (np.ones((6, 8), np.float16), np.arange(12, dtype=np.uint8).reshape(6, 2)),
        (np.ones((6, 8), np.float16), np.arange(24, dtype=np.uint8).reshape(6, 4)),
        (np.ones((6, 8), np.float16), np.full((6, 3), 0x44, np.uint8)),
        (np.ones((6, 8), np.float16), np.full((7, 2), 0x44, np.uint8)),
        (np.ones((6, 8), np.float16), np.full((6, 2), 0x44, np.int64)),
        (np.ones((6, 8), np.float16), np.full((6, 2, 1), 0x44, np.uint8)),
        (np.ones((0, 8), np.float16), np.full((6, 2), 0x44, np.uint8)),
    ],
)
def test_values_and_indices_of_other_programs(values: Any, indices: Any, tmp_path: Path) -> None:
    write_container(tmp_path / "t", {"a.values": values, "a.indices": indices}, {})
    assert louver.load(tmp_path / "t").keys() == {"a.values", "a.indices"}


@pytest.mark.parametrize("pattern", ["2:4", "1:2", "3:8", "1:4", "2:4@4", "2:8@V4"])
@pytest.mark.parametrize("shape", [(6, 24), (8, 22)])
def test_a_lost_description(pattern: str, shape: tuple[int, int], tmp_path: Path, rng: np.random.Generator) -> None:
    s = louver.compress(louver.prune(random_bits(rng, shape, "e4m3"), pattern), pattern)
    arrays = {"a.values": np.ascontiguousarray(s.values), "a.indices": s.indices}
    write_container(tmp_path / "t", arrays, {})
    with pytest.raises(
        FormatError, match=r"sparse tensor 'a': use the file as .* or rename 'a\.values' if another program"
    ):
        louver.load(tmp_path / "t")
