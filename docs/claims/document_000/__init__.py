"""Document 000, "CICC Structured Sparsity Optimization": its data and code, run, and a verdict for each statement."""

from __future__ import annotations

from claims.claim import Document
from claims.document_000 import choices, costs, hardware, limits

DOCUMENT = Document(
    "000",
    "CICC Structured Sparsity Optimization",
    (
        "Believe: 2:4 on weights gives 1.3 to 1.8 × on large products, at most 2 ×, with a small loss of memory to metadata.",
        "Believe: sparse products begin with sm_80; FP4 and FP6 with Blackwell.",
        "Do not believe an instruction text: none of them assembles. `docs/targets.md` has the true ones.",
        "Metadata has 4 bits a group (two positions), not a 2-bit id. Six ids do not fit in 2 bits.",
        "At most two of four, not exactly two: 0:4 and 1:4 are legal.",
        'Compute-bound products gain too; the rule "above 10 FLOP a byte, dense" is wrong.',
        "sm_89 has sparse FP8, sm_80 sparse INT4; sm_120 has no tcgen05.",
        "No hardware finds a pattern at run time. Software does, at near a copy's speed.",
        "Its cost code does not run: every sum is infinite, and a dense product of 128×128 is free.",
        'TFLOP/s "per SM" are about twenty times too high; cycles and coefficients are not checked.',
    ),
    (*hardware.CLAIMS, *costs.CLAIMS, *choices.CLAIMS, *limits.CLAIMS),
)
