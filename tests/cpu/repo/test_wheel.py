"""The wheel: built from this checkout, installed into a new environment, and used outside of the checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

import louver

ROOT = Path(__file__).resolve().parents[3]
KERNEL = ROOT / "tests" / "golden" / "ttir" / "3.6" / "weight_descriptors.ttir"
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"

Run = Callable[..., str]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the backend's own hook (PEP 517), without isolation: nothing is downloaded."""
    pytest.importorskip("hatchling", reason="building needs hatchling: pip install 'louver[test]'")
    folder = tmp_path_factory.mktemp("wheel")
    # The backend may be on this process's path only.
    built = _run(sys.executable, "-c", BUILD, str(folder), cwd=ROOT, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    return folder / built.splitlines()[-1]


@pytest.fixture(scope="module")
def outside(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """A folder outside of the checkout, and what runs a command there in an environment that has the wheel.

    The environment finds the installed dependencies of this one, so that nothing is downloaded, but not an editable
    Louver: the `.pth` files of a folder that is only on the path are not read.
    """
    pytest.importorskip("pip", reason="installing a wheel needs pip")
    folder = tmp_path_factory.mktemp("outside")
    environment = folder / "environment"
    _run(sys.executable, "-m", "venv", "--without-pip", str(environment), cwd=folder)
    python = environment / "bin" / "python"
    install = ("install", "--no-deps", "--no-index", "--quiet", "--disable-pip-version-check", str(wheel))
    _run(sys.executable, "-m", "pip", "--python", str(python), *install, cwd=folder)
    (packages,) = environment.glob("lib/python*/site-packages")
    found = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
    (packages / "dependencies.pth").write_text("".join(f"{each}\n" for each in found), encoding="utf-8")

    def run(*command: str) -> str:
        return _run(
            str(environment / "bin" / command[0]), *command[1:], cwd=folder, LOUVER_CACHE_DIR=str(folder / "cache")
        )

    return folder, run


def _run(*command: str, cwd: Path, **variables: str) -> str:
    """What a command prints, without this process's path and without a GPU."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    kept |= {"CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1", **variables}
    done = subprocess.run(command, cwd=cwd, env=kept, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    files = [path for path in (ROOT / "louver").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    with ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
        (metadata,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        text = archive.read(metadata).decode()
    assert inside == {str(path.relative_to(ROOT)) for path in files}
    assert {"louver/py.typed", "louver/choose/tables/h200.json", "louver/cli/page/page.html"} <= inside
    assert f"\nVersion: {louver.__version__}\n" in text and "\nDescription-Content-Type: text/markdown\n" in text


def test_the_installed_wheel_runs_outside_of_the_checkout(outside: tuple[Path, Run]) -> None:
    folder, run = outside
    place = run("python", "-c", "import louver; print(louver.__file__, louver.__version__)").split()
    assert Path(place[0]).is_relative_to(folder) and place[1] == louver.__version__
    assert run("louver", "--version") == f"louver {louver.__version__}\n"

    example = re.search(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    assert example is not None
    (folder / "example.py").write_text(example[1], encoding="utf-8")
    run("python", "example.py")
    assert (folder / "weights.safetensors").exists()

    assert "ptxas" in run("louver", "doctor")

    weight = np.random.default_rng(7).standard_normal((40, 72)).astype(np.float16)
    louver.save(folder / "dense.safetensors", {"encoder.0.query.weight": weight})
    run("louver", "prune", "dense.safetensors", "pruned.safetensors")
    pruned = louver.load(folder / "pruned.safetensors")["encoder.0.query.weight"]
    np.testing.assert_array_equal(np.asarray(pruned), louver.prune(weight, "2:4"))

    shutil.copy(KERNEL, folder / "kernel.ttir")
    assert "wgmma.mma_async.sp" in run("louver", "compile", "kernel.ttir", "--emit", "ptx")
    run("louver", "compile", "kernel.ttir", "--emit", "all", "--html", "page.html")
    assert "wgmma.mma_async.sp" in (folder / "page.html").read_text(encoding="utf-8")
