"""Streaming kernels on windows: the groups of N:M@L, and groups of elements that do not fit a thread."""
