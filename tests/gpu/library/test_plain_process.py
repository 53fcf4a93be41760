from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "one_product.py"


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_numpy_arrays_without_torch_or_a_context(dtype: str) -> None:
    # In a fresh process nobody else has made a CUDA context current.
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "130", "70", "300", dtype, dtype],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("right: ")
