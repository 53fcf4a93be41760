"""Users' kernels, compiled by the pipeline and ptxas or read from the cache on disk, and loaded on a device."""

from __future__ import annotations

import functools
import linecache
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Literal, TypeAlias

from louver.compile.needs import Fits, Needs, fits_any
from louver.compile.plan.schedule import Schedule
from louver.compile.uncollected import uncollected
from louver.ir.computed import LENGTH
from louver.ir.product import ProductNest, require_rows
from louver.isa.targets import target as machine
from louver.library.compiled import BuiltKernel, Launch, find_loaded, from_json, load_record, record_made, to_json
from louver.ptx.assembler import ptxas_version
from louver.runtime.cache import KernelRecord, kernel_cache, problem_key, ptx_hash
from louver.runtime.device import device
from louver.runtime.module import LoadedKernel
from louver.user.arguments import Call, Kind
from louver.user.explanation import SHARED
from louver.user.hints import Hints
from louver.user.reached import reached
from louver.user.retile import SM_COUNT, Sized
from louver.user.source import TileSource

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from louver.choose.occupancy import Assembled
    from louver.compile.compiled import CompiledKernel


class UncleanKernelError(RuntimeError):
    """A product that spills or whose `wgmma` are serialized. Smaller tiles may avoid it."""


Variant: TypeAlias = Literal["bulk", "direct", "boxed", "shared", "tiles", "parted", "computed"]
"""Copies that a call's alignment allows: bulk loads and stores, or bulk loads. The others are register tiles: with bulk copies
("boxed", or "shared" for a product of few tiles), without them ("tiles"), for parts of matrices ("parted"), or with computed addresses of all sparse tiles ("computed")."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A kernel to compile: all inputs of its key. source: compared by its `key`.

    multiples: arguments that are multiples of 16, see `multiples_of`. apart: arrays that overlap no other one, see
        `apart_of`. ctas: most CTAs of the call on an SM, see `ctas_of`. matrices: see `matrices_of`. These four affect register
        tiles only.
    schedule: of a product; None: that of `sized`, else the kernel's own tile. found: arguments whose pattern was found, not
    promised. fits: raises an error if the call does not fit what the kernel needs; asked before the kernel is lowered. sized, found
        and fits: not compared.
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
    found: tuple[str, ...] = field(default=(), compare=False)
    matrices: tuple[str, ...] = ()
    fits: Fits = field(default=fits_any, compare=False, repr=False)

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
        fits: Fits = fits_any,
    ) -> Wanted:
        """The kernel for a call. grid: empty if unknown."""
        marks = multiples_of(call), apart_of(call), ctas_of(grid, sm_count)
        return cls(
            source,
            call.kind,
            hints,
            variant,
            target,
            *marks,
            schedule=schedule,
            sized=Sized.of(call, grid, sm_count),
            found=call.found,
            matrices=matrices_of(call),
            fits=fits,
        )

    @property
    def key(self) -> str:
        """The key of its record on disk."""
        return self._key(self.multiples, self.apart, self.ctas, *([self.matrices] if self.matrices else ()))

    @property
    def product_key(self) -> str:
        """A second key if it is a product. It does not depend on what affects register tiles only."""
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


@uncollected()
def compile_wanted(wanted: Wanted) -> CompiledKernel:
    """The kernel at every level. Raises as `_compiled`."""
    return _flagged(_compiled(wanted), wanted)


def _flagged(kernel: CompiledKernel, wanted: Wanted) -> CompiledKernel:
    runs_if = wanted.kind.runs_if
    return kernel if runs_if is None else kernel.flagged(runs_if)


def _compiled(wanted: Wanted) -> CompiledKernel:
    """The kernel without a flag. Raises UnsupportedKernelError with operation and line, or ValueError with the rule, and the error
    of `wanted.fits`.
    """
    # Imported here: a warm start reads the record from disk and needs neither xDSL nor Triton's compiler.
    from louver.choose.configure import choose_for_nest
    from louver.compile.compiled import TileOptions
    from louver.compile.pipeline import Choice, Readings, compile_kernel
    from louver.compile.rewrite.compile_in import compile_in
    from louver.ir.tile.multiples import MULTIPLE

    fixed = dict(wanted.hints.schedule)

    def schedule(nest: ProductNest) -> Schedule:
        require_rows(nest)
        target, aligned = machine(wanted.target), wanted.variant == "bulk"
        found = wanted.schedule
        if found is None and wanted.sized is not None and not fixed:
            found = wanted.sized.schedule(nest, target, aligned)
        return found or choose_for_nest(nest, target, aligned_output=aligned, fixed=fixed)

    def read(passed: tuple[str, ...]) -> ModuleOp:
        kind = functools.reduce(Kind.without_one, passed, wanted.kind)
        module = wanted.source.tile_ir(dict(kind.signature), dict(kind.constexprs), dict(kind.sparse), wanted.target)
        compile_in(module, dict.fromkeys(kind.typed_ones, 1) | dict.fromkeys(kind.zeros, 0))
        return module

    choice = Choice(
        schedule,
        wanted.target,
        fixed=tuple(fixed),
        options=TileOptions(
            asked=wanted.hints.warps,
            boxes=wanted.variant != "tiles",
            ctas=wanted.ctas,
            parted=wanted.variant == "parted",
        ),
        multiples={**dict.fromkeys(wanted.multiples, MULTIPLE), **dict(wanted.kind.divisors)},
        apart=wanted.apart,
        matrices=wanted.matrices,
        refused=_REFUSED.get(wanted.variant, CHOSEN if wanted.hints.family else None),
        computed=wanted.variant == "computed",
        fits=wanted.fits,
        line=functools.partial(_line, wanted),
    )
    return compile_kernel(Readings(read, wanted.kind.ones), choice)


def _line(wanted: Wanted, place: str) -> str | None:
    """The user's line at "file:line:column", if the file is one of the kernel's functions. Constants may be functions, too."""
    file, line, _ = place.rsplit(":", 2)
    passed = reached(tuple(value for _, value in wanted.kind.constexprs)).files
    return linecache.getline(file, int(line)).strip() if file in (*wanted.source.files, *passed) else None


UNALIGNED = "bulk copies read operands whose address and strides are multiples of 16 bytes, and this call's are not"
"""Why a product's call runs by register tiles."""

