"""The explanation of how a call runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from louver.choose.reasons import Reasons
    from louver.compile.plan.schedule import Schedule


ADVICE = (
    "a product would be faster: it has a producer, bulk copies and tiles of its own choice. With tiles of 64 rows or less "
    "the dense kernel by Triton may be faster too"
)
"""Features that register tiles lack. Measured: docs/perf-log/21-register-tiles-wgmma.md, `louver bench kernels`."""


SHARED = "the kernel's programs share a long K, which a product would sum by few tiles on few SMs"
"""Why a product's call runs by register tiles that use more SMs."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a call runs. refusal: why it is not a product. schedule: of a product with an aligned output. ptx: its text.

    warning: why a dense kernel may be faster, one reason a line, or how much longer a product's row lists are. dots:
        instruction, tile and bytes of each dot of register tiles. config: the `triton.autotune` config that it takes,
        and why. others: the outcome of each other config. reasons: the pattern, the candidates and the instruction.
        found: for each argument in `find` what it holds, then the comparison of the two ways. decided: see
        `louver.user.retile.is_decided`.
    """

    family: Literal["product", "register tiles"]
    refusal: str | None
    schedule: Schedule | None
    ptx: str
    warning: str | None = None
    dots: tuple[str, ...] = ()
    config: str | None = None
    others: tuple[str, ...] = ()
    reasons: Reasons | None = None
    found: tuple[str, ...] = ()
    decided: bool = False

    def __str__(self) -> str:
        said = (
            [self.schedule] if self.refusal is None else [self.refusal, *([] if self.refusal == SHARED else [ADVICE])]
        )
        lines = [*map(str, said), *([] if self.warning is None else [self.warning]), *self.dots]
        lines += [] if self.config is None else [self.config, *self.others]
        lines += [] if self.reasons is None else [str(self.reasons)]
        lines += self.found
        return "\n".join((f"{self.family}: {lines[0]}", *lines[1:]))
