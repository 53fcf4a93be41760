"""Structured-sparse formats: element types, patterns, prune, check, compress, and the portable file."""
