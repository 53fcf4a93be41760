"""The check of shared memory: every form passes at the tile that is timed, and what the check is for is found."""

from __future__ import annotations

import importlib.util
import zlib

import pytest

from louver.compile.check.events import ProtocolError
from louver.compile.check.shared_memory import check_shared_memory
from louver.compile.compiled import CompiledKernel, CompiledTiles
from louver.compile.defect import DefectError
from louver.compile.lower.tiles.rotate import rotate_loops
from louver.compile.pipeline import CHECK
from louver.isa.targets import SM_90A
from louver.library.compiled import BuiltKernel, Launch
from louver.measure.forms import Call, Form, bind, compressed
from louver.ptx.module import Kernel
from louver.user.arguments import bind as bind_call
from louver.user.arguments import classify
from louver.user.compiled import Wanted, compile_wanted
from louver.user.explained import Unlaunched
from louver.user.hints import Hints
from louver.user.source import ReadOnce, TritonSource
from support.removal import removals
from support.triton.forms.find import FILES, forms

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

EVERY = [pytest.param(form, id=form.name.replace(" ", "_")) for file in FILES for form in forms(file).values()]


def compiled(form: Form, call: Call) -> CompiledKernel:
    """The kernel that a call of the form runs on an H200."""
    source = TritonSource(form.kernel)
    known, _ = bind(compressed(call), sparse=False)
    given, _ = bind_call(source.name, source.parameters, (), known)

    def built(wanted: Wanted) -> BuiltKernel[CompiledKernel]:
        kernel = compile_wanted(wanted)
        return BuiltKernel(kernel, Launch.of(kernel.made))

    bound = classify(source.parameters, given)
    return Unlaunched(built, ReadOnce(source), Hints.of({}), bound, call.grid, SM_90A).chosen()


@pytest.mark.sampled(7, every=2)
@pytest.mark.parametrize("form", EVERY)
def test_form_at_its_timed_tile(form: Form) -> None:
    made = compiled(form, form.call(zlib.crc32(form.name.encode()), (form.large or (form.small,))[0])).made
    if isinstance(made, CompiledTiles):
        check_shared_memory(made.kernel, made.signature)


WAIT = [
    "wgmma.fence.sync.aligned;",
    "wgmma.wait_group.sync.aligned 0;",
    "one group of wgmma.wait_group.sync.aligned 0;",
]
"""A fence of sums that only products use in a loop, and the wait of its last step, before the wait behind it."""

BEGUN = ["barrier.sync.aligned 0, 128;"]
"""A barrier before the first copies, when nothing has been read."""

STORED = ["bar.warp.sync 4294967295;", "barrier.sync.aligned 0, 128;"]
"""Order between the stores and loads of one warp, whose lanes run in lock step here."""


@pytest.mark.parametrize(
    ("file", "name", "unseen"),
    [("boxes", "pointed tiles", WAIT + STORED), ("addresses", "first operand listed, warpgroups", BEGUN)],
)
def test_missing_order_is_found(file: str, name: str, unseen: list[str]) -> None:
    form = forms(file)[name]
    made = compiled(form, form.call(1, form.small)).made
    assert isinstance(made, CompiledTiles)
    assert check_shared_memory(made.kernel, made.signature).unreached == 0
    missed: list[str] = []
    for each in removals(made.kernel):
        try:
            check_shared_memory(each.kernel, made.signature)
        except ProtocolError as error:
            assert str(error).startswith("accesses to shared memory are in order, got ")
        else:
            missed.append(each.what)
    assert missed == unseen


def test_a_first_call_checks_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    form = forms("addresses")["rows listed"]
    call = form.call(1, form.small)

    def damaged(kernel: Kernel) -> None:
        rotate_loops(kernel)
        kernel.body = next(each.kernel for each in removals(kernel) if "cp.async.wait_group" in each.what).body

    monkeypatch.setattr("louver.compile.pipeline.rotate_loops", damaged)
    compiled(form, call)
    monkeypatch.setenv(CHECK, "1")
    with pytest.raises(DefectError, match="accesses to shared memory are in order, got shared byte"):
        compiled(form, call)
