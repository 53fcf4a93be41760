"""The rows of `benchmarks/accuracy.py`: patterns, methods and times of training, by stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

BEST: Final = {"method": "admm", "correct": True, "reconstruct": 30}
PLAIN: Final = {"method": "sparsegpt", "damping": 0.01}


@dataclass(frozen=True, slots=True)
class Case:
    """A row. options: of `prune_`; budget: of `allocate`, and its patterns; minutes: of `distill_`, from the row `begins`;
    written: tokens that the dense model writes for it, and whose time is taken from the minutes.

    e4m3: a second row, of the same model in e4m3. needs: seconds of an H200, about.
    """

    pattern: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    budget: tuple[str, tuple[str, ...]] | None = None
    minutes: float = 0
    begins: str = ""
    written: int = 0
    e4m3: bool = False
    needs: float = 25

    @property
    def name(self) -> str:
        return f"{self.pattern} {self.method}"


def distilled(begins: Case, minutes: float, e4m3: bool = False, written: int = 0) -> Case:
    """A case that distils what `begins` gives, which another process has kept."""
    title = f"{minutes:g} min distilled" if minutes >= 1 else f"{60 * minutes:.0f} s distilled"
    return Case(
        begins.pattern,
        title,
        begins.options,
        begins.budget,
        minutes,
        begins.name,
        written,
        e4m3,
        60 * minutes + 20,
    )


ONE_SHOT: Final = Case("2:4", "ADMM c.+r.", BEST)
TUNED: Final = Case("2:4", "ADMM c.+r., tuned", {**BEST, "tune": 64}, e4m3=True, needs=60)
HALF: Final = Case("2:4 on half", "ADMM c.+r.", BEST, ("25%", ("2:4",)), needs=50)
THIRD: Final = Case("2:4 on 70%", "ADMM c.+r.", BEST, ("35%", ("2:4",)), needs=50)
THIRD_TUNED: Final = Case("2:4 on 70%", "ADMM c.+r., tuned", {**BEST, "tune": 64}, ("35%", ("2:4",)), needs=110)
VECTORS: Final = tuple(
    Case(each, "SparseGPT c.+r.", {**BEST, "method": "sparsegpt"}) for each in ("4:8@128", "2:8@V128")
)


def stages(share: float = 1) -> Mapping[str, tuple[Case, ...]]:
    """The cases by stage. share: of the minutes of distillation, to try the program."""
    return {
        "basic": (
            Case("2:4", "magnitude", needs=5),
            Case("2:4", "Wanda", {"method": "wanda"}),
            Case("2:4", "SparseGPT", PLAIN),
            Case("2:4", "SparseGPT + reconstruction", {**PLAIN, "reconstruct": 30}),
            Case("2:4", "SparseGPT c.+r.", {**BEST, "method": "sparsegpt"}),
            ONE_SHOT,
        ),
        "tuned": (TUNED,),
        "parts": (HALF, THIRD),
        "distilled": (distilled(TUNED, 2 * share, e4m3=True),),
        "half": (distilled(HALF, 0.75 * share),),
        "third tuned": (THIRD_TUNED,),
        "third": (distilled(THIRD, share),),
        "vectors": (*VECTORS, *(distilled(each, 2 * share) for each in VECTORS)),
        "uniform": (
            Case("2:4 on half", "every second block", {**BEST, "skip": ("*.layers.*[02468].*",)}),
            Case("2:4 on half", "attention and down", {**BEST, "skip": ("*.gate_proj", "*.up_proj")}),
        ),
        "refined": (
            Case("2:4", "Wanda c.+r.", {**BEST, "method": "wanda"}),
            Case("2:4", "SparseGPT c.+r., two sweeps of swaps", {**BEST, "method": "sparsegpt", "swaps": 2}, needs=30),
            Case("2:4", "ADMM c.+r., permuted", {**BEST, "permute": True}, needs=40),
            Case("2:4", "ADMM c.+r., damping 0.1", {**BEST, "damping": 0.1}, needs=40),
        ),
        "patterns": (
            Case("6:8", "magnitude"),
            Case("6:8", "SparseGPT c.+r.", {**BEST, "method": "sparsegpt"}),
            Case("4:8", "SparseGPT c.+r.", {**BEST, "method": "sparsegpt"}),
            Case("6:8@128", "SparseGPT c.+r.", {**BEST, "method": "sparsegpt"}),
        ),
        "long": (distilled(ONE_SHOT, 8 * share, e4m3=True, written=8 << 20),),
        "again": (distilled(ONE_SHOT, 2 * share, e4m3=True, written=2 << 20),),
    }


CHOICES: Final[Mapping[str, tuple[Mapping[str, Any], ...]]] = {
    "choices": (
        {},
        {"damping": 0.1},
        {"damping": 1.0},
        {"method": "sparsegpt"},
        {"damping": 0.01},
        {"tune": 64},
        {"tune": 160},
        {"permute": True},
        {"calibration": "documents"},
        {"calibration": "articles"},
        {"correct": False},
    ),
    "trials": (
        {"distill": {"minutes": 0.4}},
        {"distill": {"minutes": 0.4, "rate": 2.8e-3}},
        {"distill": {"minutes": 0.4, "moving": True}},
        {"distill": {"minutes": 0.4, "batch": 64, "rate": 2.8e-3}},
        {"tune": 64, "distill": {"minutes": 0.4}},
    ),
}
"""Options to choose among: changes of `BEST`, one calibration text alone, and options of `distill_` after it."""
