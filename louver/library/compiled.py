"""Compiled kernels: from the cache, or by the pipeline and ptxas, loaded on a device, with what their launches bind."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from louver.compile.plan.schedule import Schedule
from louver.compile.signature import Signature
from louver.frontend.problem import Problem
from louver.ir.conditions import Conditions
from louver.ir.plain import from_json, to_json
from louver.ir.product import ProductNest
from louver.ptx.assembler import ptxas_version
from louver.runtime.cache import KernelRecord, kernel_cache, problem_key, ptx_hash
from louver.runtime.callers import callers_level
from louver.runtime.device import device
from louver.runtime.module import LoadedKernel, load

if TYPE_CHECKING:
    from louver.compile.products import CompiledProduct
    from louver.compile.tiles import CompiledTiles
    from louver.ptx.assembler import Assembly

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Launch:
    """The record of a launch: what it binds and checks. checked: the product, or the conditions of register tiles. schedule: a product's."""

    signature: Signature
    checked: ProductNest | Conditions
    schedule: Schedule | None = None

    @classmethod
    def of(cls, made: CompiledProduct | CompiledTiles) -> Launch:
        """Of a compiled kernel."""
        return cls(made.signature, made.checked, getattr(made, "schedule", None))


@dataclass(frozen=True, slots=True)
class BuiltKernel(Generic[K]):
    """A kernel, on a device or as the emulator runs it, and what its launch binds."""

    kernel: K
    launch: Launch

    @property
    def signature(self) -> Signature:
        """Its parameters and threads."""
        return self.launch.signature


def record_made(made: CompiledProduct | CompiledTiles, assembly: Assembly, **resources: Any) -> KernelRecord:
    """The record of a kernel that is assembled. resources: more of them."""
    return KernelRecord(
        kernel=made.signature.kernel,
        cubin=assembly.cubin,
        ptx_hash=ptx_hash(made.ptx, ptxas=ptxas_version()),
        launch=to_json(Launch.of(made)),
        resources={"ptxas": ptxas_version(), **resources},
    )


def load_record(key: str, ordinal: int, record: KernelRecord) -> BuiltKernel[LoadedKernel]:
    """The kernel of a record, ready to launch on device `ordinal`; `find_loaded` knows it by its key for the life of the process.

    Warns of the reasons that the record has why a dense kernel may be faster.
    """
    for reason in record.resources.get("warnings", ()):
        warnings.warn(f"{record.kernel}: {reason}", stacklevel=callers_level())
    launch = from_json(Launch, record.launch)
    signature = launch.signature
    kernel = load(
        record.cubin,
        record.kernel,
        dynamic_shared=signature.shared_bytes,
        threads=signature.threads,
        cluster=signature.cluster,
        ordinal=ordinal,
        dependent=signature.dependent,
    )
    return _loaded().setdefault((key, ordinal), BuiltKernel(kernel, launch))


def find_loaded(key: str, ordinal: int) -> BuiltKernel[LoadedKernel] | None:
    """The kernel of a key on a device, None until it is loaded."""
    return _loaded().get((key, ordinal))


def loaded_keys() -> tuple[tuple[str, int], ...]:
    """Key and device of each kernel that is loaded in this process."""
    return tuple(_loaded())


@functools.cache
def _loaded() -> dict[tuple[str, int], BuiltKernel[LoadedKernel]]:
    return {}


def build_record(problem: Problem, schedule: Schedule, target: str) -> KernelRecord:
    """Compile and assemble; raises RuntimeError when the assembler spills or warns of lost performance."""
    # A warm start reads the record from disk and needs neither xDSL nor the assembler.
    from louver.compile.products import compile_product
    from louver.ptx.assembler import assemble

    compiled = compile_product(problem, schedule, target)
    assembly = assemble(compiled.ptx, target)
    if not assembly.clean:
        raise RuntimeError(
            "a product's kernel must assemble without spills and serialized products, got "
            f"{'; '.join(assembly.faults)} (ptxas {assembly.version}, {problem}, {schedule}). Give the schedule "
            "a smaller tile, or the epilogue fewer arrays"
        )
    return record_made(compiled, assembly)


def product_key(problem: Problem, schedule: Schedule, target: str) -> str:
    """The key of a product's record."""
    return problem_key(problem, schedule, target=target, ptxas=ptxas_version())


def record_of(problem: Problem, schedule: Schedule, target: str) -> KernelRecord:
    """The product's record from the cache, built when it is missing. Needs no GPU, so any process may do it ahead."""
    key = product_key(problem, schedule, target)
    return kernel_cache().get_or_build(key, lambda: build_record(problem, schedule, target))


def find(problem: Problem, schedule: Schedule, ordinal: int) -> BuiltKernel[LoadedKernel] | None:
    """The product's kernel if device `ordinal` has it already; None where it must be compiled, or read from a file."""
    return find_loaded(product_key(problem, schedule, device(ordinal).target), ordinal)


def loaded(problem: Problem, schedule: Schedule, ordinal: int) -> BuiltKernel[LoadedKernel]:
    """The product's kernel, ready to launch on device `ordinal`, where `find` finds it for the life of the process."""
    target = device(ordinal).target
    return load_record(product_key(problem, schedule, target), ordinal, record_of(problem, schedule, target))
