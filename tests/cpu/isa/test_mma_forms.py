"""The products of one warp that exist, their text and their needs. That ptxas takes all: tests/cpu/ptx/test_forms.py."""

from __future__ import annotations

import re

import numpy as np
import pytest

from louver.isa.catalogue import narrow_shapes
from louver.isa.instruction import Requirement
from louver.isa.mma import FP8, INTEGER, Mma, legal_k
from louver.isa.targets import TARGETS, target
from louver.ptx.assembler import assemble
from louver.ptx.module import Module
from louver.ptx.printer import print_module
from louver.ptx.validate import ValidationError
from support.forms import statement_kernel
from support.ptxas import assemble_text, header, sass
from support.warp_products import every_form, make_product, product_kernel, shapes


def test_the_forms_are_these():
    forms = list(shapes())
    assert len(forms) == len(set(forms)) == 36
    assert {(f.a, f.sparse, f.k, f.selectors) for f in forms} == {
        *((a, False, k, 1) for a in ("f16", "bf16") for k in (8, 16)),
        *((a, True, k, n) for a in ("f16", "bf16") for k, n in ((16, 4), (32, 2))),
        *(("tf32", False, k, 1) for k in (4, 8)),
        *(("tf32", True, k, n) for k, n in ((8, 4), (16, 2))),
        *((a, sparse, 64 if sparse else 32, 1) for a in ("e4m3", "e5m2", "s8", "u8") for sparse in (False, True)),
        *((a, True, 32, 2) for a in ("s8", "u8")),
    }


def test_the_narrow_forms_are_these():
    forms = list(narrow_shapes())
    assert len(forms) == len(set(forms)) == 90
    assert {(f.kind, f.scale, f.blocks, f.sparse, f.k, f.selectors) for f in forms} == {
        *(("", "", 0, False, k, 1) for k in (32, 64)),
        *(("", "", 0, True, k, n) for k, n in ((64, 2), (128, 1))),
        ("f8f6f4", "", 0, True, 64, 1),
        ("mxf8f6f4", "ue8m0", 1, True, 64, 1),
        *((kind, "ue8m0", 2, True, 128, 1) for kind in ("mxf4", "mxf4nvf4")),
        ("mxf4nvf4", "ue4m3", 4, True, 128, 1),
    }
    every = list(every_form())
    assert len(every) == len(set(every)) == 214


def test_k_doubles_where_a_is_sparse():
    assert legal_k("f16", False) == (8, 16) and legal_k("f16", True) == (16, 32)
    assert legal_k("tf32", True) == (8, 16) and legal_k("u8", True) == (32, 64)
    assert legal_k("u8", False) == (32,) and legal_k("e4m3", True) == (64,)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (Mma("f16", "f16", "f32", 16), "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 d, a, b, c"),
        (
            Mma("s8", "u8", "s32", 32, satfinite=True),
            "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32 d, a, b, c",
        ),
        (
            Mma("bf16", "bf16", "f32", 32, True, 1),
            "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 d, a, b, c, e, 0x1",
        ),
        (
            Mma("e2m1", "e4m3", "f16", 64, True, kind="f8f6f4"),
            "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f16.e2m1.e4m3.f16 d, a, b, c, e, 0x0",
        ),
        (
            Mma("e2m1", "e2m1", "f32", 128, True, kind="mxf4nvf4", scale="ue4m3", scale_b=(0, 3)),
            "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3 "
            "d, a, b, c, e, 0x0, scale-a, {0, 0}, scale-b, {0, 3}",
        ),
        (
            Mma("tf32", "tf32", "f32", 8, True, 3),
            "mma.sp::ordered_metadata.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 d, a, b, c, e, 0x3",
        ),
    ],
    ids=str,
)
def test_text(form, text):
    assert form.text(*(operand.name for operand in form.operands)) == text


