"""Kernels that make forms of a sparse tensor on its device, a thread for each element."""
