"""Several dots in one kernel: all of them are products of warpgroups, fed by copies ahead, and the assembler finds no fault."""

from __future__ import annotations

import importlib.util

import pytest

import louver
from louver.measure.forms import Form, bind
from louver.ptx.assembler import assemble
from support.triton.forms.find import forms

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)


@pytest.mark.parametrize(
    "form", [pytest.param(form, id=name.replace(" ", "_")) for name, form in forms("chains").items()]
)
def test_dots_are_products_of_warpgroups(form: Form) -> None:
    known, _ = bind(form.call(0, form.small), sparse=True)
    ptx = louver.jit(form.kernel).explain(**known).ptx
    assert "wgmma.mma_async.sp" in ptx and "cp.async" in ptx
    assert "\nmma." not in ptx and " mma." not in ptx
    assert assemble(ptx, "sm_90a").faults == ()
