"""The ways of two calls through the files of louver/, from a trace: `python docs/ways.py product`, or `kernel`.

Each call runs in a process of its own with empty caches, so that everything is made once, on the tests' device that records
launches (`tests/support/fake_gpu.py`). A file stands below the file that first called into it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
BELOW = f"{ROOT / 'louver'}{os.sep}"

ACTORS = ("library/", "user/", "frontend/", "compile/", "runtime/", "ptx/")
"""The rooms whose files do the steps of a call. The others hold facts and helpers that many files ask."""

PASSES = tuple(
    f"compile/{each}" for each in ("passes", "kernel_state", "canonical/", "decompose/", "plan/encode/", "plan/feeds/")
)
"""Passes that rewrite tile IR, which docs/passes.md lists, and the state between them."""

DEEPEST, WIDTH = 4, 108
"""How many callers deep the ways go, and columns of a line."""


def way(name: str) -> str:
    """A call's files in the order in which they are entered, each with the first sentence of its docstring."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "LOUVER_CACHE_DIR": folder,
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "examples", *sys.path))),
        }
        command = [sys.executable, "-W", "ignore", __file__, name]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise ValueError(f"the way of a {name} could not be traced: {done.stderr}")
    return f"```text\n{done.stdout}```\n"


def trace(call: Callable[[], object]) -> list[tuple[str, int]]:
    """Files below louver/ in the order of their first function, each with the number of its callers."""
    depths: dict[str, int] = {}

    def enter(frame: FrameType, event: str, argument: object) -> None:
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(BELOW) or file in depths:
            return
        caller: FrameType | None = frame
        while caller is not None:
            # Bodies of modules and classes run where a module is imported, which is no step of a call.
            if not caller.f_code.co_flags & inspect.CO_OPTIMIZED and caller.f_code.co_filename.startswith(BELOW):
                return
            caller = caller.f_back
        caller = frame.f_back
        while caller is not None and caller.f_code.co_filename not in depths:
            caller = caller.f_back
        depths[file] = 0 if caller is None else depths[caller.f_code.co_filename] + 1

    sys.setprofile(enter)
    try:
        call()
    finally:
        sys.setprofile(None)
    return [(file.removeprefix(BELOW).replace(os.sep, "/"), depth) for file, depth in depths.items()]


def lines(steps: list[tuple[str, int]]) -> list[str]:
    """The steps as text: files of `ACTORS`, the passes of a pipeline apart, with what their docstrings say."""
    found: list[str] = []
    for file, depth in steps:
        if file.startswith(ACTORS) and depth <= DEEPEST and not file.startswith(PASSES):
            docstring = ast.get_docstring(ast.parse(Path(BELOW, file).read_text(encoding="utf-8"))) or ""
            about = re.split(r"(?<=[.:])\s+(?=[A-Z`])|\n\n", docstring, maxsplit=1)[0]
            line = f"{'  ' * depth}{file}".ljust(44) + " " + " ".join(about.split()).rstrip(".:")
            found.append(line if len(line) <= WIDTH else f"{line[: WIDTH - 2]} …")
    return found


def product() -> Callable[[], object]:
    """The first call of `louver.linear` with a weight of 2:4."""
    import louver
    from support.fake_gpu import Tensor

    weight, x = _weight(64, 64), Tensor((5, 64))
    return lambda: louver.linear(x, weight)


def kernel() -> Callable[[], object]:
    """The first call of a user's kernel that is no product."""
    import louver
    from support.fake_gpu import Tensor

    # Triton asks a real PyTorch, where there is one, whether it has a GPU.
    torch = sys.modules.pop("torch")
    kernels = importlib.import_module("support.triton.tile_kernels")
    sys.modules["torch"] = torch
    jitted = louver.jit(kernels.two_dots)
    outputs = Tensor((64, 32), "float32"), Tensor((32, 64), "float32")
    operands = _weight(64, 64), Tensor((64, 32)), Tensor((32, 32)), Tensor((32,), "float32")
    return lambda: jitted[(1,)](*outputs, *operands, 1, 64, 32, 64, BM=64, BN=32, BK=64)


def _weight(rows: int, columns: int) -> object:
    import numpy as np

    import louver

    dense = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float16)
    return louver.compress(louver.prune(dense, "2:4"), "2:4")


def main(name: str) -> None:
    """Prints the way. Replaces the driver and PyTorch by the tests' recording ones."""
    from louver.runtime import driver, tensormap
    from support.fake_gpu import FakeGpu, FakeTorch

    gpu, real = FakeGpu(), importlib.import_module
    driver.importlib.import_module = lambda module: gpu if "cuda" in module else real(module)
    tensormap._encode_tiled = lambda: gpu.encode
    sys.modules["torch"] = FakeTorch()
    print(*lines(trace({"product": product, "kernel": kernel}[name]())), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
