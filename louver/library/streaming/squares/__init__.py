"""Streaming kernels of transposable masks, on squares of 8 × 8 elements."""
