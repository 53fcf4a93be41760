"""Kernels that make forms of a sparse tensor on its device. Each element is made by one thread."""
