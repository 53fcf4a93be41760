"""Measures users' kernels on the GPU: `louver.jit` with sparse tensors, Triton with the dense arrays, and cuBLAS.

A task measures a form at one large size. Processes (`workers`) compile in parallel and use the GPU in turns.
"""

from __future__ import annotations

import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import louver
from louver.isa.targets import SM_90A
from louver.library.compiled import BuiltKernel, Launch, from_json, loaded_keys
from louver.measure.forms import Call, Form, bind, compressed
from louver.measure.machine import forbid_short_sums
from louver.measure.operands import as_torch
from louver.measure.protocol import Protocol, median, spread
from louver.measure.sustained import Load, prepare, take_turns
from louver.measure.workers import Turn
from louver.ptx.sass import DisassemblerMissingError, count_products, disassemble
from louver.runtime.cache import KernelRecord
from louver.user.arguments import bind as bind_call
from louver.user.arguments import classify
from louver.user.compiled import UncleanKernelError, Wanted, assembled, is_product, record_of
from louver.user.dense import for_triton
from louver.user.explained import Unlaunched
from louver.user.hints import REGISTER_TILES, Hints
from louver.user.source import ReadOnce, TritonSource

OPTIONS = ((4, 3), (4, 4), (8, 3), (8, 4))
"""num_warps and num_stages of the dense kernel. The fastest pair counts."""

PROTOCOL = Protocol(burst_seconds=0.03, pause_seconds=0.02)

DESCRIPTION = (
    "The same kernel with its sparse arguments compressed by louver.jit, and with them dense by Triton, at one tile; Triton's best of "
    f"num_warps and num_stages {', '.join(map(str, OPTIONS))}. cuBLAS by PyTorch where the kernel is one product. Results at small "
    "sizes are compared with float64, at large ones with Triton's dense result, and with float64 where all of Triton's differ. CUDA graphs in bursts of "
    f"{PROTOCOL.burst_seconds:g} s by turns, medians of {PROTOCOL.rounds} rounds; one set of operands, so that what fits stays in the "
    "L2 cache. Compiling: from the kernel to a cubin with an empty cache, other compilers running beside; the first call adds loading "
    "and uploading."
)

_PTX_PRODUCT = re.compile(r"\b(wgmma\.mma_async|mma)(\.sp)?\b")


@dataclass(frozen=True, slots=True)
class Task:
    """A form at one of its large sizes. general: always by register tiles."""

    file: Path
    form: str
    size: int
    general: bool = False


def load_forms(path: Path) -> dict[str, Form]:
    """The forms of a Python file by name, imported as a module of its package; none for a file without `FORMS`.

    Raises ValueError for a path that is no Python file, and for duplicate names.
    """
    path = path.resolve()
    if path.suffix != ".py" or not path.is_file():
        raise ValueError(f"a file of forms is a Python file with a tuple FORMS, got {path}")
    names, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file():
        names, folder = [folder.name, *names], folder.parent
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    module = import_module(".".join(names))
    if Path(str(module.__file__)) != path:
        raise ValueError(f"files of forms have names of their own, got {path} beside {module.__file__}: rename one")
    forms: Sequence[Form] = getattr(module, "FORMS", ())
    found = {form.name: form for form in forms}
    if len(found) < len(forms):
        raise ValueError(f"forms of a file have names of their own, got two of one name in {path}")
    return found


def describe(form: Form, size: int) -> dict[str, Any]:
    """The part of a row that describes its call."""
    sizes = form.large[size]
    return {
        "form": form.name,
        "kind": form.kind,
        "tile": list(sizes.tile.values()),
        "sizes": [sizes.m, sizes.n, sizes.k],
    }


def measure(task: Task, turn: Turn) -> tuple[dict[str, Any], bool]:
    """Measure a row of `louver.measure.report.kernels`, and say whether this process can continue: CUDA's errors
    persist.

    The row has `refused` with the message if Louver refuses the kernel, and `failed` for any other error.
    """
    torch: Any = import_module("torch")
    row: dict[str, Any] = {}
    try:
        _measure(torch, task, turn, row)
    except (ValueError, UncleanKernelError) as error:
        row["refused"] = without_folder(str(error))
    except Exception as error:  # one form never stops the run
        row["failed"] = without_folder(f"{type(error).__name__}: {error}")
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except RuntimeError:
        return row, False
    return row, True


