"""Louver in PyTorch: operators on plain tensors, modules with sparse weights, and the swap of a model's weights."""
