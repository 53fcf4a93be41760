"""Launches of a product: a kernel on a device, its sparse operand, and the arguments that each call binds, for the memory of a
device or of the emulator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from louver.choose.ranges import Cutting, Ranges, tiles_of_cluster, walked_rows
from louver.compile.signature import ARRAYS, ArgumentParameter, BoxParameter, BoxSizeParameter, Signature
from louver.formats.pattern import LIFTED
from louver.ir.polynomial import Numbers
from louver.library.compiled import BuiltKernel
from louver.library.forms import Operand
from louver.library.fused import NOTHING_BOUND, Bound
from louver.library.rows import Held, RecentMaps, Rows
from louver.runtime.adapters import DEFAULT_STREAMS
from louver.runtime.driver import capture_question, is_capturing
from louver.runtime.module import ArgumentPack, BoundLaunch, LoadedKernel, ParamType
from louver.runtime.workspace import workspace

M = TypeVar("M")
"""A tensor map: encoded for a device, or as the emulator holds it."""

MapMaker: TypeAlias = Callable[[BoxParameter, Held, Numbers], M]
"""Makes the tensor map of a box, from the memory of an array and the numbers of a launch."""


class Sized(NamedTuple):
    """The numbers that a launch computes from its sizes, without addresses.

    numbers: by name.
    ctas: CTAs of the grid.
    cut: the cut of K; None for a kernel without ranges.
    """

    numbers: dict[str, int | float]
    ctas: int
    cut: Ranges | None = None

    @classmethod
    def of(
        cls,
        signature: Signature,
        sizes: tuple[int, int, int],
        depth: int,
        maps: Mapping[str, Rows],
        sm_count: int,
        cut: Ranges | None = None,
    ) -> Sized:
        """The numbers of a product of sizes M, N and K.

        depth: rows of b that each row of a is multiplied with.
        maps: the matrices "a", "b" and "d".
        cut: the cut of K, for a kernel that has ranges.
        """
        assert signature.grid is not None, "the library computes the grids of products"
        (m, n, k), d = sizes, maps["d"]
        pitch, batch_pitch = d.pitch // d.element_bytes, d.batch_pitch // d.element_bytes
        numbers: dict[str, int | float] = {"M": m, "N": n, "K": k, "batch": d.batch, "sms": sm_count, "kept": depth}
        numbers |= {"pitch": pitch, "batch_pitch": batch_pitch}
        for name, rows in maps.items():
            numbers |= rows.numbers(name)
        numbers |= {
            "b_pitch": numbers["b.stride.1"],
            "b_batch_pitch": numbers["b.stride.2"],
        }
        # Register tiles have the names of tile IR, in which strides of a sparse operand count dense elements.
        for name, rows in maps.items():
            step = LIFTED[1] // LIFTED[0] if name == "a" else 1
            numbers |= {
                f"stride_{name}": step * rows.pitch // rows.element_bytes,
                f"batch_stride_{name}": step * rows.batch_pitch // rows.element_bytes,
            }
        numbers |= {} if cut is None else cut.sizes
        numbers["raster"] = _raster(signature, (m, n, depth), maps, numbers, 1 if cut is None else cut.beside)
        return cls(numbers, signature.grid.value(numbers), cut)


def bind_product(
    signature: Signature, sized: Sized, places: Mapping[str, Held], operand: Operand, bound: Bound, made: MapMaker[M]
) -> dict[str, M | int | float]:
    """The arguments of a product.

    places: memory of its matrices "a", "b" and "d".
    operand: the sparse operand.
    bound: the operands of the epilogue.
    made: makes tensor maps.
    """
    arrays: dict[tuple[str, str], Held] = {(name, "matrix"): place for name, place in places.items()}
    arrays["metadata", "address"], arrays["lists", "address"] = Held(operand.metadata, 0), Held(operand.lists, 0)
    arrays["d", "address"], arrays["b_rows", "address"] = places["d"], places["b"]
    arrays["a", "values"], arrays["a", "metadata"] = places["a"], arrays["metadata", "address"]
    arrays["b", "address"] = places["b"]
    # A user's array of the epilogue may be named "b" too. Then the kernel has no other parameter of that name.
    arrays |= {(name, "address"): Held(address, 0) for name, address in bound.pointers.items()}
    return bind_arguments(signature, {**sized.numbers, **bound.sizes, **bound.numbers}, arrays, made)


def bind_arguments(
    signature: Signature, numbers: Numbers, arrays: Mapping[tuple[str, str], Held], made: MapMaker[M]
) -> dict[str, M | int | float]:
    """The arguments of a kernel by parameter, in the order of the parameters.

    numbers: the numbers of the launch.
    arrays: memory of each array, by argument and part.
    made: makes tensor maps.
    """
    found: dict[str, M | int | float] = {}
    for each in signature.parameters:
        if isinstance(each, BoxParameter):
            found[each.name] = made(each, arrays[each.argument, each.part], numbers)
        elif isinstance(each, BoxSizeParameter):
            assert each.box.sizes[1] is not None, "a tail ends with the array"
            found[each.name] = each.box.sizes[1].value(numbers)
        elif each.part in ARRAYS:
            found[each.name] = arrays[each.argument, each.part].address
        else:
            found[each.name] = _number(each, numbers)
    return found


def packed(types: Sequence[ParamType], values: Mapping[str, int | float | bytes]) -> ArgumentPack:
    """The arguments in the memory that the driver reads."""
    pack = ArgumentPack(types)
    pack.bind(*values.values())
    return pack


def _raster(
    signature: Signature, sizes: tuple[int, int, int], maps: Mapping[str, Rows], numbers: Numbers, parts: int
) -> int:
    """The rows of tiles that are visited before the next column begins.

    sizes: M, N and the rows of K that are multiplied.
    parts: the ranges of a tile that run beside each other.
    """
    assert signature.tile is not None and signature.at_once is not None
    (m, n, k), (tile_m, tile_n) = sizes, signature.tile
    rows, columns, at_once = -(-m // tile_m), -(-n // tile_n), signature.at_once.value(numbers) // parts
    row_bytes, column_bytes = tile_m * maps["a"].pitch, tile_n * k * maps["b"].element_bytes
    taken = tiles_of_cluster(parts, signature.cluster, pairs=signature.pairs)
    return walked_rows(rows, columns, row_bytes, column_bytes, max(1, at_once), taken)


def _number(parameter: ArgumentParameter, numbers: Numbers) -> int | float:
    """The value of a parameter that is not an address: an unsigned integer, or an f32."""
    value = numbers[parameter.number]
    if parameter.type == "f32":
        return float(value)
    if isinstance(value, float):
        # The user's kernel annotates an integer type, but the call passes a float.
        raise ValueError(f"{parameter.argument!r} is an integer, {parameter.element}, got {value}")
    return int(value) & ((1 << (64 if parameter.type == "u64" else 32)) - 1)


class CapturedApart:
    """A launch that has a workspace. Outside a capture it uses the workspace of its stream; each capture has its own.

    send, recover: as in `BoundLaunch`.

    No capture can begin on the legacy default stream, so `send` does not query the capture state there.
    """

    __slots__ = ("_asking", "send")

    def __init__(self, bind: Callable[[int], BoundLaunch], stream: int) -> None:
        self._asking = asking = _Asking(bind, stream)
        self.send: Callable[[], tuple[Any, ...]] = asking.send
        if asking.eager is not None and stream in DEFAULT_STREAMS:
            self.send = asking.eager.send

    def on(self, stream: int) -> CapturedApart:
        """The same launch on another stream, with the workspace of that stream."""
        return CapturedApart(self._asking.bind, stream)

    def recover(self, code: int) -> None:
        """Send the launch again after the driver refused it with this result code, or raise an error."""
        self._asking.now().recover(code)

    def __call__(self) -> None:
        """Send the launch. Raises as `BoundLaunch` does."""
        self._asking.now()()


class _Asking:
    """A launch that queries whether its stream is being captured, each time it is sent.

    eager: the launch outside a capture, made when it is first needed.

    It is an object of its own to avoid a reference cycle. A cycle would keep device memory until a garbage collection,
    which may come during a capture.
    """

    __slots__ = ("_capture", "bind", "eager", "stream")

    def __init__(self, bind: Callable[[int], BoundLaunch], stream: int) -> None:
        self.bind = bind
        self.stream = stream
        self._capture = capture_question(stream)
        self.eager = None if is_capturing(stream) else bind(stream)

    def send(self) -> tuple[Any, ...]:
        """Send the launch. Returns a tuple that begins with the driver's result code."""
        code, capture = self._capture()
        # The local variable keeps the launch alive, and with it the arguments that the driver reads.
        launch = self.now() if code or capture or self.eager is None else self.eager
        return launch.send()

    def now(self) -> BoundLaunch:
        """The launch for the present capture state of the stream."""
        if is_capturing(self.stream):
            return self.bind(self.stream)
        if self.eager is None:
            self.eager = self.bind(self.stream)
        return self.eager


