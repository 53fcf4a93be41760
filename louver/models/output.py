"""Where a rewritten checkpoint goes: its files, and the other files of the input's folder that go with it."""

from __future__ import annotations

import filecmp
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from louver.formats.checkpoint import Checkpoint, listed
from louver.formats.index import SUFFIX, checkpoints
from louver.formats.regular import Target

WEIGHTS: Final = frozenset(
    (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".onnx", ".onnx_data", ".h5", ".msgpack", ".npz", ".xml")
)
"""Ends of names of files that hold a model's weights once more, in the same or another form."""


@dataclass(frozen=True, slots=True)
class Output:
    """The files of a rewritten checkpoint.

    folder: where they go. is_folder: whether the output is that folder with all its files. shards: names of the files
    with tensors. index: the index's name; None without one. beside: the other files by name in the folder, such as
    `1_Pooling/config.json`: the file that is copied, or the text. left: the files that are not copied.
    """

    folder: Path
    is_folder: bool
    shards: tuple[str, ...]
    index: str | None
    beside: Mapping[str, Path | bytes]
    left: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All files, in the order in which they are written. A reader starts at the last one."""
        return (*self.beside, *self.shards, *(() if self.index is None else (self.index,)))

    def with_texts(self, texts: Mapping[str, bytes]) -> Output:
        """The output with texts for files of its folder. A single file gets none."""
        return replace(self, beside={**self.beside, **texts}) if self.is_folder else self

    def check(self, force: bool) -> None:
        """Raises ValueError for a file that would be replaced by another one, unless by `force`."""
        for name in self.names:
            path, content = self.folder / name, self.beside.get(name)
            status = Target.of(path).status
            is_copy = status is not None and isinstance(content, Path) and filecmp.cmp(content, path, shallow=False)
            if status is not None and not force and not is_copy:
                raise ValueError(f"{path} exists: choose another name, or replace it with --force")

    @property
    def target(self) -> Path:
        return self.folder / self.names[-1]

    @property
    def notes(self) -> tuple[str, ...]:
        if not self.left:
            return ()
        return (f"not copied, because they hold weights too or lead out of the folder: {listed(self.left)}",)


def output_of(source: Path, checkpoint: Checkpoint, out: Path) -> Output:
    """The files of the output `out`: a folder if it is one, or if the source is a folder or an index and `out` does not
    end in .safetensors or .json; else a file. Raises ValueError for a file that would hold an index, and for a folder
    that would hold two checkpoints.
    """
    is_index, is_file = checkpoint.index is not None, out.suffix in (".safetensors", ".json")
    if not out.is_dir() and is_file and is_index and out.suffix != ".json":
        raise ValueError(f"{source} has an index: OUT is a folder, or an index that ends in .json, got {out}")
    if not is_index and out.suffix == ".json" and not out.is_dir():
        raise ValueError(f"{source} has no index: OUT is a folder, or a file that ends in .safetensors, got {out}")
    is_folder = out.is_dir() or ((is_index or source.is_dir()) and not is_file)
    if is_folder and source.is_dir() and out.exists() and not out.is_dir():
        raise ValueError(f"{source} is a folder, and {out} is a file: name a folder")
    folder, name = (out, checkpoint.path.name) if is_folder else (out.parent, out.name)
    beside: dict[str, Path | bytes] = {}
    left: list[str] = []
    if source.is_dir() and is_folder and not _same(source, out):
        for path, copied in _others(source, checkpoint, out):
            relative = path.relative_to(source).as_posix()
            if copied:
                beside[relative] = path
            else:
                left.append(relative)
    shards = tuple(file.path.name for file in checkpoint.files) if is_index else (name,)
    if source.is_dir() and is_folder and not _same(source, out):
        # Loaders choose one of two checkpoints, and each its own one.
        found = [path.name for path in checkpoints(out) if path.name not in (name, *shards)]
        if found:
            raise ValueError(
                f"{out} holds a checkpoint in other files ({listed(found)}): name another folder, or remove these files"
            )
    return Output(folder, is_folder, shards, name if is_index else None, beside, tuple(left))


def _others(source: Path, checkpoint: Checkpoint, out: Path) -> Iterator[tuple[Path, bool]]:
    """Files of a folder and its subfolders beside the checkpoint's own, in order, and whether they belong to the model.

    Hidden files do not. A file with weights belongs to it only in a subfolder with a configuration: a module of its
    own. Symlinks may lead to files in the folder or beside the checkpoint's real file, as in huggingface_hub's cache.
    """
    own = {checkpoint.path, *(file.path for file in checkpoint.files)}
    homes = (Path(os.path.realpath(source)), Path(os.path.realpath(checkpoint.path)).parent)
    for here, folders, files in os.walk(source):
        folder = Path(here)
        linked = [name for name in folders if (folder / name).is_symlink()]
        yield from ((folder / name, False) for name in sorted(linked) if not name.startswith("."))
        folders[:] = sorted(
            name for name in set(folders) - set(linked) if not name.startswith(".") and not _same(folder / name, out)
        )
        is_module = folder != source and "config.json" in files
        for name in sorted(files):
            path = folder / name
            if path in own or name.startswith("."):
                continue
            holds_weights = path.suffix.lower() in WEIGHTS or name.endswith((SUFFIX, ".bin.index.json"))
            real = Path(os.path.realpath(path))
            inside = homes[0] in real.parents or real.parent == homes[1]
            regular = real.exists() and stat.S_ISREG(real.stat().st_mode)
            yield path, regular and inside and (is_module or not holds_weights)


def _same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)
