"""What Python calls to do what the commands `louver prune`, `louver compress` and `louver decompress` do."""

from __future__ import annotations

import os
from collections.abc import Sequence

from louver.formats.pattern import Pattern
from louver.formats.select import Norm
from louver.models.advising import advise as advise
from louver.models.compressing import CompressOptions, DecompressOptions, To
from louver.models.pruning import PruneOptions
from louver.models.rewrite import Progress, Rewritten, rewrite
from louver.models.selection import Choice

Path = str | os.PathLike[str]


def prune(
    source: Path,
    out: Path,
    pattern: str | Pattern = "2:4",
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    only: Sequence[str] = (),
    axis: int | None = None,
    dtype: str | None = None,
    compressed: bool = False,
    norm: Norm = "l2",
    force: bool = False,
    workers: int | str = 1,
    progress: Progress = lambda share: None,
) -> Rewritten:
    """Prune the weights of a checkpoint by magnitude along their contracted axes, and copy all other tensors.

    source: a safetensors file, an index, or a folder with one of them. out: a folder if it exists or source is a folder
    or an index, else a file; it may be the source. A folder gets the other files of a source folder too.
    include, exclude, only: globs that change what `louver.models.analyze` decides. axis: of tensors they name.
    dtype: element type of pruned weights. compressed: write values and indices. force: replace files that exist.
    workers: processes of this machine; or "ray" or "ray://HOST:PORT", a cluster of machines with one file system. Each
    writes a shard at a time. progress: called with the finished share. The same call continues an interrupted run.
    Raises ValueError if nothing can be pruned or a file would be replaced, FormatError for damage, and OSError.
    """
    choice = Choice(tuple(include), tuple(exclude), tuple(only), axis)
    options = PruneOptions(Pattern.parse(pattern), dtype, choice, compressed, norm)
    return rewrite(source, out, options, force=force, workers=workers, progress=progress)


def compress(
    source: Path,
    out: Path,
    pattern: str | Pattern = "2:4",
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    only: Sequence[str] = (),
    axis: int | None = None,
    to: To = "louver",
    force: bool = False,
    workers: int | str = 1,
    progress: Progress = lambda share: None,
) -> Rewritten:
    """Compress the weights of a checkpoint that hold the pattern already, bit for bit; see `prune` for the arguments.

    to: "louver", values and indices, or "sparse24_bitmask", the form of compressed-tensors. Other tensors are copied,
    weights among them named in `notes`. Raises ValueError if no weight can be compressed.
    """
    options = CompressOptions(Pattern.parse(pattern), Choice(tuple(include), tuple(exclude), tuple(only), axis), to)
    return rewrite(source, out, options, force=force, workers=workers, progress=progress)


def decompress(
    source: Path,
    out: Path,
    *,
    force: bool = False,
    workers: int | str = 1,
    progress: Progress = lambda share: None,
) -> Rewritten:
    """Write the compressed tensors of a checkpoint dense, with +0.0 where nothing is stored; see `prune`.

    Raises ValueError if no tensor is compressed.
    """
    return rewrite(source, out, DecompressOptions(), force=force, workers=workers, progress=progress)
