"""Ways into tile IR: library problems (`builder`) and Triton kernels (`triton`)."""
