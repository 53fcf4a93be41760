from __future__ import annotations

import hashlib
import multiprocessing
import os
import pwd
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from louver.runtime import cache as module
from louver.runtime import folder as folder_module
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
    assert [path.suffix for path in files(tmp_path)].count(".record") == 2
    assert cache.with_text(kept.ptx_hash) == kept and cache.with_text(ptx_hash("other", ptxas="1")) is None


def test_needs_are_found_again_by_a_fresh_cache(tmp_path: Path) -> None:
    needs = {"checked": {"equal": [["M", "N"]]}, "sparse": ["w"]}
    cache = KernelCache(tmp_path)
    assert cache.needs(key()) is None
    cache.put_needs(key(), needs)
    assert KernelCache(tmp_path).needs(key()) == needs and KernelCache(tmp_path).needs(key(1)) is None
    assert KernelCache(tmp_path).get(key()) is None, "they are no record"
    (path,) = files(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    assert KernelCache(tmp_path).needs(key()) is None
    assert cache.needs(key()) == needs, "what was kept in memory needs no file"
    with pytest.raises(TypeError, match="not JSON serializable"):
        cache.put_needs(key(2), {"checked": np.float16})
    assert cache.needs(key(2)) is None
    KernelCache(tmp_path, max_bytes=1).put_needs(key(3), needs)
    assert not files(tmp_path)


def test_needs_stay_in_memory_where_no_file_can_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.write_text("no folder")
    cache = KernelCache(folder)
    with pytest.warns(UserWarning, match="the kernel cache .* failed"):
        assert cache.needs(key()) is None
    cache.put_needs(key(), {"sparse": []})
    assert cache.needs(key()) == {"sparse": []}


@pytest.mark.parametrize("suffix", [".record", ".cubin"])
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


@pytest.mark.parametrize("kind", ["record", "cubin", "source", "json"])
def test_what_a_killed_process_left_is_swept_when_it_is_old(
    tmp_path: Path, kind: str, rng: np.random.Generator
) -> None:
    cache = KernelCache(tmp_path)
    cache.put(key(), record(rng))
    old = [tmp_path / f"{key(2)}.{kind}.{rng.bytes(8).hex()}.part", tmp_path / f"{key(2)}.lock"]
    young = [tmp_path / f"{key(3)}.{kind}.{rng.bytes(8).hex()}.part", tmp_path / f"{key(3)}.lock"]
    for path in (*old, *young):
        path.write_bytes(rng.bytes(5000))
    for path in old:
        os.utime(path, (0, time.time() - 7200))
    cache.put(key(1), record(rng))
    assert not any(path.exists() for path in old) and all(path.exists() for path in young)


def state(root: Path) -> dict[str, Any]:
    """The files below a folder: their bytes, and the targets of links."""
    found = {
        path: path.readlink() if path.is_symlink() else path.is_dir() or path.read_bytes() for path in root.rglob("*")
    }
    return {str(path.relative_to(root)): value for path, value in found.items()}


def test_trimming_removes_nothing_but_entries_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    project = tmp_path / "project"
    monkeypatch.setenv("LOUVER_CACHE_DIR", str(project))
    KernelCache().put(key(), record(rng))
    own = cache_directory()
    (entry,) = own.glob("*.record")
    names = (
        *(f"{level}/ab/{name}" for level in ("records", "cubins", "sources") for name in ("cdef", entry.name)),
        *("main.py", "a.part", f"{key(1)}.cubin", "louver/__init__.py"),
    )
    for folder in (project, own):
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(rng.bytes(3000))
        (folder / "linked").symlink_to(project / "records")
    # Names of the cache's own, on what it did not write.
    (own / f"{key(2)}.record").symlink_to(project / "main.py")
    (own / f"{key(3)}.record").mkdir()
    (own / f"{key(4)}.txt").write_bytes(entry.read_bytes())
    (own / f"{key(5).upper()}.record").write_bytes(entry.read_bytes())
    (own / f"{key(6)}.record.zz.part").write_bytes(rng.bytes(3000))
    ours = {f"louver-cache/{path.name}" for path in own.glob("*.record") if path.is_file() and path == entry}
    ours |= {f"louver-cache/{path.name}" for path in own.glob("*.cubin") if path.name != f"{key(1)}.cubin"}
    before = state(project)
    for path in [path for path in project.rglob("*") if path.is_file()]:
        os.utime(path, (0, time.time() - 7200), follow_symlinks=False)
    KernelCache(max_bytes=1).put(key(7), record(rng))
    after = state(project)
    assert len(ours) == 2 and not ours & after.keys(), "entries of its own go"
    assert after == {name: value for name, value in before.items() if name not in ours}


def test_entries_of_other_versions_are_trimmed_and_never_read(tmp_path: Path, rng: np.random.Generator) -> None:
    KernelCache(tmp_path).put(key(), record(rng))
    (path,) = tmp_path.glob("*.record")
    path.write_bytes(path.read_bytes().replace(b"louver-cache-3", b"louver-cache-2", 1))
    assert KernelCache(tmp_path).get(key()) is None
    KernelCache(tmp_path, max_bytes=1).put(key(1), record(rng))
    assert not files(tmp_path)


@pytest.mark.parametrize("kind", ["record", "cubin"])
def test_an_entry_under_another_name_is_built_again(tmp_path: Path, kind: str, rng: np.random.Generator) -> None:
    """Each is whole, and sealed for the name that it was made under."""
    mine, other = record(rng), record(rng)
    cache = KernelCache(tmp_path)
    cache.put(key(0), mine)
    cache.put(key(1), other)
    names = {"record": (key(0), key(1)), "cubin": (mine.ptx_hash, other.ptx_hash)}[kind]
    right, wrong = (tmp_path / f"{name}.{kind}" for name in names)
    whole = right.read_bytes()
    right.write_bytes(wrong.read_bytes())
    assert KernelCache(tmp_path).get(key(0)) is None
    assert KernelCache(tmp_path).get_or_build(key(0), lambda: mine) == mine
    assert right.read_bytes() == whole


def test_an_entry_is_of_the_kind_that_it_was_made_as(tmp_path: Path, rng: np.random.Generator) -> None:
    kept = record(rng)
    KernelCache(tmp_path).put(kept.ptx_hash, kept)
    (tmp_path / f"{kept.ptx_hash}.cubin").replace(tmp_path / f"{kept.ptx_hash}.record")
    assert KernelCache(tmp_path).get(kept.ptx_hash) is None


def test_an_entry_of_another_user_is_refused_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    kept = record(rng)
    KernelCache(tmp_path).put(key(), kept)
    theirs = {(tmp_path / f"{key()}.record").stat().st_ino}
    monkeypatch.setattr(folder_module.os, "fstat", owned_by_another(theirs))
    cache = KernelCache(tmp_path)
    with pytest.warns(UserWarning, match=rf"{key()}.record must belong to this user .*, got one of user {STRANGER}"):
        assert cache.get_or_build(key(), lambda: kept) == kept
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert KernelCache(tmp_path).get(key()) == kept, "the new one is this user's"


STRANGER = os.geteuid() + 1


def owned_by_another(inodes: set[int]) -> Any:
    real = os.fstat

    def fstat(handle: int) -> os.stat_result:
        found = real(handle)
        return os.stat_result((*found[:4], STRANGER, *found[5:])) if found.st_ino in inodes else found

    return fstat


def test_a_directory_that_is_not_this_user_s_alone_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    KernelCache(tmp_path).put(key(), record(rng))
    before = state(tmp_path)
    changes = {
        "must not be writable for others, got mode 775: chmod go-w": lambda: tmp_path.chmod(0o775),
        "must belong to this user": lambda: monkeypatch.setattr(folder_module.os, "geteuid", lambda: STRANGER),
    }
    for reason, change in changes.items():
        change()
        cache, kept = KernelCache(tmp_path), record(rng)
        with pytest.warns(UserWarning, match=f"{reason}.*Set LOUVER_CACHE_DIR to a folder of this user's own"):
            assert cache.get_or_build(key(), lambda kept=kept: kept) is kept
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert cache.get_or_build(key(), lambda: record(rng)) is kept, "the memory stays"
            cache.put(key(1), record(rng))
        assert state(tmp_path) == before
        tmp_path.chmod(0o700)


def test_a_user_without_a_home_folder_compiles_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    for name in ("LOUVER_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.chdir(tmp_path)
    cache, kept = KernelCache(), record(rng)
    with pytest.warns(UserWarning, match="this user has no home folder, and so no ~/.cache.*Set LOUVER_CACHE_DIR"):
        assert cache.get_or_build(key(), lambda: kept) is kept
    assert cache.get(key()) is kept and not list(tmp_path.iterdir())
    source_hash.cache_clear()
    assert len(source_hash()) == 64


def test_a_directory_that_cannot_be_written_warns_once(tmp_path: Path, rng: np.random.Generator) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    cache = KernelCache(blocker / "cache")
    kept = [record(rng), record(rng)]
    with pytest.warns(
        UserWarning, match=rf"{blocker}.* failed \(.*\): each process compiles again .*Set LOUVER_CACHE_DIR"
    ):
        cache.put(key(0), kept[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.put(key(1), kept[1])
    assert [cache.get(key(0)), cache.get(key(1))] == kept


def test_a_failed_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    def full(*names: str, **folders: int) -> None:
        raise OSError(28, "No space left on device")

    cache = KernelCache(tmp_path)
    monkeypatch.setattr(folder_module.os, "replace", full)
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
    assert cache_directory() == tmp_path / "here" / "louver-cache"
    assert KernelCache().folder.path == cache_directory()
    monkeypatch.delenv("LOUVER_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "louver-cache"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache" / "louver-cache"


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
        kept = {path: path.read_bytes() for path in (tmp_path / "cache").rglob("*.source")}
        for path, content in zip(kept, (*list(kept.values())[1:], b"damaged"), strict=True):
            path.write_bytes(content)
        assert again() == hashed(root) and len(read) == 4
    finally:
        source_hash.cache_clear()
