"""Users' kernels compiled: by the pipeline and ptxas or from the cache on disk, and loaded on a device."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from louver.isa.targets import target as machine
from louver.passes.signature import MapParameter, Signature
from louver.ptx.assembler import ptxas_version
from louver.runtime.cache import KernelRecord, kernel_cache, problem_key, ptx_hash
from louver.runtime.device import device
from louver.runtime.module import LoadedKernel, load
from louver.user.arguments import Kind
from louver.user.facts import ProductFacts
from louver.user.hints import Hints
from louver.user.source import KernelSource

if TYPE_CHECKING:
    from louver.passes.pipeline import CompiledProduct

Variant: TypeAlias = Literal["bulk", "direct"]
"""Whether the output's rows are whole 16-byte chunks, so that bulk copies may store them."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A kernel that is to be compiled: everything that goes into its key. source: not compared, its `key` is."""

    source: KernelSource
    kind: Kind
    hints: Hints
    variant: Variant
    target: str

    @property
    def key(self) -> str:
        """The key of its record on disk."""
        return problem_key(
            "user kernel",
            self.source.key,
            self.kind.to_json(),
            self.hints,
            self.variant,
            target=self.target,
            ptxas=ptxas_version(),
        )


@dataclass(frozen=True, slots=True)
class UserKernel:
    """A kernel on a device and what its launch must bind. metadata_words: of a load of metadata."""

    kernel: LoadedKernel
    signature: Signature
    facts: ProductFacts
    metadata_words: int

    @property
    def stores_in_bulk(self) -> bool:
        """Whether bulk copies write the output."""
        return any(isinstance(each, MapParameter) and each.operand == "d" for each in self.signature.parameters)


def compile_wanted(wanted: Wanted) -> CompiledProduct:
    """The kernel at every stage. Raises UnsupportedKernelError, with the operation and its line, or ValueError with the rule."""
    # A warm start reads the record from disk and needs neither xDSL nor Triton's compiler.
    from louver.ir.refusal import UnsupportedKernelError
    from louver.kernels.configure import choose_for_nest
    from louver.passes.pipeline import compile_tile_ir
    from louver.passes.product import ProductNest
    from louver.passes.schedule import Schedule

    def schedule(nest: ProductNest) -> Schedule:
        aligned = wanted.variant == "bulk"
        fixed = dict(wanted.hints.schedule)
        return choose_for_nest(nest, machine(wanted.target), aligned_output=aligned, fixed=fixed)

    def compiled(kind: Kind) -> CompiledProduct:
        tile_ir = wanted.source.tile_ir(dict(kind.signature), dict(kind.constexprs), dict(kind.sparse), wanted.target)
        return compile_tile_ir(tile_ir, schedule, wanted.target)

    try:
        return compiled(wanted.kind)
    except UnsupportedKernelError as refusal:
        # A size that is 1 by chance may hide what the kernel is: it is then left to the launch, as other sizes are.
        for name in wanted.kind.ones:
            try:
                return compiled(wanted.kind.without_one(name))
            except UnsupportedKernelError:
                continue
        raise refusal from None


def build_record(wanted: Wanted) -> KernelRecord:
    """Compile and assemble; raises RuntimeError when the assembler spills or warns of lost performance."""
    from louver.passes.layout import metadata_words
    from louver.ptx.assembler import assemble

    compiled = compile_wanted(wanted)
    assembly = assemble(compiled.ptx, wanted.target)
    if not assembly.clean:
        raise RuntimeError(
            f"{wanted.source.name} with {compiled.schedule} does not assemble cleanly: {assembly.warnings}"
        )
    launch: dict[str, Any] = {
        "signature": compiled.signature.to_json(),
        "facts": ProductFacts.of(compiled.nest).to_json(),
        "metadata_words": metadata_words(compiled.schedule, compiled.nest.a.element),
    }
    return KernelRecord(
        kernel=compiled.signature.kernel,
        cubin=assembly.cubin,
        ptx_hash=ptx_hash(compiled.ptx, ptxas=ptxas_version()),
        launch=launch,
        resources={"ptxas": ptxas_version()},
    )


def record_of(wanted: Wanted) -> KernelRecord:
    """The kernel's record from the cache, built when it is missing. Needs no GPU, so any process may do it ahead."""
    return kernel_cache().get_or_build(wanted.key, lambda: build_record(wanted))


def is_loaded(wanted: Wanted, ordinal: int) -> bool:
    """Whether `loaded` has the kernel already, so that it neither compiles nor reads a file."""
    return (wanted.key, ordinal) in _loaded()


def loaded(wanted: Wanted, ordinal: int) -> UserKernel:
    """The kernel, ready to launch on device `ordinal`; loaded once for the life of the process."""
    key = (wanted.key, ordinal)
    found = _loaded().get(key)
    return _loaded().setdefault(key, _load(wanted, ordinal)) if found is None else found


@functools.cache
def _loaded() -> dict[tuple[str, int], UserKernel]:
    return {}


def _load(wanted: Wanted, ordinal: int) -> UserKernel:
    record = record_of(wanted)
    signature = Signature.from_json(record.launch["signature"])
    kernel = load(
        record.cubin,
        record.kernel,
        dynamic_shared=signature.shared_bytes,
        threads=signature.threads,
        cluster=signature.cluster,
        ordinal=ordinal,
    )
    return UserKernel(
        kernel, signature, ProductFacts.from_json(record.launch["facts"]), record.launch["metadata_words"]
    )


def target_of(ordinal: int) -> str:
    """The target of a device."""
    return device(ordinal).target
