"""What the generator derives once from the nest, the schedule and the target."""

from __future__ import annotations

import math
from dataclasses import dataclass

from louver.isa.prepack import VALUE_REGISTERS, WORDS, columns_per_load
from louver.isa.targets import Target
from louver.isa.wgmma import Wgmma
from louver.passes.layout import OperandLayout
from louver.passes.product import ProductNest
from louver.passes.schedule import Schedule

VALUE_REGISTERS_HELD = 32
"""Registers of a consumer thread that hold values ahead of their use: beside 128 accumulators they fit, with room for addresses."""


@dataclass(frozen=True, slots=True)
class Generation:
    """The parts that the generator puts together. a: None for values in registers. d: the staged output, None for
    direct stores.
    """

    nest: ProductNest
    schedule: Schedule
    target: Target
    a: OperandLayout | None
    b: OperandLayout
    d: OperandLayout | None
    mma: Wgmma

    @property
    def word_columns(self) -> int:
        """Dense columns whose metadata one word of a lane holds."""
        return columns_per_load(self.mma.a) // WORDS

    @property
    def words(self) -> int:
        """Metadata words a lane needs for a K step of one block of 64 rows."""
        return self.schedule.tile_k // self.word_columns

    @property
    def steps_per_load(self) -> int:
        """K steps that one 16-byte metadata load covers."""
        return WORDS // self.words

    @property
    def products(self) -> int:
        """Products along K of a step."""
        return self.schedule.tile_k // self.mma.k

    @property
    def batch(self) -> int:
        """Steps whose values are loaded together, while those of the batch before them are multiplied.

        One wait for registers covers all loads in flight (ptxas counts them in one scoreboard), so that loads issued step by
        step would be waited for step by step.
        """
        registers = VALUE_REGISTERS * self.products * self.schedule.blocks
        return max(1, VALUE_REGISTERS_HELD // (2 * registers))

    @property
    def unroll(self) -> int:
        """Steps of the main loop's body: whole rounds of both metadata sets and of both batches of values."""
        metadata = 2 * self.steps_per_load
        return metadata if self.schedule.values == "shared" else math.lcm(metadata, 2 * self.batch)

    @property
    def fence_steps(self) -> int:
        """Steps of the body from one wgmma.fence to the next.

        Accumulators change hands only between tiles, and products of one shape follow each other: one fence a body. Values
        that were loaded into registers are fenced before their use.
        """
        return self.unroll if self.schedule.values == "shared" else self.batch
