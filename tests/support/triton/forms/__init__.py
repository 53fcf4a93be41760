"""Forms of kernels that people write, a file for each library whose style they follow. Triton must be installed to import these."""
