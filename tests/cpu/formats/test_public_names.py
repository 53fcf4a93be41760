from __future__ import annotations

import subprocess
import sys

import pytest

import louver


def test_names_of_this_room_are_public() -> None:
    for name in ("Pattern", "SparseTensor", "check", "compress", "load", "prune", "save"):
        assert name in louver.__all__ and name in dir(louver)
        assert callable(getattr(louver, name))


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(AttributeError, match="no attribute 'prunes'; its public names are .*prune"):
        louver.prunes  # noqa: B018


def test_importing_louver_imports_no_room() -> None:
    code = "import sys, louver; print([m for m in sys.modules if m.startswith('louver.')], 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] False"
