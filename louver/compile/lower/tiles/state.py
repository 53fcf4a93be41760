"""State of lowering register tiles: registers of each value, and facts that a thread computes once.

A tile is a list of registers, one an element, in the order of its layout; a scalar is one register. Booleans are predicates,
integers of up to 32 bits are 32-bit registers extended by their sign (u8 by zeros), f16, bf16 and 8-bit floats are 16-bit
registers (the latter's upper byte is 0), pointers are 64-bit addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import (
    BFloat16Type,
    Float8E4M3FNType,
    Float8E5M2Type,
    Float16Type,
    Float32Type,
    IndexType,
    IntegerType,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.ir import Block as IrBlock

from louver.compile.lower.tiles.facts import WHOLE, Facts, Known, Test
from louver.compile.plan.encode.exchange_plan import Means
from louver.compile.plan.feeds.chunks import Runs
from louver.ir.refusal import unsupported
from louver.ir.tile import PointerType
from louver.ir.tile.layout import Layout
from louver.ir.tile.types import register_encoding, tensor_of
from louver.isa.instruction import LANES, REGISTER_BITS, Instruction, RegType
from louver.isa.scalar import Not
from louver.isa.special import Elect
from louver.isa.sync import WarpSync
from louver.isa.targets import Target
from louver.isa.wgmma import WgmmaWait
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Block, Imm, Reg
from louver.ptx.validate import provides

Registers = tuple[Reg, ...]


def register_class(element: Attribute, op: Operation) -> RegType:
    """The class of the register that holds an element. Refuses `op` for elements that have none."""
    match element:
        case IntegerType():
            bits = element.width.data
            if bits in (1, 8, 16, 32, 64):
                return "pred" if bits == 1 else "b64" if bits == 64 else "b32"
        case IndexType() | PointerType():
            return "b64"
        case Float32Type():
            return "f32"
        case Float16Type() | BFloat16Type() | Float8E4M3FNType() | Float8E5M2Type():
            return "b16"
        case _:
            pass
    raise unsupported(f"tiles in registers have integers, f32, f16, bf16 and 8-bit floats, not {element}", op)


@dataclass(frozen=True, slots=True)
class Rooms:
    """Shared memory of a kernel, in bytes from its start. staged: where tiles begin. exchanges: where those of operations begin.

    tiles: the staged tiles that each value may be a name of. reused: tiles in whose place something else stands at another time. multiplied:
    those that warpgroups multiply. bytes: of all.
    """

    staged: Mapping[SSAValue, int]
    exchanges: Mapping[Operation, int]
    tiles: Mapping[SSAValue, Sequence[SSAValue]]
    reused: frozenset[SSAValue]
    multiplied: frozenset[SSAValue]
    bytes: int


@dataclass(slots=True)
class Accesses:
    """Accesses since the CTA's threads last met: a thread may load another one's stores, and the other way.

    loads, stores: of global memory. takes, puts: of staged tiles in shared memory, loads, and stores or copies that have arrived.
    unseen: tiles that warpgroups multiply and that were stored or copied since the last proxy fence: products do not see them yet.
    unfenced: other tiles that were, where bulk copies may write at another time. unpublished: stores to global memory since the last
    fence for bulk copies. A meeting alone changes none of these.
    """

    loads: bool = False
    stores: bool = False
    takes: bool = False
    puts: bool = False
    unseen: bool = False
    unfenced: bool = False
    unpublished: bool = False

    def join(self, other: Accesses) -> None:
        """These and the others may have been made."""
        self.loads |= other.loads
        self.stores |= other.stores
        self.takes |= other.takes
        self.puts |= other.puts
        self.unseen |= other.unseen
        self.unfenced |= other.unfenced
        self.unpublished |= other.unpublished


@dataclass(frozen=True, slots=True)
class Byte:
    """The second place of an 8-bit element. word: a register with four. flipped: that with the other signs, of integers. number: which of them."""

    word: Reg
    flipped: Reg
    number: int


@dataclass(slots=True)
class Lowering:
    """k: the builder. warps: of a CTA. prologue: what is computed once, before everything else. lower_block: lowers a region.

    multiplies: whether warpgroups multiply anything from here on. pending: whether such products are under way. promoted: totals, and
    what is added to each when they are done.
    in_chunks: whether addresses are known; else elements, moved one by one, leave no registers to spare.

    target: the kernel's target. rooms: the places in shared memory. runs: which integers are multiples.
    known: what is known of integers and addresses. tests: how conditions were computed. packed: neighbouring elements of 8 or 16 bits that are in one register too.
    bytes: elements of 8 bits that are in another register too. copied: staged tiles that `cp.async` brings.
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
    packed: dict[Registers, Reg] = field(default_factory=dict[Registers, Reg])
    bytes: dict[Reg, Byte] = field(default_factory=dict[Reg, Byte])
    copied: set[SSAValue] = field(default_factory=set[SSAValue])
    multiplies: bool = False
    pending: bool = False
    promoted: Sequence[tuple[Reg, Reg]] = ()
    in_chunks: bool = True
    _once: dict[object, Reg] = field(default_factory=dict[object, Reg])
    _layouts: dict[Attribute, Layout] = field(default_factory=dict[Attribute, Layout])

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return self.warps * LANES

    @property
    def means(self) -> Means:
        """The means of exchanges on the target."""
        return Means.of(self.target)

    def multiple(self, value: SSAValue) -> int:
        """A power of two that divides an integer, whatever a loop adds to it."""
        run = self.runs.of(value, 0, 1)
        return 1 if run is None else run.multiple

    def provides(self, op: Instruction) -> bool:
        """Whether the target has an instruction."""
        return provides(self.target.name, op.requires.target)

    def layout(self, value: SSAValue) -> Layout:
        """The layout of a tile in registers."""
        tensor = tensor_of(value)
        if tensor not in self._layouts:
            encoding = register_encoding(tensor)
            if encoding is None:
                raise ValueError(f"a tile that is lowered has an encoding, got {tensor}: run assign-encodings")
            self._layouts[tensor] = encoding.layout(tensor.get_shape())
        return self._layouts[tensor]

    def scalar(self, value: SSAValue) -> Reg:
        """The register of a scalar."""
        (register,) = self.values[value]
        return register

    def emit(self, op: Instruction, *args: Reg | Imm | float | tuple[Reg, ...]) -> Reg:
        """The result of an instruction, in a new register."""
        result = self.k.reg(op.operands[0].type)
        self.k.emit(op, result, *args)
        return result

    def copy(self, register: Reg) -> Reg:
        """A new register with the same content."""
        return self.k.mov(register)

    # --- once a kernel ---------------------------------------------------------------------------------------------
    def constant(self, number: float, kind: RegType) -> Reg:
        """A register that holds a number from the start."""
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
        """Holds in the thread that begins bulk copies, one of the first warp: the assembler knows then that it is one."""
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
        """The address in shared memory that is as far on as the exclusive or of the weights of the thread's bits."""
        if not any(weights):
            return self._symbol
        return self._first(
            ("staged", tuple(weights)),
            lambda: self.k.add(self._first(("bits", tuple(weights)), lambda: self._combine(weights)), self._symbol),
        )

    def room(self, op: Operation, weights: Sequence[int] = ()) -> Reg:
        """The address of what an operation exchanges, as far on as the weights of the thread's bits."""
        start = self.rooms.exchanges[op]
        return self.k.add(self.staged_address(weights), start) if start else self.staged_address(weights)

    def origin(self, layout: Layout, dimension: int) -> Reg | None:
        """The offset of the thread's elements along a dimension; None where it is 0 for every thread."""
        return self.combined([step[dimension] for step in layout.thread])

    def combined(self, weights: Sequence[int]) -> Reg | None:
        """The sum of the weights of the bits that the thread's number has; weights share no bit."""
        if not any(weights):
            return None
        found = self._first(("bits", tuple(weights)), lambda: self._combine(weights))
        least = min(weight for weight in weights if weight)
        self.known.has(found, Facts(least & -least, WHOLE, sum(weights)))
        return found

    def owner(self, layout: Layout) -> Reg | None:
        """Holds in one of the threads that have the same elements; None where no other one has."""
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
        """The exclusive or of the weights of the bits that the thread's number has: bits that move equally far move together."""
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
    def barrier(self, *, fenced: bool = True) -> None:
        """All threads of the CTA meet, and see each other's accesses. fenced: products of warpgroups see them too."""
        self.finish_products()
        if fenced and self.accesses.unseen and self.multiplies:
            self.fence()
        self.k.barrier_sync(0, self.threads)
        self.accesses = Accesses(
            unseen=self.accesses.unseen, unfenced=self.accesses.unfenced, unpublished=self.accesses.unpublished
        )

    def finish_products(self) -> None:
        """Products of warpgroups that are under way are done: their sums may be read, and what they read written."""
        if self.pending:
            self.k.emit(WgmmaWait(0))
            for total, partial in self.promoted:
                self.k.add_f32(total, partial, into=total)
            self.pending, self.promoted = False, ()

    def fence(self) -> None:
        """Each thread fences what it wrote itself, before the threads meet."""
        if self.accesses.unseen or self.accesses.unfenced:
            self.k.fence_proxy_async()
            self.accesses.unseen = self.accesses.unfenced = False

    def begin_load(self) -> None:
        """Before a load from global memory: the program's earlier stores are there."""
        if self.accesses.stores:
            self.barrier()
        self.accesses.loads = True

    def begin_store(self) -> None:
        """Before a store: what the program loads before, in any thread, has been loaded."""
        if self.accesses.stores or self.accesses.loads:
            self.barrier()
        self.accesses.stores = self.accesses.unpublished = True

    def begin_take(self) -> None:
        """Before a staged tile is loaded: the threads' stores to it are there."""
        if self.accesses.puts:
            self.barrier()
        self.accesses.takes = True

    def begin_products(self) -> None:
        """Before warpgroups multiply staged tiles: the threads' stores to it are there, and the tensor cores see it."""
        if self.accesses.unseen:
            self.barrier()
        self.begin_take()

    def begin_put(self, tile: SSAValue, *, free: bool) -> None:
        """Before a tile is staged: the old contents have been loaded by all threads. free: nobody has loaded it since they met."""
        reused = not self.rooms.reused.isdisjoint(self.rooms.tiles[tile])
        if not free and (self.accesses.takes or (self.accesses.puts and reused)):
            # The fence follows the stores.
            self.barrier(fenced=False)
        self.have_put(tile)

    def have_put(self, *names: SSAValue, fenced: bool = False) -> None:
        """Tiles have been stored to shared memory, or copies have arrived. fenced: and then fenced by the threads that did so."""
        self.accesses.puts = True
        if fenced:
            return
        tiles = {tile for name in names for tile in self.rooms.tiles[name]}
        self.accesses.unseen |= not self.rooms.multiplied.isdisjoint(tiles)
        self.accesses.unfenced |= not self.rooms.reused.isdisjoint(tiles)

    def begin_copy(self) -> None:
        """Before a tile is copied to shared memory: the old contents have been loaded by all threads."""
        if self.accesses.takes or self.accesses.puts:
            self.barrier()

    def begin_exchange(self, *, alone: bool, fenced: bool = True) -> None:
        """Before elements are put where others take them: the old contents have been loaded. alone: by the same warp."""
        if alone:
            self._meet_in_warp()
        elif self.accesses.takes or self.accesses.puts:
            self.barrier(fenced=fenced)

    def take_exchanged(self, *, alone: bool) -> None:
        """Between the stores of an exchange and its loads. alone: each warp loads what it has stored."""
        self.accesses.puts = self.accesses.unfenced = True
        if alone:
            self._meet_in_warp()
        else:
            self.barrier()
        self.accesses.takes = True

    def _meet_in_warp(self) -> None:
        self.k.emit(WarpSync(), (1 << LANES) - 1)

    def inverted(self, predicate: Reg) -> Reg:
        """Its opposite."""
        return self.emit(Not("pred"), predicate)

    def both(self, a: Reg | None, b: Reg | None) -> Reg | None:
        """Both conditions; None always holds."""
        if a is None or b is None:
            return a or b
        return self.k.and_pred(a, b)
