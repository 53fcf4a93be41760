"""Triton kernels for tests, and the script that keeps what Triton makes of them."""