Sendable: TypeAlias = BoundLaunch | CapturedApart
"""A launch whose arguments are all fixed."""


class Launcher:
    """A loaded kernel with its sparse operand [m, k], or a batch of them. Threads may share it, because a bound
    launch never changes.
    """

    __slots__ = ("_cutting", "_maps", "_operand", "_shape", "_types", "kernel", "signature")

    def __init__(
        self,
        product: BuiltKernel[LoadedKernel],
        operand: Operand,
        shape: tuple[int, ...],
        cutting: Cutting | None = None,
    ) -> None:
        """cutting: the properties by which K is cut; None for a kernel without ranges."""
        self._cutting = cutting
        self.kernel = product.kernel
        self.signature = product.signature
        self._shape = shape[-2:]
        self._operand = operand
        self._maps = RecentMaps()
        self._types = product.signature.types

    def sized(self, n: int, dense: Rows, out: Rows, planned: tuple[int, int] | None = None) -> Sized:
        """The numbers of a launch with such matrices. They do not depend on the addresses.

        planned: N and the number of products that decide the cut of K. A launch with more tiles is cut by its own
            sizes. By default the launch's own sizes decide.
        """
        m, k = self._shape
        maps = {"a": self._operand.values, "b": dense, "d": out}
        cut = None if self._cutting is None else self._ranges(self._cutting, n, out.batch, planned or (n, out.batch))
        return Sized.of(self.signature, (m, n, k), self._operand.depth, maps, self.kernel.device.sm_count, cut)

    def bound(self, sized: Sized, dense: Rows, out: Rows, bound: Bound = NOTHING_BOUND, stream: int = 0) -> Sendable:
        """A launch on a stream, with all arguments bound. bound: the operands of the epilogue."""

        def bind(given: Bound, to: int) -> BoundLaunch:
            places = {"a": self._operand.values.held, "b": dense.held, "d": out.held}
            values = bind_product(self.signature, sized, places, self._operand, given, self._maps)
            return self.kernel.bound(sized.ctas, packed(self._types, values), to)

        if self._cutting is None or sized.cut is None or self._cutting.pairs:
            return bind(bound, stream)
        room = self._cutting.workspace(sized.cut)
        if not sized.cut.cut:
            # No tile is cut, so the kernel uses no workspace.
            return bind(bound.with_workspace(0, 0), stream)

        def bind_now(to: int) -> BoundLaunch:
            held = workspace(self.kernel.device.ordinal, to, *room)
            return bind(bound.with_workspace(held.sums, held.counters), to)

        return CapturedApart(bind_now, stream)

    def _ranges(self, cutting: Cutting, n: int, batch: int, planned: tuple[int, int]) -> Ranges:
        m, k, sm_count = self._shape[0], self._operand.depth, self.kernel.device.sm_count
        own = cutting.best(m, n, k, batch, sm_count)
        cut = cutting.best(m, planned[0], k, planned[1], sm_count)
        return cut.of(own.tiles) if own.tiles <= cut.tiles else own
