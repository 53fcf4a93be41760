"""Runs PTX modules on the CPU, with asynchronous engines, and reports every hazard that it can prove."""

from __future__ import annotations

from louver.emulator.emulate import Report, run
from louver.emulator.errors import (
    BarrierError,
    ConvergenceError,
    DeadlockError,
    EarlierGridError,
    EmulationError,
    ExitError,
    LaunchError,
    LimitError,
    MisalignedError,
    OutOfBoundsError,
    OverwriteInUseError,
    Place,
    ProxyFenceError,
    RegisterHazardError,
    UninitialisedError,
    UseBeforeArrivalError,
)
from louver.emulator.memory import Allocation, GlobalMemory
from louver.emulator.order import Earliest, Latest, Order, Seeded
from louver.emulator.parameters import Argument

__all__ = [
    "run",
    "Report",
    "Argument",
    "GlobalMemory",
    "Allocation",
    "Order",
    "Earliest",
    "Latest",
    "Seeded",
    "Place",
    "EmulationError",
    "DeadlockError",
    "UseBeforeArrivalError",
    "EarlierGridError",
    "OverwriteInUseError",
    "ProxyFenceError",
    "OutOfBoundsError",
    "MisalignedError",
    "UninitialisedError",
    "BarrierError",
    "RegisterHazardError",
    "ConvergenceError",
    "ExitError",
    "LaunchError",
    "LimitError",
]
