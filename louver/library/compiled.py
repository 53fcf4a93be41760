"""Compiled products: from the cache, or by the pipeline and ptxas, loaded on a device."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from louver.compile.plan.schedule import Schedule
from louver.compile.signature import Signature
from louver.frontend.problem import Problem
from louver.ir.plain import from_json, to_json
from louver.ptx.assembler import ptxas_version
from louver.runtime.cache import KernelRecord, kernel_cache, problem_key, ptx_hash
from louver.runtime.device import device
from louver.runtime.module import LoadedKernel, load


@dataclass(frozen=True, slots=True)
class LoadedProduct:
    """A product's kernel on a device, and what its launch must bind."""

    kernel: LoadedKernel
    signature: Signature


def build_record(problem: Problem, schedule: Schedule, target: str) -> KernelRecord:
    """Compile and assemble; raises RuntimeError when the assembler spills or warns of lost performance."""
    # A warm start reads the record from disk and needs neither xDSL nor the assembler.
    from louver.compile.products import compile_product
    from louver.ptx.assembler import assemble

    compiled = compile_product(problem, schedule, target)
    assembly = assemble(compiled.ptx, target)
    if not assembly.clean:
        raise RuntimeError(
            "a product's kernel keeps its sums in registers and its products in flight, got one that does not assemble cleanly: "
            f"{'; '.join(assembly.faults)} (ptxas {assembly.version}, {problem}, {schedule}). Give the schedule a smaller tile, or "
            "the epilogue fewer arrays"
        )
    return KernelRecord(
        kernel=compiled.signature.kernel,
        cubin=assembly.cubin,
        ptx_hash=ptx_hash(compiled.ptx, ptxas=ptxas_version()),
        launch=to_json(compiled.signature),
        resources={"ptxas": ptxas_version()},
    )


def record_of(problem: Problem, schedule: Schedule, target: str) -> KernelRecord:
    """The product's record from the cache, built when it is missing. Needs no GPU, so any process may do it ahead."""
    key = problem_key(problem, schedule, target=target, ptxas=ptxas_version())
    return kernel_cache().get_or_build(key, lambda: build_record(problem, schedule, target))


def is_loaded(problem: Problem, schedule: Schedule, ordinal: int) -> bool:
    """Whether `loaded` has the kernel already, so that it neither compiles nor reads a file."""
    return (problem, schedule, ordinal) in _loaded()


def loaded(problem: Problem, schedule: Schedule, ordinal: int) -> LoadedProduct:
    """The product's kernel, ready to launch on device `ordinal`; loaded once for the life of the process."""
    key = (problem, schedule, ordinal)
    found = _loaded().get(key)
    return _loaded().setdefault(key, _load(*key)) if found is None else found


def loaded_products() -> tuple[tuple[Problem, Schedule, int], ...]:
    """The kernels that `loaded` has loaded in this process: problem, schedule and device of each kernel."""
    return tuple(_loaded())


@functools.cache
def _loaded() -> dict[tuple[Problem, Schedule, int], LoadedProduct]:
    return {}


def _load(problem: Problem, schedule: Schedule, ordinal: int) -> LoadedProduct:
    record = record_of(problem, schedule, device(ordinal).target)
    signature = from_json(Signature, record.launch)
    kernel = load(
        record.cubin,
        record.kernel,
        dynamic_shared=signature.shared_bytes,
        threads=signature.threads,
        cluster=signature.cluster,
        ordinal=ordinal,
    )
    return LoadedProduct(kernel, signature)
