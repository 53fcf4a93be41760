"""Marks an argument that is sparse along its last axis but one, as a weight [K, N] or `s.T` is."""

from __future__ import annotations

TRANSPOSED = ".T"
"""The suffix of the pattern of such an argument: "2:4.T"."""

LENGTH = ".K"
"""The suffix of the argument's name in that of its length along the sparse axis, an argument of its own."""
