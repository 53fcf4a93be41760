"""Marks of an argument that is sparse along its last axis but one, such as a weight [K, N] or `s.T`."""

from __future__ import annotations

TRANSPOSED = ".T"
"""The suffix of the argument's pattern: "2:4.T"."""

LENGTH = ".K"
"""The suffix in the name of an extra argument, the argument's length along its sparse axis."""
