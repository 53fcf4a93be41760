"""Streaming kernels: prune, check, compress and expand sparse operands on a GPU, each in one pass over memory."""
