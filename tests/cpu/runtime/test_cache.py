from __future__ import annotations

import hashlib
import multiprocessing
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from louver.runtime import cache as module
from louver.runtime.cache import KernelCache, KernelRecord, cache_directory, problem_key, ptx_hash, source_hash


def record(rng: np.random.Generator, ptx: str = "", size: int = 5000) -> KernelRecord:
    text = ptx or rng.bytes(8).hex()
    return KernelRecord(
        "product", rng.bytes(size), ptx_hash(text, ptxas="13.5"), {"threads": 384, "cluster": 2}, {"registers": 168}
    )


def key(i: int = 0) -> str:
    return problem_key({"n": i}, target="sm_90a", ptxas="13.5", source="s")


def files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def test_a_record_is_found_again_by_a_fresh_cache(tmp_path: Path, rng: np.random.Generator) -> None:
    kept = record(rng)
    KernelCache(tmp_path).put(key(), kept)
    assert KernelCache(tmp_path).get(key()) == kept
    assert KernelCache(tmp_path).get(key(1)) is None
    assert KernelCache(tmp_path).cubin(kept.ptx_hash) == kept.cubin
    assert KernelCache(tmp_path).cubin(ptx_hash("other", ptxas="13.5")) is None


def test_what_was_read_once_needs_no_file(tmp_path: Path, rng: np.random.Generator) -> None:
    cache = KernelCache(tmp_path)
    kept = record(rng)
    cache.put(key(), kept)
    for path in files(tmp_path):
        path.unlink()
    assert cache.get(key()) is kept


def test_problems_with_equal_ptx_share_a_cubin(tmp_path: Path, rng: np.random.Generator) -> None:
    kept = record(rng)
    cache = KernelCache(tmp_path)
    cache.put(key(0), kept)
    cache.put(key(1), kept)
    assert [path.suffix for path in files(tmp_path)].count(".cubin") == 1
    assert [path.suffix for path in files(tmp_path)].count(".json") == 2


