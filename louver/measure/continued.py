"""Reads a record that another run continues, and checks that its rows are comparable with new rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from louver.measure.measurement import Measurement
from louver.measure.problems import GemmProblem
from louver.measure.protocol import Protocol
from louver.measure.record import DATA
from louver.measure.report.gemm import GemmRow
from louver.measure.report.header import header_of, read_record


@dataclass(frozen=True, slots=True)
class Continued:
    """date: of the run that began the record. taken: rows by index of their problem, with their commit if it differs."""

    date: str
    taken: Mapping[int, Measurement]


def read_continued(
    path: Path, header: Mapping[str, Any], protocol: Protocol, wanted: Sequence[GemmProblem]
) -> Continued:
    """Read a record that a run of these problems may continue. header: of the run, from `machine.header`.

    Raises OSError without the file, and ValueError for rows that the run does not measure. It also raises ValueError if
    the GPU, the protocol, the data or a version other than Louver's commit differs.
    """
    found = read_record(path, "gemm", _found)
    begun = found.facts
    now = _facts(header["device"], header["versions"], protocol.describe(), DATA)
    for name in sorted({*begun, *now}):
        before, here = begun.get(name, "none"), now.get(name, "none")
        if before != here:
            raise ValueError(
                f"all rows of a record have the same {name}, here {here}, got {before} in {path.name}: continue it where it was begun, or "
                "begin another without --continue"
            )
    indices = {_identity(problem): index for index, problem in enumerate(wanted)}
    strange = [taken.row for taken in found.rows if _identity(taken.row) not in indices]
    if strange:
        shape = "×".join(map(str, strange[0].shape))
        raise ValueError(
            f"a run measures all problems of the record that it continues, got {shape} {strange[0].types} in {path.name}: give the "
            "record's --suite or --shapes, --dtype and --accumulate"
        )
    here = header["versions"].get("commit", "")
    marked = (_of_commit(taken, taken.commit or found.commit, here) for taken in found.rows)
    return Continued(found.date, {indices[_identity(taken.row)]: taken for taken in marked})


def _of_commit(taken: Measurement, commit: str, here: str) -> Measurement:
    """The row with its commit, or without it if both commits are equal and the checkout has no changes ("…+")."""
    return replace(taken, commit="" if commit == here and not commit.endswith("+") else commit)


@dataclass(frozen=True, slots=True)
class _Found:
    facts: Mapping[str, str]
    date: str
    commit: str
    rows: tuple[Measurement, ...]


def _found(data: Mapping[str, Any]) -> _Found:
    device, versions, protocol = header_of(data, "gemm")
    rows = tuple(Measurement.from_json(row) for row in data["rows"])
    facts = _facts(device, versions, protocol, str(data["data"]))
    return _Found(facts, str(data["date"]), versions.get("commit", ""), rows)


def _facts(device: str, versions: Mapping[str, str], protocol: str, data: str) -> dict[str, str]:
    return {"device": device, **versions, "protocol": protocol, "data": data, "commit": ""}


def _identity(problem: GemmProblem | GemmRow) -> tuple[Any, ...]:
    return problem.shape, problem.dtype, problem.out, problem.accumulate