def test_operands():
    def of(form):
        return [(o.name, o.role, o.type, o.count, o.braces) for o in form.operands]

    assert of(Mma("f16", "f16", "f32", 32, True)) == [
        ("d", "out", "f32", 4, True),
        ("a", "in", "b32", 4, True),
        ("b", "in", "b32", 4, True),
        ("c", "in", "f32", 4, True),
        ("e", "in", "b32", 1, False),
    ]
    assert of(Mma("f16", "f16", "f16", 8)) == [
        ("d", "out", "b32", 2, True),
        ("a", "in", "b32", 2, True),
        ("b", "in", "b32", 1, True),
        ("c", "in", "b32", 2, True),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"a": "f16", "b": "bf16"}, "mma multiplies f16 x f16, .*, got f16 x bf16: convert one operand"),
        ({"a": "f32", "b": "f32"}, "got f32 x f32"),
        ({"a": "s8", "b": "e4m3"}, "got s8 x e4m3"),
        ({"d": "s32"}, "f16 x f16 accumulates in f32 or f16, got s32"),
        ({"a": "e4m3", "b": "e5m2", "d": "f16", "k": 64}, "accumulates in f32, got f16"),
        ({"k": 8}, "k of a sparse product of f16 is 16 or 32, got 8"),
        ({"k": 32, "sparse": False}, "k of a dense product of f16 is 8 or 16, got 32"),
        ({"a": "s8", "b": "s8", "d": "s32", "k": 16}, "k of a sparse product of s8 is 32 or 64, got 16"),
        ({"a": "e4m3", "b": "e4m3", "k": 32}, "k of a sparse product of e4m3 is 64, got 32"),
        ({"satfinite": True}, "satfinite belongs to integer products, got f16 x f16"),
        ({"selector": 4}, "sparse product of f16 with k 16 is 0 to 3, got 4"),
        ({"k": 32, "selector": 2}, "sparse product of f16 with k 32 is 0 to 1, got 2"),
        ({"a": "u8", "b": "u8", "d": "s32", "k": 64, "selector": 1}, "sparse product of u8 with k 64 is 0, got 1"),
        ({"sparse": False, "selector": 1}, "the selector of a dense product of f16 with k 16 is 0, got 1"),
        ({"selector": -1}, "is 0 to 3, got -1"),
        ({"kind": "f4"}, "kinds are of sparse products, f8f6f4, .*, got sparse f4"),
        ({"kind": "mxf4", "sparse": False}, "kinds are of sparse products, .*, got dense mxf4"),
        ({"a": "e4m3", "b": "e4m3", "kind": "f8f6f4", "k": 64}, "e4m3 x e4m3 accumulates in f16, got f32"),
        ({"a": "e2m1", "b": "e2m1", "k": 64}, "mma multiplies f16 x f16, .*, got e2m1 x e2m1"),
        ({"a": "e2m1", "b": "e2m3", "kind": "mxf4", "k": 128}, "mma multiplies e2m1 x e2m1, got e2m1 x e2m3"),
        ({"a": "s4", "b": "u4", "d": "s32", "k": 32}, "k of a sparse product of s4 is 64 or 128, got 32"),
        ({"a": "e2m1", "b": "e2m1", "kind": "mxf4", "k": 64, "scale": "ue8m0"}, "product of e2m1 is 128, got 64"),
        ({"a": "e2m1", "b": "e2m1", "kind": "mxf4", "k": 128}, "scales of mxf4 are ue8m0, got ''"),
        (
            {"a": "e2m1", "b": "e2m1", "kind": "mxf4", "k": 128, "scale": "ue4m3"},
            "scales of mxf4 are ue8m0, got 'ue4m3'",
        ),
        ({"scale": "ue8m0"}, "scales of a product without a kind are none, got 'ue8m0'"),
        (
            {"a": "e2m1", "b": "e2m1", "kind": "mxf4", "k": 128, "scale": "ue8m0", "scale_a": (1, 0)},
            "scale_a is a byte of 0, 2 and a thread below 2, got 1, 0",
        ),
        (
            {"a": "e2m1", "b": "e3m2", "kind": "mxf8f6f4", "k": 64, "scale": "ue8m0", "scale_b": (3, 4)},
            "scale_b is a byte of 0, 1, 2, 3 and a thread below 4, got 3, 4",
        ),
        ({"scale_a": (1, 0)}, "scale_a is a byte of 0 and a thread below 1, got 1, 0"),
    ],
    ids=str,
)
def test_illegal_combinations_state_the_rule(arguments, message):
    with pytest.raises(ValueError, match=message):
        Mma(**{"a": "f16", "b": "f16", "d": "f32", "k": 16, "sparse": True, **arguments})