@pytest.mark.parametrize("suffix", [".json", ".cubin"])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "append"])
def test_damaged_files_are_found_and_rebuilt(
    tmp_path: Path, suffix: str, damage: str, rng: np.random.Generator
) -> None:
    kept = record(rng)
    KernelCache(tmp_path).put(key(), kept)
    (path,) = tmp_path.rglob(f"*{suffix}")
    data = bytearray(path.read_bytes())
    for position in rng.integers(0, len(data), 8) if damage == "flip" else [0]:
        changed = bytearray(data)
        changed[position] ^= 1 << int(rng.integers(0, 8))
        whole = {"flip": changed, "cut": data[: len(data) // 2], "empty": b"", "append": data + b"x"}[damage]
        path.write_bytes(whole)
        assert KernelCache(tmp_path).get(key()) is None
        assert not path.exists()
        assert KernelCache(tmp_path).get_or_build(key(), lambda: kept) == kept
        assert path.read_bytes() == data


def test_a_lost_cubin_is_a_missing_record(tmp_path: Path, rng: np.random.Generator) -> None:
    KernelCache(tmp_path).put(key(), record(rng))
    (path,) = tmp_path.rglob("*.cubin")
    path.unlink()
    assert KernelCache(tmp_path).get(key()) is None


def test_the_size_is_bounded_and_the_longest_unused_goes(tmp_path: Path, rng: np.random.Generator) -> None:
    cache = KernelCache(tmp_path, max_bytes=30_000)
    records = [record(rng) for _ in range(12)]
    for i, kept in enumerate(records):
        cache.put(key(i), kept)
        for path in files(tmp_path):
            status = path.stat()
            os.utime(path, (status.st_atime, status.st_mtime - 10))
        # Reading keeps the first record young.
        assert KernelCache(tmp_path).get(key(0)) == records[0]
        assert sum(path.stat().st_size for path in files(tmp_path)) <= 30_000
    fresh = KernelCache(tmp_path)
    found = [fresh.get(key(i)) is not None for i in range(12)]
    assert found[0] and found[11] and not any(found[1:6])


def test_old_partial_files_are_swept_and_young_ones_kept(tmp_path: Path, rng: np.random.Generator) -> None:
    cache = KernelCache(tmp_path, max_bytes=6_000)
    cache.put(key(), record(rng))
    folder = next(tmp_path.rglob("*.cubin")).parent
    old, young = folder / "old.part", folder / "young.part"
    for path in (old, young):
        path.write_bytes(bytes(5000))
    os.utime(old, (0, time.time() - 7200))
    cache.put(key(1), record(rng))
    assert not old.exists() and young.exists()


def test_clear_forgets_everything(tmp_path: Path, rng: np.random.Generator) -> None:
    cache = KernelCache(tmp_path)
    cache.put(key(), record(rng))
    cache.clear()
    assert cache.get(key()) is None and not files(tmp_path)


def test_a_directory_that_cannot_be_written_warns_once(tmp_path: Path, rng: np.random.Generator) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    cache = KernelCache(blocker / "cache")
    kept = [record(rng), record(rng)]
    with pytest.warns(UserWarning, match="cannot be written .*: kernels are kept in memory only. Set LOUVER_CACHE_DIR"):
        cache.put(key(0), kept[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.put(key(1), kept[1])
    assert [cache.get(key(0)), cache.get(key(1))] == kept


def test_a_failed_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    def full(content: bytes) -> bytes:
        raise OSError(28, "No space left on device")

    cache = KernelCache(tmp_path)
    monkeypatch.setattr(module, "_sealed", full)
    with pytest.warns(UserWarning, match="No space left"):
        cache.put(key(), record(rng))
    assert not files(tmp_path)


def test_records_check_themselves(tmp_path: Path, rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        KernelRecord("product", b"x", "../../etc")
    with pytest.raises(ValueError, match="a kernel's name and its cubin"):
        KernelRecord("product", b"", "0" * 64)
    with pytest.raises(ValueError, match="max_bytes"):
        KernelCache(tmp_path, max_bytes=0)
    with pytest.raises(TypeError):
        KernelCache(tmp_path).put(key(), KernelRecord("product", b"x", "0" * 64, {"grid": object()}))


@dataclass(frozen=True)
class Add:
    left: Any
    right: Any


@dataclass(frozen=True)
class Multiply:
    left: Any
    right: Any


def test_keys_tell_problems_apart() -> None:
    parts: list[tuple[Any, ...]] = [
        (Add(1, 2),),
        (Multiply(1, 2),),
        (Add(Add(1, 2), 3),),
        (Add(Multiply(1, 2), 3),),
        ({"a": 1, "b": 2},),
        ({"a": 1}, {"b": 2}),
        ("1",),
        (1,),
        (None,),
        (),
    ]
    keys = {problem_key(*p, target="sm_90a", ptxas="13.5", source="s") for p in parts}
    assert len(keys) == len(parts)
    assert problem_key({"b": 2, "a": 1}, target="sm_90a", ptxas="13.5", source="s") in keys
    for changed in ({"target": "sm_100a"}, {"ptxas": "13.6"}, {"source": "t"}):
        assert problem_key(1, **{"target": "sm_90a", "ptxas": "13.5", "source": "s", **changed}) not in keys


def test_keys_are_the_same_in_every_process() -> None:
    text = '{"parts":[1],"ptxas":"13.5","source":"s","target":"sm_90a"}'
    assert problem_key(1, target="sm_90a", ptxas="13.5", source="s") == hashlib.sha256(text.encode()).hexdigest()


def test_keys_refuse_what_has_no_canonical_form() -> None:
    with pytest.raises(TypeError, match="got set"):
        problem_key({1, 2}, target="sm_90a", ptxas="13.5")


def test_the_source_is_part_of_a_key() -> None:
    assert len(source_hash()) == 64
    by_default = problem_key(1, target="sm_90a", ptxas="13.5")
    assert by_default == problem_key(1, target="sm_90a", ptxas="13.5", source=source_hash())


def test_where_kernels_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOUVER_CACHE_DIR", str(tmp_path / "here"))
    assert cache_directory() == tmp_path / "here"
    assert KernelCache().directory == tmp_path / "here"
    monkeypatch.delenv("LOUVER_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "louver"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache" / "louver"


def test_a_failed_build_is_not_kept(tmp_path: Path, rng: np.random.Generator) -> None:
    cache = KernelCache(tmp_path)

    def fails() -> KernelRecord:
        raise RuntimeError("ptxas failed")

    with pytest.raises(RuntimeError, match="ptxas failed"):
        cache.get_or_build(key(), fails)
    kept = record(rng)
    assert cache.get_or_build(key(), lambda: kept) is kept


def test_threads_build_a_key_once(tmp_path: Path, rng: np.random.Generator) -> None:
    from concurrent.futures import ThreadPoolExecutor

    cache = KernelCache(tmp_path)
    built: list[KernelRecord] = []

    def build() -> KernelRecord:
        time.sleep(0.05)
        built.append(record(rng))
        return built[-1]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: cache.get_or_build(key(), build), range(16)))
    assert len(built) == 1 and all(each is built[0] for each in found)


def hammer(root: str, seed: int) -> str:
    """Reads and writes keys that other processes do too, in a cache too small for all; returns what went wrong."""
    rng = np.random.default_rng(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(60):
            number = int(rng.integers(0, 10))
            expected = np.random.default_rng(number).bytes(4000)
            made = KernelRecord("k", expected, ptx_hash(str(number), ptxas="1"), {"number": number})
            cache = KernelCache(Path(root), max_bytes=25_000)
            found = cache.get_or_build(key(number), lambda made=made: made)
            if found.cubin != expected or found.launch["number"] != number:
                return f"{number}: wrong record"
    return ""


def test_many_processes_share_a_directory(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(4) as pool:
        outcomes = pool.starmap(hammer, [(str(tmp_path), seed) for seed in range(4)])
    assert outcomes == [""] * 4
    assert not list(tmp_path.rglob("*.part"))


def test_the_source_is_read_again_only_if_a_file_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOUVER_CACHE_DIR", str(tmp_path / "cache"))
    root = tmp_path / "louver"
    (root / "runtime").mkdir(parents=True)
    (root / "other.py").write_text("one", encoding="utf-8")
    monkeypatch.setattr(module, "__file__", str(root / "runtime" / "cache.py"))
    read: list[Path] = []
    hashed = module._source_hash
    monkeypatch.setattr(module, "_source_hash", lambda path: read.append(path) or hashed(path))

    def again() -> str:
        source_hash.cache_clear()
        return source_hash()

    try:
        first = again()
        assert again() == first and len(read) == 1
        (root / "other.py").write_text("two", encoding="utf-8")
        second = again()
        assert second != first and len(read) == 2
        # An unpacked file may have any time of change, but it is another file.
        (root / "new.py").write_text("owt", encoding="utf-8")
        os.utime(root / "new.py", ns=((root / "other.py").stat().st_atime_ns, (root / "other.py").stat().st_mtime_ns))
        (root / "new.py").replace(root / "other.py")
        assert again() not in (first, second)
        for file in (tmp_path / "cache").rglob("*.txt"):
            file.write_bytes(b"damaged")
        assert again() == hashed(root) and len(read) == 4
    finally:
        source_hash.cache_clear()
