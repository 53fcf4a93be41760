"""Pruning that keeps accuracy: masks, statistics of inputs, methods and refinements."""
