"""Signals wake sleeping warps when an object changes."""

from __future__ import annotations

from typing import Protocol


class Waiter(Protocol):
    """An object that can be woken: a warp."""

    def wake(self) -> None: ...


class Signal:
    """A set of sleeping warps. All wake together; each then checks whether it can continue."""

    __slots__ = ("_sleepers",)

    def __init__(self) -> None:
        self._sleepers: list[Waiter] = []

    def wait(self, waiter: Waiter) -> None:
        self._sleepers.append(waiter)

    def notify(self) -> None:
        sleepers, self._sleepers = self._sleepers, []
        for sleeper in sleepers:
            sleeper.wake()
