"""Reads Triton's IR text: source locations, operations, arguments and their marks."""

from __future__ import annotations

from louver.frontend.ttir.read import SPARSE_MARK, read_ttir, sparse_axis, sparse_mark

__all__ = ["SPARSE_MARK", "read_ttir", "sparse_axis", "sparse_mark"]
