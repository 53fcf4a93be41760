"""Pruning that keeps a model's accuracy: by calibration, block by block."""
