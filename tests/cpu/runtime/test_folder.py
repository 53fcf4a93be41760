from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from louver.runtime import folder as module
from louver.runtime.folder import OwnFolder
from support.threads import in_threads


@pytest.fixture
def folder(tmp_path: Path) -> OwnFolder:
    return OwnFolder(tmp_path / "deep" / "own")


def test_it_is_made_for_one_user_when_first_written(folder: OwnFolder, rng: np.random.Generator) -> None:
    content = rng.bytes(3000)
    mask = os.umask(0)
    try:
        with pytest.raises(FileNotFoundError):
            folder.read("x")
        assert not folder.path.parent.exists(), "reading makes nothing"
        folder.write("x", content)
    finally:
        os.umask(mask)
    assert folder.read("x") == content
    modes = [path.stat().st_mode & 0o777 for path in (folder.path.parent, folder.path, folder.path / "x")]
    assert modes == [0o700, 0o700, 0o600]


def test_a_file_is_replaced_whole_or_not_at_all(
    folder: OwnFolder, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    def interrupted(*names: str, **folders: int) -> None:
        raise KeyboardInterrupt

    before, after = rng.bytes(300), rng.bytes(200)
    folder.write("x", before)
    with monkeypatch.context() as during, pytest.raises(KeyboardInterrupt):
        during.setattr(module.os, "replace", interrupted)
        folder.write("x", after)
    assert folder.read("x") == before and list(folder.files()) == ["x"]
    folder.write("x", after)
    assert folder.read("x") == after and list(folder.files()) == ["x"]


def test_files_are_those_of_this_user(folder: OwnFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        folder.write(name, name.encode())
    (folder.path / "link").symlink_to("a")
    (folder.path / "below").mkdir()
    os.mkfifo(folder.path / "pipe")
    assert {name: status.st_size for name, status in folder.files().items()} == {"a": 1, "b": 1}
    folder.remove("a")
    folder.remove("a")
    assert list(folder.files()) == ["b"]
    with pytest.raises(OSError, match="Is a directory|not permitted"):
        folder.remove("below")


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o720])
def test_a_folder_or_file_that_others_may_write_to_is_refused(folder: OwnFolder, mode: int) -> None:
    folder.write("x", b"content")
    folder.path.chmod(mode)
    tries: list[Callable[[], object]] = [lambda: folder.read("x"), lambda: folder.write("x", b""), folder.files]
    for attempt in tries:
        with pytest.raises(
            PermissionError, match=f"{folder.path} must not be writable for others, got mode {mode:03o}: chmod go-w"
        ):
            attempt()
    folder.path.chmod(0o755)
    assert folder.read("x") == b"content"
    (folder.path / "x").chmod(mode)
    with pytest.raises(PermissionError, match=f"{folder.path}/x must not be writable for others"):
        folder.read("x")


def test_a_folder_of_another_user_is_refused(folder: OwnFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write("x", b"content")
    user = os.geteuid()
    monkeypatch.setattr(module.os, "geteuid", lambda: user + 1)
    with pytest.raises(PermissionError, match=rf"own must belong to this user \({user + 1}\), got one of user {user}"):
        folder.read("x")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused_and_can_be_replaced(folder: OwnFolder) -> None:
    folder.write("x", b"theirs")
    os.chown(folder.path / "x", 12345, 12345)
    with pytest.raises(PermissionError, match=r"own/x must belong to this user \(0\), got one of user 12345"):
        folder.read("x")
    assert not folder.files()
    folder.write("x", b"ours")
    assert folder.read("x") == b"ours"


def test_links_are_not_followed(folder: OwnFolder, tmp_path: Path) -> None:
    folder.write("x", b"content")
    (folder.path / "link").symlink_to(folder.path / "x")
    with pytest.raises(OSError, match="symbolic links"):
        folder.read("link")
    linked = tmp_path / "linked"
    linked.symlink_to(folder.path)
    with pytest.raises(OSError, match="Not a directory|symbolic links"):
        OwnFolder(linked).write("y", b"")
    assert set(folder.files()) == {"x"}


def test_what_is_no_regular_file_is_refused_at_once(folder: OwnFolder) -> None:
    folder.write("x", b"content")
    os.mkfifo(folder.path / "pipe")
    (folder.path / "below").mkdir()
    for name in ("pipe", "below"):
        with pytest.raises(PermissionError, match=f"own/{name} must be a regular file"):
            folder.read(name)


def test_reading_makes_a_file_young(folder: OwnFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*paths: int) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    folder.write("x", b"content")
    os.utime(folder.path / "x", (0, 1000))
    with monkeypatch.context() as during:
        during.setattr(module.os, "utime", read_only)
        assert folder.read("x") == b"content"
    assert folder.files()["x"].st_mtime == 1000
    folder.read("x")
    assert folder.files()["x"].st_mtime > 1000


def test_a_system_that_opens_files_by_paths_only_is_refused(folder: OwnFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(module.os, "O_DIRECTORY")
    with pytest.raises(PermissionError, match="opens files by their paths only"):
        folder.write("x", b"content")


def test_one_thread_at_a_time_holds_a_lock(folder: OwnFolder) -> None:
    inside: list[int] = []
    seen: list[int] = []

    def take(_: int) -> None:
        with folder.locked("x.lock", 60):
            inside.append(1)
            seen.append(len(inside))
            threading.Event().wait(0.01)
            inside.pop()

    in_threads(take, range(8))
    assert seen == [1] * 8 and not folder.files()


HOLD = """
import sys, time
from pathlib import Path
from louver.runtime.folder import OwnFolder
with OwnFolder(Path(sys.argv[1])).locked("x.lock", 60):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_lock_is_waited_for_and_ends_with_its_process(folder: OwnFolder) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(folder.path)], stdout=subprocess.PIPE, env=environment)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        late = pytest.raises(TimeoutError, match=r"another process has held the lock x.lock for 0.1 s")
        with late, folder.locked("x.lock", 0.1):
            pass
    finally:
        holder.kill()
        holder.communicate()
    assert set(folder.files()) == {"x.lock"}, "it was killed"
    with folder.locked("x.lock", 0):
        assert set(folder.files()) == {"x.lock"}
    assert not folder.files()


def test_locks_need_a_file_system_that_has_them(folder: OwnFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    with pytest.raises(OSError, match="No locks available"), folder.locked("x.lock", 60):
        pass
