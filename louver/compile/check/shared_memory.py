"""check-shared-memory: runs a kernel of register tiles on the emulator, without its arithmetic.

Each access to shared memory, each copy, wait, barrier and product runs as in the kernel (`skeleton.py`), by the rules of the emulator.
So a missing wait or fence is found at the tile that a call uses, whatever it is. Sizes of the call, and numbers that the kernel loads,
are drawn: small ones that end loops at once, and large ones that go round each ring several times.

It takes longer than a compilation. So it runs in tests, and where `LOUVER_CHECK` asks for it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from louver.compile.check.events import ProtocolError
from louver.compile.check.skeleton import skeleton
from louver.compile.signature import ARRAYS, ArgumentParameter, BoxParameter, BoxSizeParameter, Signature, copied_box
from louver.emulator import EmulationError, GlobalMemory, run
from louver.emulator.parameters import Argument
from louver.isa.bulk import COPY_CHUNK, TensorMap
from louver.ptx.module import Inst, Kernel, Reg

DRAWS = 4
"""Most runs of a kernel."""

STEPS = 2500
"""Steps of each warp in a run. It then stops."""

SIZES = (1, 40, 200, 700, 1500, 3000)
"""Integers of a call. Those with a known divisor are rounded up to a multiple."""

LOADED = (0, 1, 2, 3, 40, 200)
"""Numbers that the kernel loads."""

ADDRESS = 1 << 40
"""The address of each array. Nothing is read there."""


@dataclass(frozen=True, slots=True)
class CheckedKernel:
    """What the check has run. steps: of all warps. unreached: instructions of the skeleton that no run executed."""

    steps: int
    unreached: int

    def __str__(self) -> str:
        return f"{self.steps:,} steps of warps, {self.unreached} instructions not reached"


def check_shared_memory(kernel: Kernel, signature: Signature) -> CheckedKernel:
    """Check a kernel of register tiles. Raises ProtocolError with what is wrong and the instruction."""
    executed, steps, every = set[int](), 0, frozenset[int]()
    for seed in range(DRAWS):
        draw = random.Random(seed)

        def choose(register: Reg, draw: random.Random = draw) -> int:
            return draw.randrange(2) if register.type == "pred" else draw.choice(LOADED)

        bones = skeleton(kernel, choose)
        every = frozenset(place for place, node in enumerate(bones.body.walk()) if isinstance(node, Inst))
        if not every:
            # No thread uses shared memory.
            break
        memory = GlobalMemory()
        try:
            report = run(
                bones, 1, _arguments(signature, draw, memory), memory=memory, most_steps=STEPS * signature.warps
            )
        except EmulationError as error:
            where = "" if error.place is None else error.place.instruction
            raise ProtocolError("accesses to shared memory are in order", error.problem, where) from error
        executed |= report.executed
        steps += report.instructions.total()
        if executed >= every:
            break
    return CheckedKernel(steps, len(every - executed))


def _arguments(signature: Signature, draw: random.Random, memory: GlobalMemory) -> dict[str, Argument]:
    """Arguments of a call with drawn sizes. The arrays of boxes are as large as a box."""
    numbers = _Drawn(signature, draw)
    found: dict[str, Argument] = {}
    for each in signature.parameters:
        if isinstance(each, BoxParameter):
            found[each.name] = _map(each, copied_box(each, numbers), memory)
        elif isinstance(each, BoxSizeParameter):
            assert each.box.sizes[1] is not None, "a tail ends with the array"
            found[each.name] = each.box.sizes[1].value(numbers)
        elif each.part in ARRAYS:
            found[each.name] = ADDRESS
        else:
            found[each.name] = float(numbers[each.number]) if each.type == "f32" else numbers[each.number]
    return found


class _Drawn(dict[str, int]):
    """The numbers of a call by name, drawn when they are first asked for."""

    def __init__(self, signature: Signature, draw: random.Random) -> None:
        super().__init__()
        numbers = [
            each for each in signature.parameters if isinstance(each, ArgumentParameter) and each.part not in ARRAYS
        ]
        self._multiples = {each.number: each.multiple for each in numbers}
        self._draw = draw

    def __missing__(self, name: str) -> int:
        multiple = self._multiples.get(name, 1)
        self[name] = -(-self._draw.choice(SIZES) // multiple) * multiple
        return self[name]


def _map(box: BoxParameter, copied: Sequence[int], memory: GlobalMemory) -> TensorMap:
    """The map of an array of one box."""
    shape = (max(copied[0], COPY_CHUNK), *copied[1:])
    apart = [shape[0] * box.element_bytes]
    for size in shape[1:]:
        apart.append(apart[-1] * size)
    array = memory.add(box.name, np.zeros(apart.pop(), np.uint8))
    return TensorMap(array.address, box.element_bytes, shape, tuple(apart), tuple(copied), box.swizzle)
