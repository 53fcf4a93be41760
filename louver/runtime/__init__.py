"""Running kernels on the GPU: device, arrays, tensor maps, memory, the kernel cache, loading and launching."""
