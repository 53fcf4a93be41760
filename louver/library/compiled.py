"""Compiled kernels: read from the cache or compiled, then loaded on a device, with the data that a launch binds.

Records beside a cubin are JSON: frozen dataclasses are converted by the types of their fields, and read back without IR.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from louver.choose.reasons import Reasons, Why, given
from louver.compile.needs import Needs
from louver.compile.plan.register_tiles import AnySchedule, RegisterTiles, ctas_of
from louver.compile.plan.schedule import Schedule
from louver.compile.signature import Signature
from louver.compile.uncollected import uncollected
from louver.frontend.problem import Problem
from louver.ir.conditions import Conditions
from louver.ir.polynomial import Polynomial
from louver.ir.product import ProductNest
from louver.ptx.assembler import ptxas_version
from louver.runtime.cache import KernelRecord, kernel_cache, problem_key, ptx_hash
from louver.runtime.callers import callers_level
from louver.runtime.device import device
from louver.runtime.module import LoadedKernel, load

if TYPE_CHECKING:
    from louver.compile.compiled import CompiledProduct, CompiledTiles
    from louver.compile.problem_tiles import ProblemTiles
    from louver.ptx.assembler import Assembly


K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Launch:
    """The data with which a launch binds and checks its arguments.

    checked: the product, or the conditions of register tiles.
    schedule: the schedule of a product.
    reasons: why the kernel is as it is; None on the emulator, which keeps no record.
    """

    signature: Signature
    checked: ProductNest | Conditions
    schedule: Schedule | None = None
    reasons: Reasons | None = None

    @property
    def needs(self) -> Needs:
        """What a call must fulfil."""
        return Needs.of(self.checked, self.signature.parameters)

    @classmethod
    def of(cls, made: CompiledProduct | CompiledTiles, reasons: Reasons | None = None) -> Launch:
        """The data of a compiled kernel."""
        return cls(made.signature, made.checked, getattr(made, "schedule", None), reasons)


@dataclass(frozen=True, slots=True)
class BuiltKernel(Generic[K]):
    """A kernel for a device or for the emulator, with the data of its launches."""

    kernel: K
    launch: Launch

    @property
    def signature(self) -> Signature:
        """The kernel's parameters and threads."""
        return self.launch.signature


def record_made(
    made: CompiledProduct | CompiledTiles, assembly: Assembly, reasons: Reasons, **resources: Any
) -> KernelRecord:
    """The record of an assembled kernel. resources: entries of the record's `resources` besides the version of ptxas."""
    return KernelRecord(
        kernel=made.signature.kernel,
        cubin=assembly.cubin,
        ptx_hash=ptx_hash(made.ptx, ptxas=ptxas_version()),
        launch=to_json(Launch.of(made, reasons)),
        resources={"ptxas": ptxas_version(), **resources},
    )


