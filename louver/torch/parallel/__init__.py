"""Sparse layers on several ranks: styles for `torch.distributed.tensor.parallel.parallelize_module`, and loading of parts.

    parallelize_module(model, mesh, {"layers.*.mlp.up_proj": ColwiseParallel(), "layers.*.mlp.down_proj": RowwiseParallel()})
"""

from louver.torch.parallel.styles import ColwiseParallel, RowwiseParallel

__all__ = ["ColwiseParallel", "RowwiseParallel"]
