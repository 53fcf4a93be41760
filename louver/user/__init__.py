"""Users' kernels: `louver.jit` binds their arguments, has them compiled, and launches or emulates them."""
