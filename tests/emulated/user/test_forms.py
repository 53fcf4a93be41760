"""Forms of kernels that people write, on the emulator: right in every element of poisoned outputs."""

from __future__ import annotations

import importlib.util
import zlib
from dataclasses import replace

import numpy as np
import pytest

import louver
from louver.emulator import Report
from louver.measure.forms import Form, Sizes, bind
from support.triton.forms.find import FILES, forms
from support.triton.results import check

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

EVERY = [pytest.param(form, id=form.name.replace(" ", "_")) for file in FILES for form in forms(file).values()]

INSIDE = [each for each in EVERY if each.id != "first_operand_unmasked"]
"""Forms that stay inside their dense arrays. The other one reads columns behind the last row, beside zeros."""


def run(form: Form, *, sparse: bool) -> Report | None:
    call = form.call(zlib.crc32(form.name.encode()), form.small)
    known, outs = bind(call, sparse=sparse)
    kernel = louver.jit(form.kernel)
    report = (kernel.emulate[call.grid] if sparse else kernel[call.grid])(**known)
    check(call, outs, form.tolerance, form.tolerance)
    return report


@pytest.mark.parametrize("form", EVERY)
def test_sparse_on_the_emulator(form: Form) -> None:
    run(form, sparse=True)


@pytest.mark.parametrize(
    ("file", "name", "dimensions"),
    [
        ("tutorials", "projected attention", 3),
        ("chains", "attention of a projection", 2),
        ("chains", "chunked state", 2),
        ("chains", "two layers", 2),
    ],
)
def test_unmasked_rows_and_heads_are_copied_in_boxes(file: str, name: str, dimensions: int) -> None:
    report = run(replace(forms(file)[name], small=Sizes(128, 64, 128, 64, 64, 64)), sparse=True)
    assert report is not None and any(f"bulk.tensor.{dimensions}d" in each for each in report.instructions)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("sparse_tiles", "sparse tile added"),
        ("sparse_tiles", "sparse tile masked along K"),
        ("sparse_tiles", "sparse tile summed"),
        ("sparse_tiles", "sum along the axis that is not sparse"),
        ("scaled", "int8 activations"),
    ],
)
def test_tiles_that_are_changed_are_copied_in_boxes(file: str, name: str) -> None:
    report = run(replace(forms(file)[name], small=Sizes(136, 144, 208, 128, 128, 64)), sparse=True)
    assert report is not None and any("bulk.tensor.2d" in each for each in report.instructions)
    assert not any(each.startswith("cp.async.c") for each in report.instructions)


@pytest.mark.parametrize("form", INSIDE)
def test_dense_by_the_interpreter(form: Form) -> None:
    run(form, sparse=False)


def _share(share: int) -> None:
    form = forms("splits")["parts of K apart"]
    call = form.call(1, form.small)
    known, outs = bind(call, sparse=True)
    louver.jit(form.kernel).emulate[call.grid](**{**known, "share": share})
    x, w = (call.arguments[name].astype(np.float64) for name in "xw")
    for part, found in enumerate(outs["y"]):
        columns = slice(part * share, min((part + 1) * share, form.small.k))
        np.testing.assert_allclose(found, w[:, columns] @ x[:, columns].T, atol=0.05)


def test_parts_of_k_are_whole_groups_of_a_sparse_row() -> None:
    with pytest.raises(ValueError, match="parts_apart takes share in multiples of 4, got 66"):
        _share(66)


def test_parts_of_k_need_not_be_whole_words_of_a_sparse_row() -> None:
    _share(68)
