"""The library: 2:4 products, their plans, and the reference path."""
