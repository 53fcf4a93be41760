"""`louver isa`: the targets, and the matrix products of one."""

from __future__ import annotations

from dataclasses import asdict

from louver.isa.catalogue import SPARSE_FAMILIES, Offer, element_types, offers, without_objects
from louver.isa.targets import TARGETS, Target
from louver.isa.targets import target as machine
from louver.measure.report.table import NONE, Column, Result, Table, folded, right


def list_products(target: str, *, sparse: bool, dtype: str | None) -> Result:
    """What a target multiplies. Raises ValueError if it is unknown or has nothing of that kind."""
    known = machine(target)
    found = offers(known, sparse=sparse, element=dtype)
    later = without_objects(known, dtype)
    data = {
        "target": known.name,
        "products": [asdict(each) | {"min_ptx": _version(each.min_ptx)} for each in found],
        "not_emitted": {unit: list(types) for unit, types in later.items()},
    }
    columns = (*folded("unit"), *map(Column, ("A", "B", "sums", "shapes", "PTX", "machine code")))
    rows = [
        (
            each.unit,
            ", ".join(filter(None, (each.a, each.pattern))),
            ", ".join(each.b),
            ", ".join(each.d),
            ", ".join(each.shapes),
            _version(each.min_ptx),
            each.support,
        )
        for each in found
    ]
    said = [f"Louver does not emit {unit} yet ({', '.join(types)})." for unit, types in later.items()]
    title = f"{known.name}{f' ({known.cards})' if known.cards else ''}"
    return Result("isa", data, [Table(title, columns, rows), *said])


def list_targets() -> Result:
    """All targets."""
    data = {"targets": [_facts(each) for each in TARGETS.values()]}
    products = folded("native sparse types", "emulated", "Louver runs")
    columns = (Column("target"), *folded("cards"), *right("PTX", "KiB a CTA"), *products, Column("speed"))
    rows = [
        (
            each.name,
            each.cards or NONE,
            _version(each.min_ptx),
            f"{each.max_shared_bytes // 1024}",
            ", ".join(_types(each, "native")),
            ", ".join(_types(each, "emulated")) or NONE,
            ", ".join(_units(each)),
            f"measured: {each.measured}" if each.measured else "not measured",
        )
        for each in TARGETS.values()
    ]
    return Result("targets", data, [Table("", columns, rows)])


def _facts(known: Target) -> dict[str, object]:
    return {
        "name": known.name,
        "cards": known.cards,
        "min_ptx": _version(known.min_ptx),
        "shared_bytes": known.max_shared_bytes,
        "sm_threads": known.sm_threads,
        "sm_ctas": known.sm_ctas,
        "native": _types(known, "native"),
        "emulated": _types(known, "emulated"),
        "units": _units(known),
        "measured": known.measured or None,
    }


def _sparse(known: Target) -> list[Offer]:
    return offers(known, sparse=True)


def _types(known: Target, support: str) -> list[str]:
    """Types with sparse products that Louver emits. A type that one unit has natively is native."""
    native = {each.a for each in _sparse(known) if each.support == "native"}
    wanted = native if support == "native" else {each.a for each in _sparse(known)} - native
    return [each for each in element_types() if each in wanted]


def _units(known: Target) -> list[str]:
    """Families of sparse products that Louver emits."""
    found = {each.unit.partition(".kind::")[0] for each in _sparse(known)}
    return [family for family in SPARSE_FAMILIES if family in found]


def _version(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