ADDRESSED = "the call's tiles of a sparse tensor are not those that the kernel describes"
"""Why a call runs by register tiles that compute addresses."""

PARTED = "the call multiplies parts of its arrays, and the kernel describes a product of whole matrices"
"""Why a call whose arrays bulk copies can read runs by register tiles."""

_REFUSED = {"shared": SHARED, "boxed": PARTED, "parted": PARTED, "tiles": UNALIGNED, "computed": ADDRESSED}

CHOSEN = "the hint family asks for register tiles"
"""Why a call runs by register tiles at the user's request."""


@uncollected()
def assembled(wanted: Wanted, kernel: CompiledKernel | None = None) -> Assembled:
    """The kernel that a launch runs. kernel: the result of `compile_wanted`, if available, without a flag. Raises as `compile_wanted`,
    and UncleanKernelError if a product spills or the assembler warns of lost performance.
    """
    from louver.choose.occupancy import Assembled, with_room
    from louver.compile.compiled import CompiledProduct

    found = with_room(_compiled(wanted) if kernel is None else kernel, wanted.hints.warps)
    if wanted.kind.runs_if is not None:
        # The numbers of warps and CTAs are found by compiling again, which knows no flag.
        found = Assembled.of(_flagged(found.kernel, wanted))
    made, assembly = found.kernel.made, found.assembly
    if assembly.clean or not isinstance(made, CompiledProduct):
        return found
    if wanted.schedule or wanted.sized:
        # The epilogue leaves no room for the library's tile. The kernel's own tile is smaller.
        return assembled(replace(wanted, schedule=None, sized=None))
    raise UncleanKernelError(
        f"a product must assemble without spills and serialized products; {wanted.source.name} does not: "
        f"{'; '.join(assembly.faults)} (ptxas {assembly.version}, {made.schedule}). Give the kernel a smaller "
        f"tile, or its epilogue fewer arrays{_without(wanted.hints)}"
    )


@uncollected()
def build_record(wanted: Wanted) -> KernelRecord:
    """Compile and assemble, or take the cubin of a product whose PTX is known. Raises as `assembled`."""
    from louver.compile.compiled import CompiledProduct
    from louver.user.explained import reasons_of, reasons_of_product
    from louver.user.units import reasons_for_dense

    kernel = _compiled(wanted)
    if isinstance(kernel.made, CompiledProduct) and wanted.kind.runs_if is None:
        # Products of one schedule differ in the tile of the user's kernel at most, which is not in the PTX.
        known = kernel_cache().with_text(ptx_hash(kernel.made.ptx, ptxas=ptxas_version()))
        if known is not None:
            return replace(known, launch=to_json(Launch.of(kernel.made, reasons_of_product(kernel.made, wanted))))
    found = assembled(wanted, kernel)
    return record_made(
        found.kernel.made,
        found.assembly,
        reasons_of(found, wanted),
        refusal=found.kernel.refusal,
        registers=found.assembly.kernels[0].registers,
        spilled_bytes=found.spilled,
        warnings=reasons_for_dense(found),
    )


def _without(hints: Hints) -> str:
    return f", or leave out the hints {', '.join(name for name, _ in hints.schedule)}" if hints.schedule else ""


