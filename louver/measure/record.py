"""Records as files, written completely or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from louver.formats.regular import Target
from louver.measure.host import PROTOCOL, HostTimes
from louver.measure.measurement import Measurement
from louver.measure.operands import INT8_MOST, INT8_SCALE
from louver.measure.protocol import Protocol
from louver.measure.report.header import SCHEMA

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
