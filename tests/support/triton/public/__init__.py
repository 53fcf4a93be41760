"""Forms with the structures of kernels in public repositories, at the sizes of models, written anew. Triton must be installed to import these."""
