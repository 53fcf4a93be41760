"""Streaming kernels: prune, check, compress and expand sparse operands on a GPU.

A kernel makes one pass over memory. Kernels on windows may read a window twice, the second time from the L2 cache if
possible.
"""
