"""What evidence is made of: the assembler's answer, a record's numbers, tables of targets."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from statistics import median
from typing import Any

from click.testing import CliRunner

from louver.cli import app
from louver.isa.targets import TARGETS, MmaFamily
from louver.ptx.assembler import AssemblyError, assemble

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "benchmarks" / "results"

GENERATIONS = ("sm_80", "sm_90a", "sm_100a", "sm_120a")
"""A target of each generation that the documents name: Ampere, Hopper, Blackwell, Blackwell for consumers."""

ORDERED: MmaFamily = "mma.sp::ordered_metadata"

NEWEST = "9.5"
"""The PTX ISA version of the texts."""


def registers(kind: str, count: int, first: int = 0) -> str:
    """A vector of registers as PTX writes it."""
    return "{" + ", ".join(f"%{kind}{index}" for index in range(first, first + count)) + "}"


@functools.cache
def error(statement: str, target: str, version: str = NEWEST) -> str:
    """What ptxas says about a statement in a kernel of its own; "" if it takes it.

    Registers: %r0 to %r299 and %f0 to %f299 of 32 bits, %d0 to %d7 of 64, the predicate %p.
    """
    text = (
        f".version {version}\n.target {target}\n.address_size 64\n.visible .entry k(.param .u64 p) {{\n"
        f".reg .b32 %r<300>; .reg .f32 %f<300>; .reg .b64 %d<8>; .reg .pred %p;\n{statement}\nret;\n}}\n"
    )
    try:
        assemble(text, target)
    except AssemblyError as refused:
        return _first(str(refused))
    return ""


def _first(log: str) -> str:
    """The first error of a log: the line below the one that names the target."""
    return log.splitlines()[1].strip()


def refused(statement: str, targets: Sequence[str] = GENERATIONS) -> str:
    """That ptxas takes the statement for none of the targets, with what it says for the first."""
    taken = [target for target in targets if not error(statement, target)]
    assert not taken, f"ptxas takes {statement} for {', '.join(taken)}"
    return f"ptxas refuses the text for {', '.join(targets)}: {error(statement, targets[0])}"


def taken(statement: str, targets: Sequence[str]) -> str:
    """That ptxas takes the statement for exactly these of the four generations and of `targets`."""
    asked = dict.fromkeys((*GENERATIONS, *targets))
    found = [target for target in asked if not error(statement, target)]
    assert sorted(found) == sorted(targets), f"ptxas takes {statement} for {found}, not {targets}"
    return f"ptxas takes it for {', '.join(targets)}"


def native(family: MmaFamily, element: str, kind: str = "") -> list[str]:
    """Targets on which a product is one machine instruction; `tests/cpu/isa/test_targets.py` asks ptxas."""
    return [name for name, known in TARGETS.items() if known.support(family, element, kind) == "native"]


def emulated(family: MmaFamily, element: str, kind: str = "") -> list[str]:
    """Targets for which the assembler builds a product from many instructions."""
    return [name for name, known in TARGETS.items() if known.support(family, element, kind) == "emulated"]


@functools.cache
def record(name: str) -> Mapping[str, Any]:
    """A record below benchmarks/results."""
    return json.loads((RECORDS / name).read_text(encoding="utf-8"))


def speeds(name: str, dtype: str | None = None, peer: str = "cublas") -> list[float]:
    """Speed over a peer of each product of a record that has both times."""
    return [
        row[f"{peer}_us"] / row["ours_us"]
        for row in record(name)["rows"]
        if row.get(f"{peer}_us") and row.get("ours_us") and dtype in (None, row["dtype"])
    ]


def spread(values: Iterable[float]) -> str:
    """The least, the median and the greatest."""
    ordered = sorted(values)
    return f"{ordered[0]:.2f} to {ordered[-1]:.2f} (median {median(ordered):.2f})"


def tflops(m: int, n: int, k: int, us: float) -> float:
    """Dense-equivalent TFLOP/s of a product."""
    return 2 * m * n * k / us / 1e6


def file_of(name: str) -> str:
    """A record as a place."""
    assert (RECORDS / name).exists(), name
    return f"`benchmarks/results/{name}`"


@functools.cache
def printed(*arguments: str) -> str:
    """What `louver` prints for arguments, run in the repository's root."""
    with chdir(ROOT):
        result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": None})
    assert result.exit_code == 0, result.output
    return result.stdout


def has(text: str, *parts: str) -> None:
    """That a text has each part."""
    missing = [part for part in parts if part not in text]
    assert not missing, f"not in the text: {missing}"
