"""How passes refuse a kernel: `louver.ir.refusal`, under the name by which passes know it."""

from louver.ir.refusal import UnsupportedKernelError, source_location, unsupported

__all__ = ["UnsupportedKernelError", "source_location", "unsupported"]
