"""Sleeping warps: objects that change, and the warps that wait for the change."""

from __future__ import annotations

from typing import Protocol


class Waiter(Protocol):
    """Something that can be woken: a warp."""

    def wake(self) -> None: ...


class Signal:
    """A set of sleeping warps, woken all together; each then looks again whether it may go on."""

    __slots__ = ("_sleepers",)

    def __init__(self) -> None:
        self._sleepers: list[Waiter] = []

    def wait(self, waiter: Waiter) -> None:
        self._sleepers.append(waiter)

    def notify(self) -> None:
        sleepers, self._sleepers = self._sleepers, []
        for sleeper in sleepers:
            sleeper.wake()
