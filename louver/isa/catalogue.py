"""The matrix products that have instruction objects, and what each target makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from louver.formats.dtypes import ElementTypeError, element_type, multiplied_as
from louver.isa.mma import ACCUMULATORS, SHORT_ACCUMULATORS, Mma, legal_k, pairs_of
from louver.isa.narrow import KINDS, Container
from louver.isa.rule import RuleError
from louver.isa.targets import TARGETS, MmaFamily, Support, Target
from louver.isa.wgmma import ACCUMULATORS as WARPGROUP_ACCUMULATORS
from louver.isa.wgmma import Wgmma, legal_n

SPARSE_FAMILIES: tuple[MmaFamily, ...] = ("mma.sp::ordered_metadata", "wgmma.sp", "tcgen05.sp")
"""Families of sparse products, without the form of `mma.sp` that Louver never emits."""


def warp_shapes() -> Iterator[Mma]:
    """Every shape of a warp's products of types that tensors have, selector 0."""
    for (a, b), sums in ACCUMULATORS.items():
        for d in sums:
            for sparse in (False, True):
                yield from (Mma(a, b, d, k, sparse) for k in legal_k(a, sparse))


def narrow_shapes() -> Iterator[Mma]:
    """Every shape of a warp's products of other types, and with scales, selectors 0."""
    for (a, b), sums in SHORT_ACCUMULATORS.items():
        for sparse in (False, True):
            yield from (Mma(a, b, d, k, sparse) for d in sums for k in legal_k(a, sparse))
    for kind, known in KINDS.items():
        for scale in dict(known.scales) or ("",):
            for (a, b), sums in pairs_of(kind).items():
                yield from (Mma(a, b, d, legal_k(a, True, kind)[0], True, kind=kind, scale=scale) for d in sums)


def warpgroup_shapes() -> Iterator[Wgmma]:
    """Every type of a warpgroup's products, of the greatest n."""
    for (a, b), sums in WARPGROUP_ACCUMULATORS.items():
        for d in sums:
            yield from (Wgmma(legal_n(a)[-1], a, b, d, sparse) for sparse in (False, True))


@dataclass(frozen=True, slots=True)
class Offer:
    """Products of a target that differ only in shape and in the types of B and D.

    unit: family and kind, as PTX names them. pattern: of A, "" if it is dense. shapes: such as "m16n8k32"; n of warpgroup
    products is the greatest.
    min_ptx: least PTX ISA version of all. support: whether one machine instruction does each.
    """

    unit: str
    a: str
    b: tuple[str, ...]
    d: tuple[str, ...]
    shapes: tuple[str, ...]
    pattern: str
    min_ptx: tuple[int, int]
    support: Support


def offers(machine: Target, *, sparse: bool = False, element: str | None = None) -> list[Offer]:
    """What a target multiplies by instruction objects. sparse: only products of a sparse A. element: only A of that type.

    Raises ValueError if there is nothing, with the first target that has it.
    """
    name = None if element is None else _element(element)
    found = list(_offers(machine, sparse, name))
    if not found:
        kind, of = "sparse products" if sparse else "products", "" if name is None else f" of {name}"
        first = next((other.name for other in TARGETS.values() if any(_offers(other, sparse, name))), "none yet")
        raise RuleError(f"the first target with {kind}{of} is {first}, got {machine.name}, which has none")
    return found


def without_objects(machine: Target, element: str | None = None) -> dict[str, tuple[str, ...]]:
    """Types by unit of the sparse products that a target has and Louver cannot emit yet."""
    emitted = {form.family for form in _every_shape()}
    name = None if element is None else _element(element)
    return {
        unit.name: types
        for unit in machine.units
        if unit.family in SPARSE_FAMILIES and unit.family not in emitted
        if (types := tuple(each for each in unit.native if name in (None, each)))
    }


def _offers(machine: Target, sparse: bool, element: str | None) -> Iterator[Offer]:
    """By units, newest first."""
    groups: dict[tuple[str, str], list[Mma | Wgmma]] = {}
    for form in _every_shape():
        if form.sparse >= sparse and element in (None, form.a) and machine.provides(form.requires.target):
            groups.setdefault((form.unit, form.a), []).append(form)
    order = [unit.name for unit in reversed(machine.units)]
    for unit, a in sorted(groups, key=lambda group: order.index(group[0])):
        forms = groups[unit, a]
        support = machine.support(forms[0].family, a, forms[0].kind if isinstance(forms[0], Mma) else "")
        assert support is not None
        yield Offer(
            unit,
            a,
            tuple(dict.fromkeys(form.b for form in forms)),
            tuple(dict.fromkeys(form.d for form in forms)),
            tuple(dict.fromkeys(form.shape for form in forms)),
            _pattern(forms[0]),
            max(machine.min_ptx, *(form.requires.ptx for form in forms)),
            support,
        )


def _every_shape() -> Iterator[Mma | Wgmma]:
    yield from (*warpgroup_shapes(), *warp_shapes(), *narrow_shapes())


def _pattern(form: Mma | Wgmma) -> str:
    if not form.sparse:
        return ""
    if form.a == "tf32":
        return "1:2"
    return "4:8 in pairs" if isinstance(form, Mma) and Container.of(form.a, form.kind).count == 2 else "2:4"


def element_types() -> tuple[str, ...]:
    """The types that some target multiplies."""
    units = [unit for machine in TARGETS.values() for unit in machine.units]
    return tuple(dict.fromkeys(each for unit in units for each in (*unit.native, *unit.emulated)))


def _element(name: str) -> str:
    """The name of an element type that some target multiplies. Raises ValueError with the known ones."""
    known = element_types()
    if name in known:
        return name
    try:
        found = multiplied_as(element_type(name).name)
    except ElementTypeError:
        found = ""
    if found not in known:
        raise RuleError(f"tensor cores multiply {', '.join(known)}, got {name!r}")
    return found
