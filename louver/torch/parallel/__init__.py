"""Sparse layers on several ranks: styles for `torch.distributed.tensor.parallel.parallelize_module`, and loading of parts.

plan = {"layers.*.mlp.up_proj": ColwiseParallel(), "layers.*.mlp.down_proj": RowwiseParallel()}
parallelize_module(model, mesh, plan)
"""

from louver.torch.parallel.loading import load_
from louver.torch.parallel.styles import ColwiseParallel, ExpertParallel, RowwiseParallel

__all__ = ["ColwiseParallel", "ExpertParallel", "RowwiseParallel", "load_"]
