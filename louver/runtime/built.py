"""Assembles, caches and loads kernels that are written by hand with the PTX builder."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from louver.runtime.cache import KernelRecord, kernel_cache, problem_key, ptx_hash
from louver.runtime.device import device
from louver.runtime.module import LoadedKernel, load

if TYPE_CHECKING:
    from louver.ptx.module import Kernel


def load_built(ordinal: int, *key: object, build: Callable[[], Kernel]) -> LoadedKernel:
    """The kernel of `build`, loaded on a device. It is built only if the cache has no kernel with this key."""
    from louver.ptx.assembler import assemble, ptxas_version

    target = device(ordinal).target

    def make() -> KernelRecord:
        from louver.ptx.module import Module
        from louver.ptx.printer import print_module

        kernel = build()
        ptx = print_module(Module(target, [kernel]))
        return KernelRecord(
            kernel=kernel.name,
            cubin=assemble(ptx, target).cubin,
            ptx_hash=ptx_hash(ptx, ptxas=ptxas_version()),
            launch={"threads": kernel.threads, "dynamic_shared": kernel.dynamic_shared},
        )

    record = kernel_cache().get_or_build(problem_key(*key, target=target, ptxas=ptxas_version()), make)
    return load(
        record.cubin,
        record.kernel,
        threads=record.launch["threads"],
        dynamic_shared=record.launch["dynamic_shared"],
        ordinal=ordinal,
    )
