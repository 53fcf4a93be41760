"""What register tiles make of forms: which copies, exchanges and registers."""

from __future__ import annotations

import importlib.util
import re

import pytest

from louver.compile.compiled import CompiledTiles, TileLevel
from louver.measure.forms import Form, bind
from louver.user.arguments import bind as bind_call
from louver.user.arguments import classify
from louver.user.compiled import Wanted, apart_of, compile_wanted, multiples_of
from louver.user.hints import Hints
from louver.user.source import TritonSource
from support.triton.forms.find import forms

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)


def text_of(form: Form, stage: TileLevel) -> str:
    """A stage of a form's kernel for its large sizes' types, at small sizes that are multiples of its tile."""
    tile = form.large[0]
    source = TritonSource(form.kernel)
    call = form.call(1, type(tile)(2 * tile.BM, 2 * tile.BN, 4 * tile.BK, tile.BM, tile.BN, tile.BK))
    given, _ = bind_call(source.name, source.parameters, (), bind(call, sparse=True)[0])
    bound = classify(source.parameters, given)
    made = compile_wanted(
        Wanted(source, bound.kind, Hints(), "bulk", "sm_90a", multiples_of(bound), apart_of(bound))
    ).made
    assert isinstance(made, CompiledTiles)
    return made.text(stage)


@pytest.mark.parametrize(
    ("file", "name"),
    [("splits", "the last program adds"), ("models", "part of a weight"), ("pytorch", "mm + mm, one sparse")],
)
def test_tiles_that_begin_at_a_number_or_wrap_along_columns_are_boxes(file: str, name: str) -> None:
    ptx = text_of(forms(file)[name], "ptx")
    assert "cp.async.bulk.tensor" in ptx and not re.search(r"cp\.async\.c[ag]", ptx)


def test_a_flipped_product_is_exchanged_once() -> None:
    text = text_of(forms("operations")["product finished by flip"], "encoded")
    assert text[text.index("scf.yield") :].count("ttg.convert_layout") == 1


def test_a_scaled_sum_stays_in_the_registers_of_its_loop() -> None:
    ptx = text_of(forms("chains")["running scale"], "ptx")
    assert "mov.f32" not in ptx[ptx.rindex("wgmma.wait_group") :].partition("bra")[0]
