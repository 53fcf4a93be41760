"""Records as files, written completely or not at all, and the record that a run continues."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from louver.formats.regular import Target
from louver.measure.host import PROTOCOL, HostTimes
from louver.measure.measurement import Measurement
from louver.measure.operands import INT8_MOST, INT8_SCALE
from louver.measure.problems import GemmProblem
from louver.measure.protocol import Protocol
from louver.measure.report.gemm import GemmRow
from louver.measure.report.header import SCHEMA, header_of, read_record

DATA = (
    "random normal weights pruned by magnitude to 2:4, of f32 to 1:2 (the dense product reads them with their zeros), random normal x; "
    f"s8: normal numbers times {INT8_SCALE:g}, cut to ±{INT8_MOST}, of which some f16 results are out of range"
)


def gemm_record(
    header: Mapping[str, Any], protocol: Protocol, rows: Sequence[Measurement], missing: Sequence[str] = ()
) -> dict[str, Any]:
    """A record of products: `louver.measure.report.gemm`. header: from `machine.header`. missing: unmeasured problems."""
    record: dict[str, Any] = {"schema": SCHEMA, "kind": "gemm", **header, "protocol": protocol.describe(), "data": DATA}
    if any(row.sustained for row in rows):
        record["sustained_protocol"] = (
            f"graph replays for {protocol.sustained_seconds:g} s after {protocol.settle_seconds:g} s of the same; mean "
            "clocks.sm and power.draw.instant of nvidia-smi meanwhile"
        )
    if missing:
        record["missing"] = {"reason": "the time that the run was given ended", "problems": list(missing)}
    return {**record, "rows": [row.to_json() for row in rows]}


def host_record(header: Mapping[str, Any], found: HostTimes) -> dict[str, Any]:
    """A record of host times, in microseconds. header: from `machine.host_header`."""
    rows = [{name: _rounded(value) for name, value in asdict(row).items() if value != ""} for row in found.times]
    return {"schema": SCHEMA, "kind": "host", **header, "protocol": PROTOCOL, "rows": rows, "missing": found.missing}


def _rounded(value: str | float) -> str | float:
    return value if isinstance(value, str) else round(value, 3)


def write_record(path: Path, record: Mapping[str, Any]) -> Path:
    """Write a record as JSON, and make its folder if needed. Returns `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Target.of(path).write(f"{json.dumps(record, indent=1, ensure_ascii=False)}\n".encode())
    return path


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
