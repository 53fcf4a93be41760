from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from louver.runtime import built, copy2d
from louver.runtime.cache import KernelCache
from louver.runtime.copy2d import Copying, bound_copy, groups, is_transposed

GOOD: dict[str, Any] = {
    "source": 0x1002,
    "shape": (5, 7),
    "strides": (9, 1),
    "element_bytes": 2,
    "destination": 0x2000,
    "pitch": 16,
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"element_bytes": 8}, "1, 2 or 4 bytes, got 8"),
        ({"shape": (0, 7)}, r"1 to 2\^31 - 1 rows and columns, got \(0, 7\)"),
        ({"shape": (5, 1 << 31), "pitch": 1 << 33}, r"1 to 2\^31 - 1"),
        ({"strides": (9, -1)}, r"at least 0, got \(9, -1, 0\)"),
        ({"source": 0x1001}, "multiple of 2 bytes, got 0x1001"),
        ({"destination": 0x2001}, "multiples of 2 bytes, got 0x2001, 16 and 80"),
        ({"pitch": 25}, "multiples of 2 bytes, got 0x2000, 25 and 125"),
        ({"entry_pitch": 81}, "multiples of 2 bytes, got 0x2000, 16 and 81"),
        ({"entry_pitch": 78}, "entries of 5 rows are 80 bytes or more apart, got 78"),
        ({"entries": 0}, r"1 to 2\^31 - 1 entries, got 0"),
        ({"entries": 2, "entry_stride": -5}, r"at least 0, got \(9, 1, -5\)"),
        ({"shape": (5, 9)}, "needs 18 bytes, got a pitch of 16"),
    ],
)
def test_what_breaks_a_rule_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bound_copy(**{**GOOD, **changes})()


def test_the_kernel_is_chosen_by_the_smaller_stride() -> None:
    assert is_transposed((1, 100))
    assert not is_transposed((100, 1))
    assert not is_transposed((2, 2))
    assert not is_transposed((0, 0))


@pytest.mark.parametrize("shape", [(1, 1), (33, 1), (1, 33), (4096, 4096), (1, 1 << 20), (1 << 20, 1), (64, 1 << 30)])
def test_ctas_cover_the_tiles_and_are_few(shape: tuple[int, int]) -> None:
    rows, columns = shape
    row_groups, column_groups = groups(rows, columns, (32, 64), 1000)
    assert 1 <= row_groups <= -(-rows // 32) and 1 <= column_groups <= -(-columns // 64)
    assert row_groups * column_groups <= 1000
    tiles = -(-rows // 32) * -(-columns // 64)
    assert row_groups * column_groups >= min(tiles, 500)


def test_a_copy_is_one_launch(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from louver.runtime.module import load

    asked: list[Any] = []

    def loaded(*key: Any) -> Any:
        asked.append(key)
        return load(b"code", "copy", threads=copy2d.THREADS, ordinal=key[0])

    monkeypatch.setattr(copy2d, "_loaded", loaded)
    fake.calls.clear()
    bound_copy(**GOOD, ordinal=1, stream=5)()
    bound_copy(**{**GOOD, "strides": (1, 5)})()
    along, turning = (list(Copying.all(2, transposed=transposed)) for transposed in (False, True))
    assert asked == [*((1, each) for each in along), *((0, each) for each in turning)]
    launches = fake.called("cuLaunchKernel")
    assert [launch[1:4] for launch in launches] == [(1, 1, 1), (1, 1, 1)]
    assert launches[0][8] == 5
    assert fake.reads == [0x1002, 0x1002]


def kernel_of(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Copying:
    """The kernel that makes a copy."""
    from louver.runtime.module import LoadedKernel, load

    every = [each for transposed in (False, True) for each in Copying.all(2, transposed=transposed)]
    kernels = {load(b"code", "copy", threads=copy2d.THREADS): each for each in every}
    monkeypatch.setattr(copy2d, "_ready", lambda: {(0, copying): kernel for kernel, copying in kernels.items()})
    sent: list[Any] = []
    monkeypatch.setattr(LoadedKernel, "bound", lambda self, *_: lambda: sent.append(self))
    bound_copy(**{**GOOD, **changes})()
    (kernel,) = sent
    return kernels[kernel]


@pytest.mark.parametrize(
    ("changes", "packed"),
    [
        ({}, True),
        ({"source": 0x1002}, False),
        ({"strides": (1, 9)}, False),
        ({"strides": (2, 10)}, False),
        ({"shape": (5, 8)}, False),
        ({"shape": (6, 7)}, False),
        ({"pitch": 18}, False),
        ({"destination": 0x2002}, False),
        ({"entry_stride": 3}, False),
        ({"entry_pitch": 98}, False),
    ],
)
def test_words_are_turned_where_all_are_whole(
    changes: dict[str, Any], packed: bool, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"source": 0x1000, "shape": (6, 8), "strides": (1, 10), **changes}
    assert kernel_of(monkeypatch, **changes) == Copying(2, True, packed=packed)


@pytest.mark.parametrize(
    ("changes", "width"),
    [
        ({}, 16),
        ({"shape": (6, 18)}, 4),
        ({"strides": (42, 1)}, 4),
        ({"source": 0x1002}, 2),
        ({"shape": (6, 17)}, 2),
        ({"strides": (40, 2)}, 2),
        ({"entry_stride": 6}, 4),
        ({"pitch": 56}, 4),
    ],
)
def test_rows_are_copied_in_the_widest_words_that_fit(
    changes: dict[str, Any], width: int, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"source": 0x1000, "shape": (6, 16), "strides": (40, 1), "pitch": 64, **changes}
    assert kernel_of(monkeypatch, **changes) == Copying(width, False)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("element_bytes", [1, 2, 4])
def test_the_kernels_assemble_cleanly(element_bytes: int, transposed: bool) -> None:
    from louver.ptx.assembler import assemble
    from louver.ptx.module import Module
    from louver.ptx.printer import print_module

    for copying in Copying.all(element_bytes, transposed=transposed):
        kernel = copy2d.build(copying)
        for target in ("sm_80", "sm_90a"):
            assembly = assemble(print_module(Module(target, [kernel])), target)
            assert assembly.clean, assembly.warnings


def test_a_kernel_is_compiled_once_and_kept(fake: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import louver.ptx.assembler as assembler

    cache = KernelCache(tmp_path)
    monkeypatch.setattr(built, "kernel_cache", lambda: cache)
    copy2d._loaded.cache_clear()
    bound_copy(**GOOD)()
    names = [arguments[1] for arguments in fake.called("cuModuleGetFunction")]
    assert names == [b"copy_rows_16", b"copy_rows_128", b"copy_rows_32"]

    def fails(*arguments: Any) -> Any:
        raise AssertionError("assembled again")

    monkeypatch.setattr(assembler, "assemble", fails)
    bound_copy(**GOOD)()
    copy2d._loaded.cache_clear()
    monkeypatch.setattr(built, "kernel_cache", lambda: KernelCache(tmp_path))
    bound_copy(**GOOD)()
    copy2d._loaded.cache_clear()
    assert len(fake.called("cuLaunchKernel")) == 3