def _measure(torch: Any, task: Task, turn: Turn, row: dict[str, Any]) -> None:
    form = load_forms(task.file)[task.form]
    hints = {"family": REGISTER_TILES} if task.general else {}
    seed = zlib.crc32(form.name.encode())
    small, large = (compressed(form.call(seed, sizes)) for sizes in (form.small, form.large[task.size]))
    dense = form.call(seed, form.large[task.size])
    expected = small.expected()
    row["grid"] = list(large.grid)
    # The small kernel first: its compilation also loads the compiler.
    _compile(form, small, hints)
    begin = time.perf_counter()
    wanted, record = _compile(form, large, hints)
    row["compile_s"] = round(time.perf_counter() - begin, 3)
    row["family"] = "product" if is_product(record) else REGISTER_TILES
    row |= {name: record.resources[name] for name in ("registers", "spilled_bytes")}
    row["warnings"] = [without_folder(text) for text in record.resources["warnings"]]
    row["unit"] = _products(wanted, record)
    ready = _compile_dense(torch, form, dense)

    turn()

    def on_device(array: NDArray[Any]) -> Any:
        return as_torch(torch, array).cuda()

    ours = louver.jit(form.kernel, **hints)
    known, outs = bind(small, sparse=False, place=on_device)
    ours[small.grid](**known)
    for name, right in expected.items():
        _check(f"{name} at small sizes", outs[name].double(), on_device(right.astype(np.float64)), form.tolerance)
    known, outs = bind(large, sparse=False, place=on_device)
    begin, before = time.perf_counter(), set(loaded_keys())
    ours[large.grid](**known)
    torch.cuda.synchronize()
    row["first_call_s"] = round(row["compile_s"] + time.perf_counter() - begin, 3)
    launched = [key for key, ordinal in loaded_keys() if (key, ordinal) not in before]
    if launched and launched[-1] not in (wanted.key, wanted.product_key):
        row["other_kernel"] = (
            "the call's arrays need another kernel than the one that was compiled ahead: facts and times are not of one kernel"
        )
    theirs, results = bind(dense, sparse=False, place=on_device)

    def compare() -> None:
        for name in expected:
            _check(f"{name} beside Triton's", outs[name].double(), results[name].double(), form.tolerance)

    def settle() -> None:
        for name, right in large.expected().items():
            _check(f"{name} at large sizes", outs[name].double(), on_device(right.astype(np.float64)), form.tolerance)

    loads = _dense_loads(torch, form, dense, theirs, results, ready, (compare, settle), row)
    loads["louver"] = prepare(torch, lambda _: ours[large.grid](**known), 1, PROTOCOL)
    if dense.library is not None:
        forbid_short_sums(torch)
        product = dense.library
        loads["cublas"] = prepare(torch, lambda _: product(theirs), 1, PROTOCOL)
    times = take_turns(loads, PROTOCOL)
    row |= {f"{name}_us": round(median(taken) * 1e6, 2) for name, taken in times.items()}
    row |= {f"{name}_spread": round(spread(taken), 4) for name, taken in times.items()}
    row["tflops"] = round(large.operations / row["louver_us"] * 1e-6, 1)
    if "triton" in times:
        row["times_dense"] = round(row["triton_us"] / row["louver_us"], 3)


def without_folder(text: str) -> str:
    """The text with paths relative to the current folder, so that a record has no paths of a machine."""
    return text.replace(f"{Path.cwd()}/", "")


def _compile(form: Form, call: Call, hints: Mapping[str, Any]) -> tuple[Wanted, KernelRecord]:
    source = TritonSource(form.kernel)
    known, _ = bind(call, sparse=False)
    given, _ = bind_call(source.name, source.parameters, (), known)
    bound = classify(source.parameters, given)

    def built(wanted: Wanted) -> BuiltKernel[tuple[Wanted, KernelRecord]]:
        record = record_of(wanted)
        return BuiltKernel((wanted, record), from_json(Launch, record.launch))

    return Unlaunched(built, ReadOnce(source), Hints.of(hints), bound, call.grid, SM_90A).chosen()