def load_record(key: str, ordinal: int, record: KernelRecord) -> BuiltKernel[LoadedKernel]:
    """The kernel of a record, loaded on device `ordinal`. `find_loaded` finds it by its key until the process ends.

    Issues the warnings of the record: reasons why a dense kernel may be faster.
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
    """The loaded kernel of a key on a device; None if it is not loaded."""
    return _loaded().get((key, ordinal))


def loaded_keys() -> tuple[tuple[str, int], ...]:
    """Key and device ordinal of each kernel that is loaded in this process."""
    return tuple(_loaded())


@functools.cache
def _loaded() -> dict[tuple[str, int], BuiltKernel[LoadedKernel]]:
    return {}


@uncollected()
def build_record(problem: Problem, schedule: AnySchedule, target: str, why: Why | None = None) -> KernelRecord:
    """Compile and assemble. why: makes the record's reasons; None for a schedule that the caller names. Raises RuntimeError
    if the assembler spills registers or warns of lost performance.
    """
    # Imported here, because a start with a filled cache needs neither xDSL nor the assembler.
    from louver.compile.pipeline import compile_product
    from louver.ptx.assembler import assemble

    if isinstance(schedule, RegisterTiles):
        made, assembly = assemble_tiles(problem, schedule, target)
        compiled = made.tiles
    else:
        compiled = compile_product(problem, schedule, target)
        assembly = assemble(compiled.ptx, target)
    if not assembly.clean:
        raise RuntimeError(
            "a product's kernel must assemble without spills and serialized products, got "
            f"{'; '.join(assembly.faults)} (ptxas {assembly.version}, {problem}, {schedule}). Give the schedule "
            "a smaller tile, or the epilogue fewer arrays"
        )
    return record_made(compiled, assembly, given(problem, schedule, target) if why is None else why())


def assemble_tiles(
    problem: Problem, schedule: RegisterTiles, machine: str | None = None
) -> tuple[ProblemTiles, Assembly]:
    """The product as register tiles, and its assembly. If the epilogue leaves a thread too few registers, the tile is the
    largest half, quarter and so on of the schedule's with which it does not spill.

    machine: the target to assemble for, by default the schedule's.
    """
    from louver.choose.occupancy import with_room
    from louver.compile.compiled import CompiledKernel, CompiledTiles
    from louver.compile.problem_tiles import ProblemTiles, compile_problem_tiles

    found = with_room(CompiledKernel(compile_problem_tiles(problem, schedule)), None, machine)
    while not found.assembly.clean and (half := schedule.half) is not None:
        schedule = half
        found = with_room(CompiledKernel(compile_problem_tiles(problem, schedule)), None, machine)
    tiles = found.kernel.made
    assert isinstance(tiles, CompiledTiles)
    by_registers = ctas_of(tiles.target, found.registers, tiles.signature.threads, tiles.options.ctas)
    ctas = max(1, min(by_registers, tiles.ctas_by_shared))
    return ProblemTiles.of(problem, schedule, tiles, ctas), found.assembly


def product_key(problem: Problem, schedule: AnySchedule, target: str) -> str:
    """The key of the record of a product."""
    return problem_key(problem, schedule, target=target, ptxas=ptxas_version())


def record_of(problem: Problem, schedule: AnySchedule, target: str, why: Why | None = None) -> KernelRecord:
    """The product's record from the cache, built if it is missing. This needs no GPU, so any process can do it in
    advance. why: see `build_record`.
    """
    key = product_key(problem, schedule, target)
    return kernel_cache().get_or_build(key, lambda: build_record(problem, schedule, target, why))


def find(problem: Problem, schedule: AnySchedule, ordinal: int) -> BuiltKernel[LoadedKernel] | None:
    """The product's kernel if it is loaded on device `ordinal`; None if it must be compiled, or read from a file."""
    return find_loaded(product_key(problem, schedule, device(ordinal).target), ordinal)


def loaded(problem: Problem, schedule: AnySchedule, ordinal: int, why: Why | None = None) -> BuiltKernel[LoadedKernel]:
    """The product's kernel, loaded on device `ordinal`. `find` finds it until the process ends. why: see `build_record`."""
    target = device(ordinal).target
    return load_record(product_key(problem, schedule, target), ordinal, record_of(problem, schedule, target, why))


T = TypeVar("T")


def to_json(value: object) -> Any:
    """JSON values that `from_json` reads back. Sizes become texts. Fields that equality ignores are left out."""
    if isinstance(value, Polynomial):
        return str(value)
    if isinstance(value, tuple):
        return [to_json(each) for each in cast("tuple[object, ...]", value)]
    if is_dataclass(value) and not isinstance(value, type):
        return {name: to_json(getattr(value, name)) for name in _kept(type(value))}
    return value


def from_json(kind: type[T], facts: Mapping[str, Any]) -> T:
    """The object of a dataclass that `to_json` wrote."""
    hints = _hints(kind)
    return kind(**{name: _read(hints[name], each) for name, each in facts.items()})


@functools.cache
def _kept(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.compare)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _read(kind: Any, value: Any) -> Any:
    inner = get_args(kind)
    if value is None:
        return None
    if get_origin(kind) in (Union, UnionType):
        several = [each for each in inner if each is not NoneType]
        return _read(several[0] if len(several) == 1 else _fitting(several, value), value)
    if get_origin(kind) is tuple:
        kinds = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return tuple(map(_read, kinds, value))
    if kind is Polynomial:
        return Polynomial.parse(value)
    return from_json(cast("type[Any]", kind), value) if is_dataclass(kind) else value


def _fitting(kinds: list[Any], facts: Mapping[str, Any]) -> Any:
    """The dataclass with these fields."""
    for kind in kinds:
        if is_dataclass(kind) and set(_kept(kind)) == set(facts):
            return kind
    raise ValueError(f"expected the fields of {' or '.join(kind.__name__ for kind in kinds)}, got {', '.join(facts)}")
