"""Records of kernels that make forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from louver.formats.codes import CODE_PARTS
from louver.formats.lists import PICKERS
from louver.formats.pattern import Pattern
from louver.isa.targets import WARPGROUP_THREADS
from louver.library.streaming.record import BUSY_CTAS


@dataclass(frozen=True, slots=True)
class Derived:
    """A kernel that makes a form of a sparse tensor. Each thread makes one element.

    kind: "round": values of f32 to tf32. "list": lists of rows of K (`louver.formats.lists`). "pick": rows of K that 16
        rows pick.
    rows: rows that share a list.
    step: stored columns of a K step of picks. Their indices are whole bytes.
    """

    kind: Literal["round", "list", "pick"]
    pattern: Pattern
    rows: int = PICKERS
    step: int = 8
    element: ClassVar[str] = "f32"
    threads: ClassVar[int] = WARPGROUP_THREADS
    min_ctas: ClassVar[int] = 1
    ctas_per_sm: ClassVar[int] = BUSY_CTAS
    tile: ClassVar[tuple[int, int]] = (1, WARPGROUP_THREADS)

    def __post_init__(self) -> None:
        if self.kind != "round" and (self.pattern in CODE_PARTS or self.pattern.length % self.rows or self.step % 8):
            raise ValueError(
                f"lists are made of indices of windows that are whole {self.rows} rows, 8 columns at a time, got {self.pattern} and "
                f"{self.step} columns"
            )

    @property
    def units(self) -> int:
        """Lists of a window."""
        return min(self.pattern.length // self.rows, (1 << 31) - 1)

    @property
    def counts(self) -> bool:
        """Whether the kernel has counters."""
        return self.kind != "round"

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of the parameters of 32 bits, see `louver.library.streaming.derived.build_derived`."""
        own = {
            "round": (),
            "list": ("k", "lists", "windows", "list_bytes"),
            "pick": ("steps", "blocks", "windows", "list_bytes"),
        }
        return ("rows", "size", "kept", *own[self.kind])

    @property
    def addresses(self) -> tuple[str, ...]:
        """Names of the parameters of 64 bits."""
        return ("values", "pitch", "out") if self.kind == "round" else ("indices", "out", "counters")