def _products(wanted: Wanted, record: KernelRecord) -> dict[str, int]:
    """Matrix products by unit: `HGMMA.SP` and others from SASS; without nvdisasm `wgmma.sp` and others from PTX."""
    try:
        return dict(count_products(disassemble(record.cubin)))
    except DisassemblerMissingError:
        found = _PTX_PRODUCT.findall(assembled(wanted).kernel.made.ptx)
        return dict(Counter(unit.partition(".")[0] + sparse for unit, sparse in found))


def _compile_dense(torch: Any, form: Form, call: Call) -> dict[tuple[int, int], str | None]:
    """Compile Triton's kernels for all options. The value is None, or the reason why a kernel does not compile."""
    import triton

    def memory(size: int, alignment: int, stream: int | None) -> Any:
        return torch.empty(size, dtype=torch.int8, device="cuda")

    triton.set_allocator(memory)

    known, _ = bind(call, sparse=False, place=partial(as_torch, torch))
    native = {name: for_triton(name, value) for name, value in known.items()}
    found: dict[tuple[int, int], str | None] = {}
    for warps, stages in OPTIONS:
        try:
            form.kernel.warmup(grid=call.grid, **native, num_warps=warps, num_stages=stages)
            found[warps, stages] = None
        except Exception as error:  # any error of Triton's compiler
            found[warps, stages] = f"{type(error).__name__}: {error}"
    return found


def _dense_loads(
    torch: Any,
    form: Form,
    call: Call,
    known: Mapping[str, Any],
    outs: Mapping[str, Any],
    ready: Mapping[tuple[int, int], str | None],
    checks: tuple[Callable[[], None], Callable[[], None]],
    row: dict[str, Any],
) -> dict[str, Load]:
    """Triton's best kernel, as "triton". The row gets its options, or the reason why there is none.

    Options whose result differs from Louver's are left out. checks: compare Louver's result with Triton's, and with
    float64. The second runs only if every option differs. Both raise ArithmeticError.
    """
    compare, settle = checks
    native = {name: for_triton(name, value) for name, value in known.items()}
    blank = {name: out.clone() for name, out in outs.items()}
    found: list[tuple[float, str, Load]] = []
    wrong: dict[str, ArithmeticError] = {}
    reasons = dict(ready)
    for (warps, stages), reason in ready.items():
        if reason is not None:
            continue
        options = {"num_warps": warps, "num_stages": stages}

        def launch(_: int, options: dict[str, int] = options) -> None:
            form.kernel[call.grid](**native, **options)

        for name, out in outs.items():
            out.copy_(blank[name])
        try:
            launch(0)
            torch.cuda.synchronize()
        except Exception as error:  # for example, too much shared memory
            reasons[warps, stages] = f"{type(error).__name__}: {error}"
            continue
        try:
            compare()
        except ArithmeticError as error:
            wrong[f"num_warps={warps}, num_stages={stages}"] = error
            continue
        load = prepare(torch, launch, 1, PROTOCOL)
        found.append((load.burst(), f"num_warps={warps}, num_stages={stages}", load))
    if wrong:
        # Options that agree with Louver show that these options are wrong.
        row["triton_wrong"] = list(wrong)
    if wrong and not found:
        settle()
        row["triton"] = "its result differs from float64 with every option, and ours does not"
        return {}
    if not found:
        row["triton"] = next(reason for reason in reasons.values() if reason is not None)
        return {}
    _, row["options"], load = min(found, key=lambda each: each[0])
    return {"triton": load}


def _check(what: str, got: Any, right: Any, tolerance: float) -> None:
    """Raises ArithmeticError if arrays differ by more than `tolerance` times the greatest result plus each result."""
    greatest = right.abs().max()
    over = ((got - right).abs() - tolerance * right.abs()).max() / greatest
    # A comparison with NaN is false.
    if not over <= tolerance:
        raise ArithmeticError(
            f"{what} is wrong: off by {float(over):.2e} of the greatest result, beyond {tolerance:.2e} of its own"
        )
