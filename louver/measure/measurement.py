"""The times of one problem, and their row of a record."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from louver.measure.n_major import NMajor
from louver.measure.report.gemm import CONTENDERS, TIMED, GemmRow, row_of, sustained_of
from louver.measure.sustained import Sustained


@dataclass(frozen=True, slots=True)
class Measurement:
    """The times of a problem, with further facts for the record.

    notes, sustained: by contender. n_major: of 8-bit operands. date, commit: of the run; "" if equal to the record's.
    seconds: of measuring, by phase. The phase "libraries" includes "algorithms" and "ranking" of cuSPARSELt.
    """

    row: GemmRow
    notes: Mapping[str, Mapping[str, Any]]
    sustained: Mapping[str, Sustained]
    n_major: NMajor | None = None
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    date: str = ""
    commit: str = ""

    @property
    def flops(self) -> float:
        """Operations of the product, zeros included."""
        return 2.0 * math.prod(self.row.shape)

    def to_json(self) -> dict[str, Any]:
        taken = self.row.times_us
        times = {f"{name}_us": taken.get(name) for name in TIMED if name in CONTENDERS or name in taken}
        base = {
            "shape": list(self.row.shape),
            "dtype": self.row.dtype,
            "out": self.row.out,
            "product": self.row.product,
            "accumulate": self.row.accumulate,
        }
        sustained = {name: taken.to_json(self.flops) for name, taken in self.sustained.items()}
        more = {} if self.n_major is None else {"n_major": self.n_major.to_json()}
        notes = {name: dict(facts) for name, facts in self.notes.items()}
        run = {name: said for name, said in (("date", self.date), ("commit", self.commit)) if said}
        return {
            **base,
            **times,
            "notes": notes,
            "sustained": sustained,
            **more,
            "measuring_seconds": dict(self.seconds),
            **run,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Measurement:
        """Read a row that `to_json` wrote. Raises KeyError, TypeError or ValueError for other rows."""
        row = row_of(found)
        sustained = {
            s.contender: Sustained(s.us, s.clock_mhz, s.power_w) for s in sustained_of(row, found["sustained"])
        }
        _, n, k = row.shape
        turned = found.get("n_major")
        n_major = None if turned is None else NMajor(float(turned["copy_us"]), float(turned["product_us"]), n * k)
        run = found.get("date", ""), found.get("commit", "")
        return cls(row, found["notes"], sustained, n_major, found["measuring_seconds"], *run)
