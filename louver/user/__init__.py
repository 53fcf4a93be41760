"""Users' kernels: `louver.jit` binds their arguments, compiles them, and launches or emulates them."""
