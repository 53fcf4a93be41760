"""A call on a device: a kernel chosen for its arrays' alignment, its arguments bound, ready to be launched again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from louver.compile.signature import Signature, parameter_name
from louver.compile.tile_signature import TileSignature
from louver.formats.tensor import SparseTensor
from louver.isa.targets import target as machine
from louver.library.launch import Rows, parameter_type
from louver.library.operand import DeviceOperand
from louver.library.state import TensorState
from louver.runtime.arrays import ArrayView
from louver.runtime.device import device
from louver.runtime.driver import DriverError, device_context, is_capturing
from louver.runtime.module import ArgumentPack, BoundLaunch, LoadedKernel
from louver.runtime.tensormap import encode
from louver.user.arguments import Call
from louver.user.bind_product import Matrix, PartError, ProductCall, bind_product, check_alignment, check_direct
from louver.user.bind_tiles import ADDRESSES, UnmappableError, check_tiles, number, tensor_maps
from louver.user.compiled import (
    UserKernel,
    Variant,
    Wanted,
    apart_of,
    ctas_of,
    is_loaded,
    loaded,
    multiples_of,
    target_of,
)
from louver.user.gated_pairs import is_made
from louver.user.gated_pairs import operand as operand_of
from louver.user.hints import Hints
from louver.user.retile import schedule_of, sized
from louver.user.source import KernelSource


@dataclass(frozen=True, slots=True)
class Ready:
    """A bound launch. What it reads of sparse tensors lives as long as they do. product: whether it is one, or register tiles."""

    kernel: LoadedKernel
    grid: int | tuple[int, int, int]
    pack: ArgumentPack
    product: bool

    def bound(self, stream: int) -> BoundLaunch:
        """The launch to a stream."""
        return self.kernel.bound(self.grid, self.pack, stream)


def ready(source: KernelSource, hints: Hints, call: Call, grid: Sequence[int], ordinal: int, stream: int) -> Ready:
    """The call on device `ordinal`, compiled, loaded and uploaded the first time.

    Raises ValueError where sizes, arrays and grid do not fit together, UnsupportedKernelError for a kernel that cannot be
    compiled, and RuntimeError when something would have to be compiled or uploaded while `stream` is being captured.
    """
    with device_context(ordinal):
        target = target_of(ordinal)
        sm_count = device(ordinal).sm_count
        marks = multiples_of(call), apart_of(call), ctas_of(grid, sm_count)
        wanted = Wanted(source, call.kind, hints, "bulk", target, *marks, sized=sized(call, grid, sm_count))
        kernel = _loaded(wanted, ordinal, stream)
        if kernel.facts is None:
            try:
                return _ready_tiles(source.name, kernel, call, grid, ordinal, stream)
            except UnmappableError:
                kernel = _loaded(Wanted(source, call.kind, hints, "tiles", target, *marks), ordinal, stream)
                return _ready_tiles(source.name, kernel, call, grid, ordinal, stream)
        try:
            bound = bind_product(source.name, kernel.facts, call, grid)
        except PartError as error:
            if hints.schedule:
                raise
            try:
                kernel = _loaded(Wanted(source, call.kind, hints, "tiles", target, *marks), ordinal, stream)
                return _ready_tiles(source.name, kernel, call, grid, ordinal, stream)
            except ValueError:
                raise error from None
        dense, out = (_rows(matrix, call) for matrix in (bound.dense, bound.out))
        if not dense.aligned:
            if hints.schedule:
                check_alignment(source.name, bound, dense)
            kernel = _loaded(Wanted(source, call.kind, hints, "tiles", target, *marks), ordinal, stream)
            return _ready_tiles(source.name, kernel, call, grid, ordinal, stream)
        schedule = None
        if not hints.schedule:
            sizes = bound.m, bound.n, bound.batch
            schedule = schedule_of(kernel.facts, sizes, machine(target), sm_count, aligned_output=out.bulk_writable)
        if schedule not in (None, kernel.schedule):
            variant: Variant = "bulk" if out.bulk_writable else "direct"
            kernel = _loaded(Wanted(source, call.kind, hints, variant, target, schedule=schedule), ordinal, stream)
        elif kernel.stores_in_bulk and not out.bulk_writable:
            kernel = _loaded(Wanted(source, call.kind, hints, "direct", target), ordinal, stream)
            check_direct(source.name, bound, out, "bulk" if kernel.stores_in_bulk else "direct")
        return _ready_product(source.name, kernel, call, bound, stream)


def _ready_product(name: str, kernel: UserKernel, call: Call, bound: ProductCall, stream: int) -> Ready:
    signature, ordinal = kernel.signature, kernel.kernel.device.ordinal
    assert isinstance(signature, Signature)
    parts = [call.sparse[argument] for argument in bound.sparse]
    if not is_made(parts):
        _refuse_capture(name, "uploaded", stream)
    s = operand_of(parts)
    state, words = s.derived.of(TensorState), kernel.metadata_words
    if not state.has_operand(ordinal, words):
        _refuse_capture(name, "uploaded", stream)
    operand = state.operand(s, ordinal, words)
    dense, out = (_rows(matrix, call) for matrix in (bound.dense, bound.out))
    pack = _pack(signature, bound, call, operand, {"a": _values(operand, s, bound.entries), "b": dense, "d": out})
    ctas = signature.grid(bound.m, bound.n, kernel.kernel.device.sm_count, bound.batch)
    return Ready(kernel.kernel, ctas, pack, True)


def _ready_tiles(name: str, kernel: UserKernel, call: Call, grid: Sequence[int], ordinal: int, stream: int) -> Ready:
    signature = kernel.signature
    assert isinstance(signature, TileSignature)
    check_tiles(name, signature, call, grid)
    held = {(argument, "address"): _held(array) for argument, array in call.arrays.items()}
    for argument, element in signature.metadata:
        s = call.sparse[argument]
        state = s.derived.of(TensorState)
        if not state.has_tiles(ordinal, element):
            _refuse_capture(name, "uploaded", stream)
        operand = state.tiles(s, ordinal, element)
        parts = (("values", operand.values), ("metadata", operand.metadata))
        held |= {(argument, part): (buffer.address, buffer.nbytes) for part, buffer in parts}
    maps = tensor_maps(signature, call, grid, held)
    pack = ArgumentPack([parameter.type for parameter in (*signature.parameters, *signature.boxes)])
    for index, parameter in enumerate(signature.parameters):
        place = (parameter.argument, parameter.part)
        pack[index] = held[place][0] if parameter.part in ADDRESSES else number(parameter, call)
    for index, box in enumerate(signature.boxes, len(signature.parameters)):
        try:
            pack[index] = encode(maps[box.name])
        except DriverError as error:
            raise UnmappableError(str(error)) from error
    x, y, z = (*grid, 1, 1)[:3]
    return Ready(kernel.kernel, (x, y, z), pack, False)


def _held(array: ArrayView) -> tuple[int, int]:
    """Where an array begins, and how many bytes it has from there on."""
    return array.address, array.byte_range[1] - array.address


def _loaded(wanted: Wanted, ordinal: int, stream: int) -> UserKernel:
    if not is_loaded(wanted, ordinal):
        _refuse_capture(wanted.source.name, "compiled", stream)
    return loaded(wanted, ordinal)


def _refuse_capture(name: str, what: str, stream: int) -> None:
    if is_capturing(stream):
        raise RuntimeError(
            f"{name} must be {what} before its stream is captured: make the call once before the capture, or call "
            f"louver.jit({name}).prepare[grid](…) with the same arguments"
        )


def _rows(matrix: Matrix, call: Call) -> Rows:
    array = call.arrays[matrix.argument]
    return matrix.at(array.address, array.element.bytes)


def _values(operand: DeviceOperand, s: SparseTensor, entries: int) -> Rows:
    m = s.rows // entries
    return Rows(
        operand.values.address,
        operand.kept,
        m,
        operand.pitch,
        operand.element_bytes,
        None,
        entries,
        m * operand.pitch,
    )


def _pack(
    signature: Signature, bound: ProductCall, call: Call, operand: DeviceOperand, maps: dict[str, Rows]
) -> ArgumentPack:
    pointers = {parameter_name(argument): array.address for argument, array in call.arrays.items()}
    pointers |= {"metadata": operand.metadata.address, "d": maps["d"].address}
    values = signature.bind(
        lambda parameter: encode(maps[parameter.operand].tensor_map(parameter)), pointers, bound.sizes, bound.numbers
    )
    pack = ArgumentPack([parameter_type(parameter) for parameter in signature.parameters])
    for index, value in enumerate(values.values()):
        pack[index] = value
    return pack