def multiples_of(call: Call) -> tuple[str, ...]:
    """The arguments of a call that are multiples of 16: addresses in bytes, and integers that are not compiled in, such
    as sizes and strides of descriptors (`x.shape.0`, `x.stride.0`).
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


def matrices_of(call: Call) -> tuple[str, ...]:
    """The sparse tensors of a call that have two dimensions and are sparse along the first one."""
    return tuple(sorted(name for name, s in call.sparse.items() if s.ndim == 2 and s.axis == 0))


def apart_of(call: Call) -> tuple[str, ...]:
    """The arrays of a call whose address range overlaps no other array of the call."""
    ranges = {name: array.byte_range for name, array in call.arrays.items()}

    def is_apart(name: str) -> bool:
        first, end = ranges[name]
        return all(other == name or end <= start or stop <= first for other, (start, stop) in ranges.items())

    return tuple(sorted(filter(is_apart, ranges)))


FEW_CTAS = 3
"""Most CTAs on an SM for which a kernel is specialized. With more CTAs the registers set the limit."""


def ctas_of(grid: Sequence[int], sm_count: int) -> int | None:
    """The most CTAs of a launch on an SM; None above `FEW_CTAS` or for an unknown grid."""
    count = -(-prod(grid) // sm_count) if grid else None
    return None if count is None or count > FEW_CTAS else count


@dataclass(frozen=True, slots=True)
class AddressIntegers:
    """Integers of a call that decide where its sparse tiles are. No other integer that is compiled in changes how a kernel reads
    them.

    all: see `address_arguments`. hidden: those whose 1 may hide a form, see `Ones`: not the distance between neighbours, without which
        no tile is described, and no flag.
    """

    all: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()

    @classmethod
    def of(cls, source: TileSource, kind: Kind, target: str) -> AddressIntegers:
        """Those of a call, kept beside what kernels need of a call."""
        if not (kind.ones or kind.zeros):
            return cls()
        cache, passed = kernel_cache(), kind.passed()
        key = problem_key(
            "address integers", source.key, passed.to_json(), kind.ones, target=target, ptxas=ptxas_version()
        )
        found = cache.needs(key)
        if found is not None:
            return from_json(cls, found)
        made = cls._read(source, passed, kind.ones, target)
        cache.put_needs(key, to_json(made))
        return made

    @classmethod
    def _read(cls, source: TileSource, passed: Kind, ones: tuple[str, ...], target: str) -> AddressIntegers:
        from louver.analysis.address_integers import address_arguments
        from louver.analysis.sizes_of_one import Ones
        from louver.compile.defect import is_foreign
        from louver.ir.tile import FuncOp

        try:
            module = source.tile_ir(dict(passed.signature), dict(passed.constexprs), dict(passed.sparse), target)
        except Exception as error:
            if not (isinstance(error, ValueError) or is_foreign(error)):
                raise
            # Some integer must be compiled in. Any may be one of these.
            return cls(tuple(name for name, _ in passed.signature), ones)
        (kernel,) = (op for op in module.body.ops if isinstance(op, FuncOp) and op.is_public)
        used, freed = address_arguments(kernel, dict(passed.sparse)), Ones.of(kernel, ones)
        return cls(tuple(sorted(used)), tuple(sorted(used & {*freed.sizes, *freed.pitches})))


def needs_of(wanted: Wanted) -> Needs | None:
    """What the kernel needs of a call, if an earlier call did not fulfil it before the kernel was lowered; else None."""
    cache = kernel_cache()
    found = cache.needs(wanted.product_key) or cache.needs(wanted.key)
    return None if found is None else from_json(Needs, found)


def record_of(wanted: Wanted) -> KernelRecord:
    """The kernel's record from the cache, built if missing. Needs no GPU, so another process may build it in advance.

    Raises the error of `wanted.fits` for a kernel that is built, and keeps what it needs: see `needs_of`.
    """
    cache, key = kernel_cache(), wanted.key

    def require_unchanged() -> None:
        if wanted.key != key:
            raise RuntimeError(
                f"{wanted.source.name} is compiled of globals that stay as they are, got a change while it was compiled: call it again"
            )

    def fits(needs: Needs) -> None:
        try:
            wanted.fits(needs)
        except Exception:
            require_unchanged()
            cache.put_needs(wanted.product_key if isinstance(needs.checked, ProductNest) else key, to_json(needs))
            raise

    def build() -> KernelRecord:
        record = build_record(replace(wanted, fits=fits))
        require_unchanged()
        if is_product(record):
            cache.put(wanted.product_key, record)
        return record

    return cache.get(wanted.product_key) or cache.get_or_build(key, build)


def is_product(record: KernelRecord) -> bool:
    """Whether the record is of a product, not of register tiles."""
    return record.launch["schedule"] is not None


def find(wanted: Wanted, ordinal: int) -> BuiltKernel[LoadedKernel] | None:
    """The kernel if device `ordinal` has loaded it, else None."""
    return find_loaded(wanted.product_key, ordinal) or find_loaded(wanted.key, ordinal)


def loaded(wanted: Wanted, ordinal: int) -> BuiltKernel[LoadedKernel]:
    """The kernel, loaded on device `ordinal` for the life of the process; `find` then finds it."""
    record = record_of(wanted)
    return load_record(wanted.product_key if is_product(record) else wanted.key, ordinal, record)


def target_of(ordinal: int) -> str:
    """The target of a device."""
    return device(ordinal).target
