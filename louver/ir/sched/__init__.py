"""The `sched` dialect: warp roles, rings of stages, barriers, bulk copies and warpgroup products."""

from __future__ import annotations

from louver.ir.dialect import dialect

SCHED = dialect("sched", __name__)
