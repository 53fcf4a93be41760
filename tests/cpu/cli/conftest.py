from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import louver
from louver.cli import app


class Cli:
    """Runs the command line in this process, wide enough that nothing wraps."""

    def __call__(self, *arguments: object, columns: str = "300") -> Result:
        return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": columns})

    def refused(self, *arguments: object) -> str:
        """The one line of a command that must fail without a traceback and print no result."""
        result = self(*arguments)
        assert result.exit_code in (1, 2), result.output
        assert not result.stdout
        lines = result.stderr.strip().splitlines()
        assert len(lines) == 1, result.stderr
        return lines[0]


@pytest.fixture
def cli() -> Cli:
    return Cli()


@pytest.fixture
def checkpoint(tmp_path: Path, rng: np.random.Generator) -> Path:
    """Three matrices of odd sizes (one of them an embedding), a bias and integer positions."""
    path = tmp_path / "model.safetensors"
    tensors = {
        "encoder.query.weight": rng.standard_normal((37, 70)).astype(np.float32),
        "encoder.dense.weight": rng.standard_normal((9, 128)).astype(np.float32),
        "encoder.dense.bias": rng.standard_normal(9).astype(np.float32),
        "embeddings.word.weight": rng.standard_normal((11, 24)).astype(np.float32),
        "embeddings.position_ids": np.arange(12).reshape(1, 12),
    }
    louver.save(path, tensors, {"format": "pt"})
    return path
