"""Runs kernels on a GPU: devices, arrays, tensor maps, memory, the kernel cache, loading and launching."""
