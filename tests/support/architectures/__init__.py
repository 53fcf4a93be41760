"""Judges the roles of tensors by real runs of tiny models."""
