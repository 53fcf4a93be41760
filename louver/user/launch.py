"""A call on a device: a kernel chosen for its arrays' alignment, its arguments bound, ready to be launched again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from louver.formats.tensor import SparseTensor
from louver.kernels.launch import Rows, parameter_type
from louver.kernels.operand import DeviceOperand
from louver.kernels.state import states
from louver.passes.signature import MapParameter, NumberParameter, PointerParameter, Signature, SizeParameter
from louver.runtime.driver import device_context, is_capturing
from louver.runtime.module import ArgumentPack, BoundLaunch, LoadedKernel
from louver.runtime.tensormap import encode
from louver.user.arguments import Call
from louver.user.bind_product import ProductCall, bind_product, check_alignment, check_direct
from louver.user.compiled import UserKernel, Wanted, is_loaded, loaded, target_of
from louver.user.hints import Hints
from louver.user.source import KernelSource


@dataclass(frozen=True, slots=True)
class Ready:
    """A bound launch. What it reads of sparse tensors lives as long as they do."""

    kernel: LoadedKernel
    grid: int | tuple[int, int, int]
    pack: ArgumentPack

    def bound(self, stream: int) -> BoundLaunch:
        """The launch to a stream."""
        return self.kernel.bound(self.grid, self.pack, stream)


def ready(source: KernelSource, hints: Hints, call: Call, grid: Sequence[int], ordinal: int, stream: int) -> Ready:
    """The call on device `ordinal`, compiled, loaded and uploaded the first time.

    Raises ValueError where sizes, arrays and grid do not fit together, UnsupportedKernelError for a kernel that cannot be
    compiled, and RuntimeError when something would have to be compiled or uploaded while `stream` is being captured.
    """
    with device_context(ordinal):
        return _ready_product(source, hints, call, grid, ordinal, stream)


def _ready_product(
    source: KernelSource, hints: Hints, call: Call, grid: Sequence[int], ordinal: int, stream: int
) -> Ready:
    target = target_of(ordinal)
    wanted = Wanted(source, call.kind, hints, "bulk", target)
    kernel = _loaded(wanted, ordinal, stream)
    bound = bind_product(source.name, kernel.facts, call, grid)
    out, dense = (_rows(bound, call, which) for which in ("out", "dense"))
    check_alignment(source.name, bound, dense)
    if kernel.stores_in_bulk and not out.bulk_writable:
        kernel = _loaded(Wanted(source, call.kind, hints, "direct", target), ordinal, stream)
        check_direct(source.name, bound, out, "bulk" if kernel.stores_in_bulk else "direct")
    s = call.sparse[bound.s]
    operand = _operand(s, kernel, source.name, ordinal, stream)
    pack = _pack(kernel.signature, bound, call, operand, {"a": _values(operand, s), "b": dense, "d": out})
    ctas = kernel.signature.grid(bound.m, bound.n, kernel.kernel.device.sm_count, bound.batch)
    return Ready(kernel.kernel, ctas, pack)


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


def _operand(s: SparseTensor, kernel: UserKernel, name: str, ordinal: int, stream: int) -> DeviceOperand:
    state = states().of(s)
    words = kernel.metadata_words
    if not state.has_operand(ordinal, words):
        _refuse_capture(name, "uploaded", stream)
    return state.operand(s, ordinal, words)


def _rows(bound: ProductCall, call: Call, which: str) -> Rows:
    matrix = bound.out if which == "out" else bound.dense
    array = call.arrays[matrix.argument]
    return matrix.at(array.address, array.element.bytes)


def _values(operand: DeviceOperand, s: SparseTensor) -> Rows:
    m = s.shape[-2]
    return Rows(
        operand.values.address,
        operand.kept,
        m,
        operand.pitch,
        operand.element_bytes,
        None,
        prod(s.shape[:-2]),
        m * operand.pitch,
    )


def _pack(
    signature: Signature, bound: ProductCall, call: Call, operand: DeviceOperand, maps: dict[str, Rows]
) -> ArgumentPack:
    pointers = {name: array.address for name, array in call.arrays.items()}
    pointers |= {"metadata": operand.metadata.address, "d": maps["d"].address}
    pack = ArgumentPack([parameter_type(parameter) for parameter in signature.parameters])
    for index, parameter in enumerate(signature.parameters):
        match parameter:
            case MapParameter():
                pack[index] = encode(maps[parameter.operand].tensor_map(parameter))
            case PointerParameter():
                pack[index] = pointers[parameter.name]
            case SizeParameter():
                pack[index] = bound.sizes[parameter.name]
            case NumberParameter():
                pack[index] = bound.numbers[parameter.name]
    return pack