def test_requirements():
    assert Mma("f16", "f16", "f32", 16).requires == Requirement((7, 0), "sm_80")
    assert Mma("s8", "u8", "s32", 64, True).requires == Requirement((8, 5), "sm_80")
    assert Mma("e4m3", "e4m3", "f32", 32).requires == Requirement((8, 4), "sm_89")
    assert Mma("e4m3", "e5m2", "f32", 64, True).requires == Requirement((8, 5), "sm_89")


@pytest.mark.parametrize("name", TARGETS)
def test_ptxas_takes_the_forms_that_a_target_provides_and_no_others(name):
    """So do the target's units. Texts have the version that the newest form and the target need."""
    machine = target(name)
    given = [form for form in every_form() if machine.provides(form.requires.target)]
    assert set(given) <= {form for form in every_form() if machine.support(form.family, form.a, form.kind)}
    assemble(print_module(Module(name, [statement_kernel("every", given)])), name)
    denied = [form for form in every_form() if form not in given]
    if not denied:
        return
    text = print_module(Module("sm_120a", [statement_kernel("none", denied)]))
    ptx = header(max(machine.min_ptx, (8, 7)), name) + text[text.index(".visible") :]
    with pytest.raises(AssertionError) as refused:
        assemble_text(ptx, name)
    lines = {number for number, line in enumerate(ptx.splitlines(), 1) if "mma" in line}
    assert len(lines) == len(denied)
    assert {int(number) for number in re.findall(r"line (\d+); error", str(refused.value))} >= lines


@pytest.mark.parametrize(
    ("form", "version", "name"),
    [
        (Mma("f16", "f16", "f32", 32, True), (8, 4), "sm_80"),
        (Mma("e4m3", "e4m3", "f32", 32), (8, 3), "sm_89"),
        (Mma("e4m3", "e4m3", "f32", 32), (8, 4), "sm_80"),
        (Mma("e5m2", "e5m2", "f32", 64, True), (8, 5), "sm_80"),
    ],
    ids=str,
)
def test_an_older_version_or_target_is_not_enough(form, version, name):
    text = print_module(Module("sm_90a", [statement_kernel("one", [form])]))
    with pytest.raises(AssertionError, match="PTX ISA|\\.version|not support|requires"):
        assemble_text(header(version, name) + text[text.index(".visible") :], name)
    if name == "sm_80" and form.a == "e4m3":
        with pytest.raises(ValidationError, match="needs sm_89, got the target sm_80"):
            print_module(Module(name, [statement_kernel("one", [form])]))


def test_sparse_products_reach_the_machine_code_as_sparse_ones(rng):
    products = [make_product(form, rng) for form in shapes()]
    kernels = [product_kernel(f"k{i}", product) for i, product in enumerate(products)]
    assembly = assemble(print_module(Module("sm_90a", kernels)), "sm_90a")
    assert assembly.clean
    _, *pieces = re.split(r"^\.text\.k(\d+):", sass(assembly.cubin), flags=re.MULTILINE)
    assert sorted(map(int, pieces[::2])) == list(range(len(products)))
    for index, code in zip(pieces[::2], pieces[1::2], strict=True):
        product = products[int(index)]
        form = product.form
        found = re.findall(r"\b(HMMA|IMMA)(\.SP)?\.16", code)
        # sm_90a has no such unit for 8-bit floats: ptxas widens them to f16, two products for one.
        count = len(product.steps) * (2 if form.a in FP8 else 1)
        assert found == [("IMMA" if form.a in INTEGER else "HMMA", ".SP" if form.sparse else "")] * count, form


def test_execution_needs_the_whole_warp():
    class Part:
        active = np.arange(32) < 20

    form = Mma("f16", "f16", "f32", 8)
    with pytest.raises(ValueError, match="needs all lanes of a warp, got 20 of 32"):
        form.execute(Part(), *(np.zeros((o.count, 32), np.uint32) for o in form.operands[1:]))
