"""The library: sparse products, their plans, streaming kernels, and the reference path."""
