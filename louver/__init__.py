"""Louver: structured sparsity compiled to PTX from Python."""

from __future__ import annotations

__version__ = "0.1.0"
