"""Folders of tests that are not collected where what they need is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


@cache
def why_no_gpu() -> str | None:
    """The reason that kernels cannot run here, None when they can."""
    from louver.cli.commands.doctor import gpu

    fact = gpu()
    return None if fact.ok else f"no usable GPU: {fact.value}"


def why_missing(*packages: str, target: str = "test-models") -> str | None:
    """The packages that are not installed, and the target of make that installs them."""
    missing = [name for name in packages if find_spec(name) is None]
    return f"no {' and no '.join(missing)}: see make {target}" if missing else None


NEEDS: dict[str, Callable[[], str | None]] = {
    "gpu": why_no_gpu,
    "cpu/torch": partial(why_missing, "torch"),
    "cluster": partial(why_missing, "ray", target="test-ray"),
    "models": partial(why_missing, "torch", "transformers"),
}
"""Folder below tests: the reason that its tests cannot run, None when they can."""


class Needs:
    """A pytest plugin that leaves out the folders below `root` that cannot run, and says so in a line for each."""

    def __init__(self, root: Path = TESTS, needs: dict[str, Callable[[], str | None]] = NEEDS) -> None:
        self.needs = {root / folder: reason for folder, reason in needs.items()}

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave out a folder that cannot run."""
        reason = self.needs.get(collection_path)
        return True if reason is not None and reason() is not None else None

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out the tests of a file in such a folder: pytest collects a file that is named, whatever is ignored."""
        left_out = [folder for folder, _ in self.left_out(config)]
        files = {path for path in {item.path for item in items} if any(map(path.is_relative_to, left_out))}
        if files:
            config.hook.pytest_deselected(items=[item for item in items if item.path in files])
            items[:] = [item for item in items if item.path not in files]

    def pytest_report_header(self, config: pytest.Config) -> list[str]:
        """The folders that were asked for and are left out."""
        return [f"left out: {path.relative_to(config.rootpath)}: {reason}" for path, reason in self.left_out(config)]

    def left_out(self, config: pytest.Config) -> Iterator[tuple[Path, str]]:
        """Each folder among the arguments that cannot run, and the reason."""
        asked = [(config.invocation_params.dir / each.partition("::")[0]).resolve() for each in config.args]
        for folder, why in self.needs.items():
            if any(folder.is_relative_to(path) or path.is_relative_to(folder) for path in asked):
                reason = why()
                if reason is not None:
                    yield folder, reason
