"""Checkpoints of any size: what each tensor is, what is pruned, and files that survive an interruption."""
