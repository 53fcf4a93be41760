"""vLLM: serves sparse weights. `register` is the entry point that vLLM calls in each of its processes.

Importing this imports neither vLLM nor PyTorch.
"""

from __future__ import annotations

import logging
from importlib import import_module

from louver.torch.vllm.interfaces import InterfaceError, check

__all__ = ["InterfaceError", "check", "register"]


def register() -> None:
    """Make vLLM know the quantization `louver` and the load format `louver`. May be called again.

    With a vLLM whose interfaces differ it registers nothing, and logs which one differs and which versions pass: vLLM
    goes on without Louver.
    """
    # The name lies below vLLM's own logger, which alone has a handler.
    logger = logging.getLogger("vllm.louver")
    try:
        check()
    except InterfaceError as error:
        logger.error("%s", error)
        return
    for part in ("config", "loader"):
        import_module(f"louver.torch.vllm.{part}")
