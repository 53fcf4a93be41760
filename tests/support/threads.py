"""Work in threads that begin together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


def in_threads(work: Callable[[T], U], items: Iterable[T]) -> list[U]:
    """The results of `work`, for each item in a thread of its own. Raises the error of the first item that has one."""
    given = list(items)
    start = threading.Barrier(len(given))

    def begin(item: T) -> U:
        start.wait()
        return work(item)

    with ThreadPoolExecutor(len(given)) as pool:
        return list(pool.map(begin, given))
