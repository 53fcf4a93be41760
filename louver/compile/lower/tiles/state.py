"""The state of lowering register tiles: the registers of each value, and values that a thread computes once.

A tile is a list of registers in the order of its layout, one for each element. A scalar is one register.

| element | register |
|---|---|
| boolean | predicate |
| integer of up to 32 bits | 32 bits, extended by the sign (u8 by zeros) |
| f16, bf16 | 16 bits |
| float of up to 8 bits | 16 bits; the upper byte is 0 |
| pointer | 64-bit address |
"""

from __future__ import annotations

from collections.abc import Callable, KeysView, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import (
    BFloat16Type,
    Float16Type,
    Float32Type,
    IndexType,
    IntegerType,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.ir import Block as IrBlock

from louver.analysis.runs import Runs
from louver.compile.lower.tiles.facts import WHOLE, Facts, Known, Test
from louver.compile.plan.encode.exchange_plan import Means
from louver.ir.refusal import unsupported
from louver.ir.tile import BYTE_FLOATS, PointerType
from louver.ir.tile.layout import Layout
from louver.ir.tile.types import register_encoding, tensor_of
from louver.isa.instruction import LANES, REGISTER_BITS, Instruction, RegType
from louver.isa.move import Elect
from louver.isa.scalar import Not
from louver.isa.sync import WarpSync
from louver.isa.targets import Target
from louver.isa.wgmma import WgmmaWait
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Block, Imm, Reg

Registers = tuple[Reg, ...]


def register_class(element: Attribute, op: Operation) -> RegType:
    """The class of the register for an element. Rejects `op` for elements without a class."""
    match element:
        case IntegerType():
            bits = element.width.data
            if bits in (1, 8, 16, 32, 64):
                return "pred" if bits == 1 else "b64" if bits == 64 else "b32"
        case IndexType() | PointerType():
            return "b64"
        case Float32Type():
            return "f32"
        case Float16Type() | BFloat16Type():
            return "b16"
        case _ if element in BYTE_FLOATS:
            return "b16"
        case _:
            pass
    raise unsupported(f"tiles in registers have integers, f32, f16, bf16 and 8-bit floats, not {element}", op)


@dataclass(frozen=True, slots=True)
class Rooms:
    """The shared memory of a kernel. Offsets are in bytes.

    staged: the offset of each staged tile.
    exchanges: the offset of the exchange of each operation.
    own: operations with an exchange in memory that nothing else uses.
    tiles: the staged tiles for which each value may stand.
    reused: staged tiles whose memory has other contents at another time.
    multiplied: staged tiles that warpgroups multiply.
    bytes: the total size.
    """

    staged: Mapping[SSAValue, int]
    exchanges: Mapping[Operation, int]
    own: frozenset[Operation]
    tiles: Mapping[SSAValue, Sequence[SSAValue]]
    reused: KeysView[SSAValue]
    multiplied: KeysView[SSAValue]
    bytes: int

    def __str__(self) -> str:
        staged = [f"{at}: {tile.type}" for tile, at in self.staged.items()]
        exchanges = [f"{at}: exchange of {op.name}" for op, at in self.exchanges.items()]
        return "\n".join([f"{self.bytes} bytes of shared memory", *staged, *exchanges])


@dataclass(slots=True)
class Accesses:
    """The accesses since the last barrier of the CTA. They decide where a barrier or a fence is needed.

    loads, stores: accesses to global memory.
    takes: loads of staged tiles in shared memory.
    puts: stores to staged tiles, and copies that have arrived.
    exchanged: exchanges in their own memory.

    A barrier alone does not reset these:

    unseen: tiles for warpgroup products were stored or copied since the last proxy fence. Products do not see them yet.
    unfenced: other tiles were stored since then, to memory that bulk copies may write at another time.
    unpublished: stores to global memory since the last fence for bulk copies.
    """

    loads: bool = False
    stores: bool = False
    takes: bool = False
    puts: bool = False
    exchanged: frozenset[Operation] = frozenset()
    unseen: bool = False
    unfenced: bool = False
    unpublished: bool = False

    def join(self, other: Accesses) -> None:
        """Add accesses that may have been made too."""
        self.loads |= other.loads
        self.stores |= other.stores
        self.takes |= other.takes
        self.puts |= other.puts
        self.exchanged |= other.exchanged
        self.unseen |= other.unseen
        self.unfenced |= other.unfenced
        self.unpublished |= other.unpublished


@dataclass(frozen=True, slots=True)
class Byte:
    """A further place of an 8-bit element.

    word: a register with four elements.
    flipped: for integers, the same register with flipped sign bits.
    number: the number of the element in the word.
    """

    word: Reg
    flipped: Reg
    number: int


@dataclass(slots=True)
class Lowering:
    """The state of lowering one kernel.

    k: the builder.
    warps: warps of a CTA.
    prologue: the block for values that are computed once, before everything else.
    target: the target of the kernel.
    rooms: the places in shared memory.
    runs: powers of two that divide integers.
    lower_block: lowers a region.
    in_chunks: whether alignments of addresses are known. If not, elements are moved one by one, and no registers are
    left.
    multiplies: whether warpgroup products follow.
    waits: whether the kernel loads numbers that other programs store meanwhile.
    pending: whether warpgroup products are running, other than those in flight, which their loop waits for.
    promoted: totals, each with the sum that is added to it when the products end.
    known: facts about integers and addresses.
    tests: how conditions are computed.
    bits: registers with the conditions of a tile, one a bit.
    packed: registers that contain several neighbouring elements of 8 or 16 bits.
    bytes: further places of 8-bit elements.
    rounded: bf16 elements, each with the f32 of the same value.
    copied: staged tiles that `cp.async` copies.
    tails: by descriptor, the map of the box's tail and the rows of its array.
    box_rows: rows that copies of a box bring, where they may be fewer than those of a slot.
    """

    k: KernelBuilder
    warps: int
    prologue: Block
    target: Target
    rooms: Rooms
    runs: Runs
    lower_block: Callable[[IrBlock], None]
    values: dict[SSAValue, Registers] = field(default_factory=dict[SSAValue, Registers])
    accesses: Accesses = field(default_factory=Accesses)
    known: Known = field(default_factory=Known)
    tests: dict[Reg, Test] = field(default_factory=dict[Reg, Test])
    bits: dict[SSAValue, Sequence[Reg]] = field(default_factory=dict[SSAValue, Sequence[Reg]])
    packed: dict[Registers, Reg] = field(default_factory=dict[Registers, Reg])
    bytes: dict[Reg, Byte] = field(default_factory=dict[Reg, Byte])
    rounded: dict[Reg, Reg] = field(default_factory=dict[Reg, Reg])
    copied: set[SSAValue] = field(default_factory=set[SSAValue])
    tails: dict[SSAValue, tuple[Reg, Reg]] = field(default_factory=dict[SSAValue, tuple[Reg, Reg]])
    box_rows: dict[SSAValue, Reg] = field(default_factory=dict[SSAValue, Reg])
    multiplies: bool = False
    waits: bool = False
    pending: bool = False
    promoted: Sequence[tuple[Reg, Reg]] = ()
    in_chunks: bool = True
    _once: dict[object, Reg] = field(default_factory=dict[object, Reg])

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return self.warps * LANES

    @property
    def means(self) -> Means:
        """The means of exchanges on the target."""
        return Means.of(self.target)

    def multiple(self, value: SSAValue) -> int:
        """A power of two that divides an integer, in all iterations of loops."""
        run = self.runs.of(value, 0, 1)
        return 1 if run is None else run.multiple

    def provides(self, op: Instruction) -> bool:
        """Whether the target has an instruction."""
        return self.target.provides(op.requires.target)

    def layout(self, value: SSAValue) -> Layout:
        """The layout of a tile in registers."""
        tensor = tensor_of(value)
        encoding = register_encoding(tensor)
        if encoding is None:
            raise ValueError(f"a tile that is lowered has an encoding, got {tensor}: run assign-encodings")
        return encoding.layout(tensor.get_shape())

    def scalar(self, value: SSAValue) -> Reg:
        """The register of a scalar value."""
        (register,) = self.values[value]
        return register

    def emit(self, op: Instruction, *args: Reg | Imm | float | tuple[Reg, ...]) -> Reg:
        """Emit an instruction, and return its result in a new register."""
        result = self.k.reg(op.operands[0].type)
        self.k.emit(op, result, *args)
        return result

    def copy(self, register: Reg) -> Reg:
        """A new register with the same content."""
        return self.k.mov(register)

    # --- once a kernel ---------------------------------------------------------------------------------------------
    def constant(self, number: float, kind: RegType) -> Reg:
        """A register with a constant, set in the prologue."""
        key = (number.hex() if isinstance(number, float) else number, kind)
        if key not in self._once:
            with self.k.inside(self.prologue):
                if kind == "pred":
                    self._once[key] = self.k.setp("ne", "u32", self.k.mov(int(number)), 0)
                else:
                    value: float = float(number) if kind == "f32" else int(number) % (1 << REGISTER_BITS[kind])
                    self._once[key] = self.k.mov(value, kind=kind)
                    if kind in ("b32", "b64"):
                        self.known.is_sum(self._once[key], None, int(number))
        return self._once[key]

    @property
    def thread(self) -> Reg:
        """The thread's number in its CTA."""
        return self._first("thread", lambda: self.k.special("%tid.x"))

    @property
    def first_thread(self) -> Reg:
        """A predicate that is true in the thread that begins bulk copies, in the first warp.

        It uses `elect`, so that the assembler knows that it is a single thread.
        """
        thread = self.thread

        def make() -> Reg:
            elected = self.k.reg("pred")
            self.k.emit(Elect(), elected)
            return self.k.and_pred(elected, self.k.setp("lt", "u32", thread, LANES))

        return self._first("first", make)

    @property
    def _symbol(self) -> Reg:
        return self._first("symbol", self.k.shared_symbol)

    def staged_address(self, weights: Sequence[int]) -> Reg:
        """The address in shared memory whose offset is the exclusive or of the weights of the thread's bits."""
        if not any(weights):
            return self._symbol
        return self._first(
            ("staged", tuple(weights)),
            lambda: self.k.add(self._first(("bits", tuple(weights)), lambda: self._combine(weights)), self._symbol),
        )

    def room(self, op: Operation, weights: Sequence[int] = ()) -> Reg:
        """The address of the exchange of an operation, plus the offset by the weights of the thread's bits."""
        start = self.rooms.exchanges[op]
        return self.k.add(self.staged_address(weights), start) if start else self.staged_address(weights)

    def origin(self, layout: Layout, dimension: int) -> Reg | None:
        """The offset of the thread's elements along a dimension; None if it is 0 for all threads."""
        return self.combined([step[dimension] for step in layout.thread])

    def combined(self, weights: Sequence[int]) -> Reg | None:
        """The sum of the weights of the bits that are set in the thread's number; None if all are 0.

        Weights share no bit.
        """
        if not any(weights):
            return None
        found = self._first(("bits", tuple(weights)), lambda: self._combine(weights))
        least = min(weight for weight in weights if weight)
        self.known.has(found, Facts(least & -least, WHOLE, sum(weights)))
        return found

    def owner(self, layout: Layout) -> Reg | None:
        """A predicate that is true in one of the threads with the same elements; None if no two threads have the same."""
        repeats = layout.repeats
        if not repeats:
            return None
        mask = sum(1 << bit for bit in repeats)
        thread = self.thread
        return self._first(("owner", mask), lambda: self.k.setp("eq", "u32", self.k.and_(thread, mask), 0))

    def _first(self, key: object, make: Callable[[], Reg]) -> Reg:
        if key not in self._once:
            with self.k.inside(self.prologue):
                self._once[key] = make()
        return self._once[key]

    def _combine(self, weights: Sequence[int]) -> Reg:
        """The exclusive or of the weights of the bits that are set in the thread's number.

        Bits with equal shifts are joined.
        """
        moved: dict[int, int] = {}
        for bit, weight in enumerate(weights):
            for place in range(weight.bit_length()):
                if weight >> place & 1:
                    moved[place - bit] = moved.get(place - bit, 0) | 1 << bit
        total: Reg | None = None
        for shift, mask in moved.items():
            part = self.k.and_(self.thread, mask)
            part = part if shift == 0 else self.k.shl(part, shift) if shift > 0 else self.k.shr(part, -shift)
            total = part if total is None else self.k.xor(total, part)
        assert total is not None
        return total

    # --- order -----------------------------------------------------------------------------------------------------
    def barrier(self, *, fenced: bool = True, finished: bool = True) -> None:
        """Synchronize all threads of the CTA.

        fenced: whether warpgroup products must see their stores too.
        finished: whether to wait for running products first.
        """
        if finished:
            self.finish_products()
        if fenced and self.accesses.unseen and self.multiplies:
            self.fence()
        self.k.barrier_sync(0, self.threads)
        # Products that run on read their operands after the barrier.
        self.accesses = Accesses(
            takes=self.pending,
            unseen=self.accesses.unseen,
            unfenced=self.accesses.unfenced,
            unpublished=self.accesses.unpublished,
        )

    def finish_products(self) -> None:
        """Wait until warpgroup products end. Then their sums may be read, and their operands may be overwritten."""
        if self.pending:
            self.k.emit(WgmmaWait(0))
            for total, partial in self.promoted:
                self.k.add_f32(total, partial, into=total)
            self.pending, self.promoted = False, ()

    def fence(self) -> None:
        """Issue a proxy fence in each thread for its own stores, before a barrier."""
        if self.accesses.unseen or self.accesses.unfenced:
            self.k.fence_proxy_async()
            self.accesses.unseen = self.accesses.unfenced = False

    def begin_load(self) -> None:
        """Prepare a load from global memory: earlier stores of the program must be complete."""
        if self.accesses.stores:
            self.barrier()
        self.accesses.loads = True

    def begin_store(self) -> None:
        """Prepare a store: earlier loads of the program must be complete in all threads."""
        if self.accesses.stores or self.accesses.loads:
            self.barrier()
        self.accesses.stores = self.accesses.unpublished = True

    def begin_take(self) -> None:
        """Prepare a load of a staged tile: stores of all threads to it must be complete."""
        if self.accesses.puts:
            self.barrier()
        self.accesses.takes = True

    def begin_products(self) -> None:
        """Prepare warpgroup products of staged tiles: stores of all threads must be complete and visible to tensor
        cores.
        """
        if self.accesses.unseen:
            self.barrier()
        self.begin_take()

    def begin_put(self, tile: SSAValue, *, free: bool) -> None:
        """Prepare a store to a staged tile: all threads must have loaded the old contents.

        free: whether no thread has loaded them since the last barrier.
        """
        if not free and self.may_be_read(tile):
            # The fence follows the stores.
            self.barrier(fenced=False)
        self.have_put(tile)

    def may_be_read(self, tile: SSAValue) -> bool:
        """Whether a thread may still load the old contents of a staged tile's memory, or store them."""
        reused = not self.rooms.reused.isdisjoint(self.rooms.tiles[tile])
        return self.accesses.takes or (self.accesses.puts and reused)

    def have_put(self, *names: SSAValue, fenced: bool = False) -> None:
        """Record stores to staged tiles, or copies that have arrived.

        fenced: whether a fence of the same threads followed.
        """
        self.accesses.puts = True
        if fenced:
            return
        tiles = {tile for name in names for tile in self.rooms.tiles[name]}
        self.accesses.unseen |= not self.rooms.multiplied.isdisjoint(tiles)
        self.accesses.unfenced |= not self.rooms.reused.isdisjoint(tiles)

    def begin_copy(self) -> None:
        """Prepare a copy to shared memory: all threads must have loaded the old contents."""
        if self.accesses.takes or self.accesses.puts:
            self.barrier()

    def begin_exchange(self, op: Operation, *, alone: bool, fenced: bool = True) -> None:
        """Prepare the stores of an exchange: the old contents must have been loaded.

        alone: whether warps exchange alone.
        """
        if alone:
            self._meet_in_warp()
        elif op in self.rooms.own:
            if op in self.accesses.exchanged:
                self.barrier(finished=False)
        elif self.accesses.takes or self.accesses.puts:
            self.barrier(fenced=fenced)

    def take_exchanged(self, op: Operation, *, alone: bool) -> None:
        """Synchronize between the stores and the loads of an exchange.

        alone: whether each warp loads only its own stores.
        """
        own = op in self.rooms.own
        if not own:
            self.accesses.puts = self.accesses.unfenced = True
        if alone:
            self._meet_in_warp()
        else:
            self.barrier(finished=not own)
        if own:
            self.accesses.exchanged |= {op}
        else:
            self.accesses.takes = True

    def _meet_in_warp(self) -> None:
        self.k.emit(WarpSync(), (1 << LANES) - 1)

    def inverted(self, predicate: Reg) -> Reg:
        """The opposite of a predicate."""
        return self.emit(Not("pred"), predicate)

    def both(self, a: Reg | None, b: Reg | None) -> Reg | None:
        """The conjunction of two conditions. None is always true."""
        if a is None or b is None:
            return a or b
        return self.k.and_pred(a, b)
