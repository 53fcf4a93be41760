"""Users' kernels compiled: by the pipeline and ptxas or from the cache on disk, and loaded on a device."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Literal, TypeAlias

from louver.compile.plan.schedule import Schedule
from louver.frontend.transposed import LENGTH
from louver.ir.product import ProductNest, require_sparse
from louver.isa.targets import target as machine
from louver.library.compiled import BuiltKernel, find_loaded, load_record, record_made
from louver.ptx.assembler import ptxas_version
from louver.runtime.cache import KernelRecord, kernel_cache, problem_key
from louver.runtime.device import device
from louver.runtime.module import LoadedKernel
from louver.user.arguments import Call, Kind
from louver.user.hints import Hints
from louver.user.retile import SM_COUNT, Sized, sized
from louver.user.source import TileSource

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from louver.compile.choose_family import CompiledKernel
    from louver.user.occupancy import Assembled


class UncleanKernelError(RuntimeError):
    """A product that the assembler spills, or whose products do not stay in flight: with smaller tiles it may do."""


Variant: TypeAlias = Literal["bulk", "direct", "tiles"]
"""The copies that a call's alignment leaves: bulk copies that store the output too, that only read, or none at all, of register tiles either."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A kernel that is to be compiled: everything that goes into its key. source: not compared, its `key` is.

    multiples: arguments of the call that are multiples of 16, see `multiples_of`: register tiles are made for them, products are not.
    apart: its arrays that share no memory with another one, see `apart_of`: of register tiles too.
    ctas: CTAs of the call that share an SM at most, see `ctas_of`: of register tiles too.
    schedule: a product's; None leaves it to `sized`, if there is such, and else to the kernel's own tile. sized: is not compared.
    """

    source: TileSource
    kind: Kind
    hints: Hints
    variant: Variant
    target: str
    multiples: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    ctas: int | None = None
    schedule: Schedule | None = None
    sized: Sized | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(
        cls,
        source: TileSource,
        hints: Hints,
        call: Call,
        variant: Variant,
        target: str,
        grid: Sequence[int] = (),
        sm_count: int = SM_COUNT,
        *,
        schedule: Schedule | None = None,
    ) -> Wanted:
        """The kernel for a call. grid: empty where nobody knows it."""
        marks = multiples_of(call), apart_of(call), ctas_of(grid, sm_count)
        return cls(
            source, call.kind, hints, variant, target, *marks, schedule=schedule, sized=sized(call, grid, sm_count)
        )

    @property
    def key(self) -> str:
        """The key of its record on disk."""
        return self._key(self.multiples, self.apart, self.ctas)

    @property
    def product_key(self) -> str:
        """The key that it has too if it is a product, whatever its multiples and arrays apart."""
        return self._key(None, None, None)

    def _key(self, *marks: tuple[str, ...] | int | None) -> str:
        return problem_key(
            "user kernel",
            self.source.key,
            self.kind.to_json(),
            self.hints,
            self.variant,
            *marks,
            self.schedule,
            target=self.target,
            ptxas=ptxas_version(),
        )


def compile_wanted(wanted: Wanted) -> CompiledKernel:
    """The kernel at every level. Raises UnsupportedKernelError, with the operation and its line, or ValueError with the rule."""
    # A warm start reads the record from disk and needs neither xDSL nor Triton's compiler.
    from louver.compile.choose_family import Choice, Reading, compile_kernel
    from louver.library.configure import choose_for_nest

    fixed = dict(wanted.hints.schedule)

    def schedule(nest: ProductNest) -> Schedule:
        require_sparse(nest)
        target, aligned = machine(wanted.target), wanted.variant == "bulk"
        found = wanted.schedule
        if found is None and wanted.sized is not None and not fixed:
            found = wanted.sized(nest, target, aligned)
        return found or choose_for_nest(nest, target, aligned_output=aligned, fixed=fixed)

    def readings(ones: int) -> Iterator[Reading]:
        return (functools.partial(_tile_ir, wanted, kind) for kind in _with_fewer_ones(wanted.kind, ones))

    choice = Choice(
        schedule,
        wanted.target,
        fixed=tuple(fixed),
        warps=wanted.hints.warps,
        multiples=wanted.multiples,
        apart=wanted.apart,
        ctas=wanted.ctas,
        refused=UNALIGNED if wanted.variant == "tiles" else CHOSEN if wanted.hints.family else None,
        boxes=wanted.variant != "tiles",
    )
    return compile_kernel(readings, choice)


def _tile_ir(wanted: Wanted, kind: Kind) -> ModuleOp:
    return wanted.source.tile_ir(dict(kind.signature), dict(kind.constexprs), dict(kind.sparse), wanted.target)


def _with_fewer_ones(kind: Kind, count: int) -> Iterator[Kind]:
    """The same call with so many of the integers that are 1 passed when the kernel is launched."""
    for names in itertools.combinations(kind.ones, count):
        changed = kind
        for name in names:
            changed = changed.without_one(name)
        yield changed


UNALIGNED = "bulk copies read operands whose address and strides are multiples of 16 bytes, and this call's are not"
"""The reason why a call of a product runs by register tiles."""

CHOSEN = "the hint family asks for register tiles"
"""The same, where the user wants it."""


def assembled(wanted: Wanted, kernel: CompiledKernel | None = None) -> Assembled:
    """The kernel that a launch runs. kernel: what `compile_wanted` made, if it is at hand.

    Raises as `compile_wanted`, and UncleanKernelError when the assembler warns of a product's lost performance, or spills its registers.
    """
    from louver.compile.products import CompiledProduct
    from louver.user.occupancy import with_room

    found = with_room(compile_wanted(wanted) if kernel is None else kernel, wanted.hints.warps)
    made, assembly = found.kernel.made, found.assembly
    if assembly.clean or not isinstance(made, CompiledProduct):
        return found
    if wanted.schedule or wanted.sized:
        # The epilogue leaves no room for the library's tile: the kernel's own is smaller.
        return assembled(replace(wanted, schedule=None, sized=None))
    raise UncleanKernelError(
        f"a product must assemble without spills and serialized products; {wanted.source.name} does not: "
        f"{'; '.join(assembly.faults)} (ptxas {assembly.version}, {made.schedule}). Give the kernel a smaller "
        f"tile, or its epilogue fewer arrays{_without(wanted.hints)}"
    )


def build_record(wanted: Wanted) -> KernelRecord:
    """Compile and assemble. Raises as `assembled`."""
    from louver.user.units import reasons_for_dense

    found = assembled(wanted)
    return record_made(
        found.kernel.made,
        found.assembly,
        refusal=found.kernel.refusal,
        registers=found.assembly.kernels[0].registers,
        spilled_bytes=found.spilled,
        warnings=reasons_for_dense(found),
    )


def _without(hints: Hints) -> str:
    return f", or leave out the hints {', '.join(name for name, _ in hints.schedule)}" if hints.schedule else ""


def multiples_of(call: Call) -> tuple[str, ...]:
    """The arguments of a call that are multiples of 16: addresses in bytes, and integers that are not compiled in.

    Sizes and strides of descriptors are among them, as `x.shape.0` and `x.stride.0`.
    """
    arrays = [name for name, array in call.arrays.items() if array.address % 16 == 0]
    passed = dict(call.kind.signature)

    def is_passed(name: str) -> bool:
        base, *part = name.rsplit(".", 2)
        described = len(part) == 2 and passed.get(base, "").startswith("tensordesc<")
        return name in passed or name.endswith(LENGTH) or described

    numbers = [
        name for name, value in call.numbers.items() if is_passed(name) and type(value) is int and value % 16 == 0
    ]
    return tuple(sorted([*arrays, *numbers]))


def apart_of(call: Call) -> tuple[str, ...]:
    """The arrays of a call whose range of addresses no other array of it reaches into."""
    ranges = {name: array.byte_range for name, array in call.arrays.items()}

    def is_apart(name: str) -> bool:
        first, end = ranges[name]
        return all(other == name or end <= start or stop <= first for other, (start, stop) in ranges.items())

    return tuple(sorted(filter(is_apart, ranges)))


FEW_CTAS = 2
"""CTAs that share an SM, at most, where a kernel is made for so many. More of them leave each the room that registers do."""


def ctas_of(grid: Sequence[int], sm_count: int) -> int | None:
    """The most CTAs of a launch that share an SM; None where they are more than `FEW_CTAS`, or nobody knows the grid."""
    count = -(-prod(grid) // sm_count) if grid else None
    return None if count is None or count > FEW_CTAS else count


def record_of(wanted: Wanted) -> KernelRecord:
    """The kernel's record from the cache, built when it is missing. Needs no GPU, so any process may do it ahead."""
    cache = kernel_cache()

    def build() -> KernelRecord:
        record = build_record(wanted)
        if is_product(record):
            cache.put(wanted.product_key, record)
        return record

    return cache.get(wanted.product_key) or cache.get_or_build(wanted.key, build)


def is_product(record: KernelRecord) -> bool:
    """Whether a record is of a product, or of register tiles."""
    return record.launch["schedule"] is not None


def find(wanted: Wanted, ordinal: int) -> BuiltKernel[LoadedKernel] | None:
    """The kernel if device `ordinal` has it already; None where it must be compiled, or read from a file."""
    return find_loaded(wanted.product_key, ordinal) or find_loaded(wanted.key, ordinal)


def loaded(wanted: Wanted, ordinal: int) -> BuiltKernel[LoadedKernel]:
    """The kernel, ready to launch on device `ordinal`, where `find` finds it for the life of the process."""
    record = record_of(wanted)
    return load_record(wanted.product_key if is_product(record) else wanted.key, ordinal, record)


def target_of(ordinal: int) -> str:
    """The target of a device."""
    return device(ordinal).target
