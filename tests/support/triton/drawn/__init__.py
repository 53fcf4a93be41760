"""Triton kernels drawn at random, as users write them, with launches of them and float64 results."""
