"""The warpgroup products that exist, their text, and that ptxas takes every one of them."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from louver.isa.instruction import Requirement
from louver.isa.machine import Suspend
from louver.isa.wgmma import (
    FLOAT_N,
    INTEGER,
    INTEGER_N,
    TRANSPOSABLE,
    Wgmma,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
    legal_n,
)
from support import warpgroup_cases as cases
from support.ptxas import assemble_text, chain, header, sass
from support.warpgroup_kernel import module_text

BATCH = 16
"""Products in one kernel: ptxas's time grows faster than their number."""


def flags_of(a: str, sparse: bool, source: str) -> list[dict[str, object]]:
    """Every legal combination of flags of one kind of product."""
    axes: dict[str, tuple[object, ...]] = {}
    if a in INTEGER:
        axes["satfinite"] = (False, True)
    else:
        axes["negate_a"] = axes["negate_b"] = (False, True)
    if a in TRANSPOSABLE:
        axes["transpose_b"] = (False, True)
        if source == "shared":
            axes["transpose_a"] = (False, True)
    if sparse and a in ("f16", "bf16", "tf32"):
        axes["selector"] = (0, 1)
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def every_form(n: int) -> Iterator[Wgmma]:
    for a, b, d, sparse, source in cases.KINDS:
        if n in legal_n(a):
            for flags in flags_of(a, sparse, source):
                yield Wgmma(n, a, b, d, sparse, source, **flags)


def covering_forms() -> Iterator[Wgmma]:
    """Every n of every kind; the combinations of flags, every one for several n, take turns."""
    for a, b, d, sparse, source in cases.KINDS:
        choices = flags_of(a, sparse, source)
        for i, n in enumerate(legal_n(a)):
            yield Wgmma(n, a, b, d, sparse, source, **choices[i % len(choices)])


def assemble(forms: Iterable[Wgmma], version: tuple[int, int]) -> bytes:
    """One module with all the forms, in kernels that share accumulators."""
    groups: dict[tuple[int, str], list[Wgmma]] = defaultdict(list)
    for form in forms:
        groups[form.n, form.d].append(form)
    kernels = [
        chain(f"k_{n}_{d}_{i}", members[i : i + BATCH])
        for (n, d), members in groups.items()
        for i in range(0, len(members), BATCH)
    ]
    return assemble_text(header(version, "sm_90a") + "".join(kernels), "sm_90a")[0]


# --- ptxas ---------------------------------------------------------------------------------------------------------
def test_every_n_of_every_kind_is_covered():
    forms = list(covering_forms())
    assert {(f.n, f.a, f.b, f.d, f.sparse, f.a_source) for f in forms} == {
        (n, *kind) for kind in cases.KINDS for n in legal_n(kind[0])
    }
    assert len(forms) == 48 * 32 + 16 * len(INTEGER_N)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("part", range(7))
def test_ptxas_takes_every_n_of_every_kind(part):
    assemble(list(covering_forms())[part::7], (8, 4))


@pytest.mark.slow
@pytest.mark.parametrize("n", FLOAT_N)
def test_ptxas_takes_every_legal_combination(n):
    forms = list(every_form(n))
    assert len(forms) == len(set(forms)) == (400 if n in INTEGER_N else 368)
    assemble(forms, (8, 4))


@pytest.mark.parametrize("version", [(8, 0), (8, 2)])
def test_the_required_versions_are_enough(version):
    forms = [form for form in covering_forms() if form.requires.ptx <= version and form.n == 8]
    assert forms
    assemble(forms, version)


@pytest.mark.parametrize(
    ("form", "older"),
    [
        (Wgmma(8, "f16", "f16", "f32", True), (8, 1)),
        (Wgmma(8, "f16", "f16", "f32", False), (7, 8)),
        (Wgmma(8, "s8", "u8", "s32", True), (8, 3)),
        (Wgmma(8, "u8", "s8", "s32", False), (8, 3)),
    ],
    ids=lambda v: getattr(v, "mnemonic", None),
)
def test_an_older_version_is_not_enough(form, older):
    with pytest.raises(AssertionError, match="PTX ISA|\\.version|not support"):
        assemble([form], older)


def test_the_products_reach_the_machine_code_sparse_ones_as_sparse():
    forms = [form for form in every_form(64) if form.d == "f32" and form.a == "f16"]
    found = re.findall(r"\bHGMMA(\.SP)?\.64x64x(\d+)", sass(assemble(forms, (8, 4))))
    assert len(found) == len(forms)
    assert [bool(sp) for sp, _ in found].count(True) == sum(form.sparse for form in forms)


# --- text ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("form", "args", "text"),
    [
        (
            Wgmma(8, "u8", "u8", "s32", True),
            ("{d}", "descA", "descB", "meta", "p"),
            "wgmma.mma_async.sp.sync.aligned.m64n8k64.s32.u8.u8 {d}, descA, descB, meta, 0, p",
        ),
        (
            Wgmma(16, "s8", "u8", "s32", False, "registers", satfinite=True),
            ("{d}", "{a}", "descB", "p"),
            "wgmma.mma_async.sync.aligned.m64n16k32.satfinite.s32.s8.u8 {d}, {a}, descB, p",
        ),
        (
            Wgmma(256, "bf16", "bf16", "f32", True, negate_b=True, transpose_a=True, selector=1),
            ("{d}", "descA", "descB", "meta", "p"),
            "wgmma.mma_async.sp.sync.aligned.m64n256k32.f32.bf16.bf16 {d}, descA, descB, meta, 1, p, 1, -1, 1, 0",
        ),
        (
            Wgmma(24, "f16", "f16", "f16", True, "registers", negate_a=True, transpose_b=True),
            ("{d}", "{a}", "descB", "meta", "p"),
            "wgmma.mma_async.sp.sync.aligned.m64n24k32.f16.f16.f16 {d}, {a}, descB, meta, 0, p, -1, 1, 1",
        ),
        (
            Wgmma(8, "tf32", "tf32", "f32", True, selector=1),
            ("{d}", "descA", "descB", "meta", "p"),
            "wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.tf32.tf32 {d}, descA, descB, meta, 1, p, 1, 1",
        ),
        (
            Wgmma(8, "e4m3", "e5m2", "f16", False),
            ("{d}", "descA", "descB", "p"),
            "wgmma.mma_async.sync.aligned.m64n8k32.f16.e4m3.e5m2 {d}, descA, descB, p, 1, 1",
        ),
    ],
    ids=lambda v: getattr(v, "mnemonic", ""),
)
def test_text(form, args, text):
    assert form.text(*args) == text


def test_operands_by_kind():
    form = Wgmma(64, "f16", "f16", "f32", True)
    assert [(o.name, o.role, o.type, o.count) for o in form.operands] == [
        ("d", "inout", "f32", 32),
        ("a-desc", "in", "b64", 1),
        ("b-desc", "in", "b64", 1),
        ("sp-meta", "in", "b32", 1),
        ("scale-d", "in", "pred", 1),
    ]
    form = Wgmma(64, "e4m3", "e4m3", "f16", False, "registers")
    assert [(o.name, o.type, o.count, o.braces) for o in form.operands] == [
        ("d", "b32", 16, True),
        ("a", "b32", 4, True),
        ("b-desc", "b64", 1, False),
        ("scale-d", "pred", 1, False),
    ]


@pytest.mark.parametrize(
    ("name", "sparse", "k", "stored"),
    [
        ("f16", True, 32, 16),
        ("bf16", False, 16, 16),
        ("tf32", True, 16, 8),
        ("e5m2", True, 64, 32),
        ("s8", False, 32, 32),
    ],
)
def test_shapes(name, sparse, k, stored):
    form = Wgmma(8, name, name, "s32" if name == "s8" else "f32", sparse)
    assert (form.k, form.k_stored) == (k, stored)


# --- rules ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["f16", "bf16", "tf32", "e4m3", "s8"])
def test_only_the_listed_n_exist(name):
    legal = [n for n in range(-8, 300) if _exists(n, name)]
    integer = (8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256)
    assert tuple(legal) == (integer if name == "s8" else tuple(range(8, 257, 8)))


def _exists(n: int, name: str) -> bool:
    try:
        Wgmma(n, name, name, "s32" if name == "s8" else "f32", True)
    except ValueError as error:
        assert re.search(rf"n of a product of {name} is .* up to 256, got {n}$", str(error))
        return False
    return True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"a": "f16", "b": "bf16"}, "wgmma multiplies .* got f16 x bf16"),
        ({"a": "f32", "b": "f32"}, "got f32 x f32"),
        ({"a": "s8", "b": "e4m3"}, "got s8 x e4m3"),
        ({"d": "s32"}, "f16 x f16 accumulates in f32 or f16, got s32"),
        ({"a": "bf16", "b": "bf16", "d": "f16"}, "bf16 x bf16 accumulates in f32, got f16"),
        ({"a": "tf32", "b": "tf32", "d": "f16"}, "accumulates in f32, got f16"),
        ({"a": "s8", "b": "s8", "d": "f32"}, "accumulates in s32, got f32"),
        ({"a_source": "global"}, "got 'global'"),
        ({"a": "s8", "b": "s8", "d": "s32", "negate_a": True}, "only floating-point products negate"),
        ({"a": "s8", "b": "u8", "d": "s32", "negate_b": True}, "only floating-point products negate"),
        ({"satfinite": True}, "satfinite belongs to integer products, got f16 x f16"),
        (
            {"a": "e4m3", "b": "e4m3", "transpose_b": True},
            "transposes f16 and bf16 only, got e4m3: store the operand K-major",
        ),
        ({"a": "tf32", "b": "tf32", "transpose_a": True}, "transposes f16 and bf16 only, got tf32"),
        ({"a": "s8", "b": "s8", "d": "s32", "transpose_b": True}, "transposes f16 and bf16 only, got s8"),
        ({"a_source": "registers", "transpose_a": True}, "transpose_a needs A in shared memory"),
        ({"selector": 2}, "selector of a sparse product of f16 is 0 or 1, got 2"),
        ({"selector": -1}, "is 0 or 1, got -1"),
        ({"sparse": False, "selector": 1}, "selector of a dense product of f16 is 0, got 1"),
        ({"a": "e4m3", "b": "e5m2", "selector": 1}, "selector of a sparse product of e4m3 is 0, got 1"),
        ({"a": "u8", "b": "u8", "d": "s32", "selector": 1}, "selector of a sparse product of u8 is 0, got 1"),
    ],
    ids=str,
)
def test_illegal_combinations_state_the_rule(arguments, message):
    with pytest.raises(ValueError, match=message):
        Wgmma(**{"n": 16, "a": "f16", "b": "f16", "d": "f32", "sparse": True, **arguments})


def test_requirements():
    assert Wgmma(8, "f16", "f16", "f32", False).requires == Requirement((8, 0), "sm_90a")
    assert Wgmma(8, "s8", "s8", "s32", True).requires == Requirement((8, 2), "sm_90a")
    assert Wgmma(8, "s8", "u8", "s32", False).requires == Requirement((8, 4), "sm_90a")


# --- effects -------------------------------------------------------------------------------------------------------
class Recorder:
    """A warp that writes down what it is asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.answer: Suspend | None = None

    def wgmma(self, instruction, d, inputs):
        self.calls.append(("wgmma", instruction, d, *inputs))

    def fence_wgmma(self):
        self.calls.append(("fence",))

    def wgmma_commit(self):
        self.calls.append(("commit",))

    def wgmma_wait(self, pending):
        self.calls.append(("wait", pending))
        return self.answer


def test_execution_asks_the_warp():
    warp, form = Recorder(), Wgmma(8, "f16", "f16", "f32", True)
    operands = [np.full(32, i) for i in range(5)]
    assert form.execute(warp, *operands) is None
    assert warp.calls.pop() == ("wgmma", form, *operands)
    assert WgmmaFence().execute(warp) is WgmmaCommit().execute(warp) is None
    assert WgmmaWait(1).execute(warp) is None
    assert warp.calls == [("fence",), ("commit",), ("wait", 1)]
    warp.answer = Suspend("two groups are unfinished")
    assert WgmmaWait(0).execute(warp) is warp.answer


def test_fences_commits_and_waits_print_and_assemble():
    texts = [WgmmaFence().text(), WgmmaCommit().text(), WgmmaWait(0).text(), WgmmaWait(3).text()]
    assert texts[-1] == "wgmma.wait_group.sync.aligned 3"
    body = "".join(f"{text};\n" for text in texts)
    assemble_text(header((8, 0), "sm_90a") + f".visible .entry k() {{\n{body}ret;\n}}\n", "sm_90a")
    for form in (Wgmma(8, "f16", "f16", "f32", True), WgmmaFence(), WgmmaCommit(), WgmmaWait(0)):
        assert form.aligned and form.requires.target == "sm_90a"
    for pending in (-1, 8):
        with pytest.raises(ValueError, match=f"0 to 7 groups pending, got {pending}"):
            WgmmaWait(pending)


# --- the kernels that ask the hardware ------------------------------------------------------------------------------
def test_the_conformance_kernels_assemble(rng):
    makes = [
        *(make for kind in cases.KINDS[::5] for make in cases.of_kind(*kind)[:2]),
        *cases.of_layouts("f16", True)[:4],
        *cases.of_narrow_types()[:4],
        *cases.of_signs()[:4],
        *cases.of_saturation()[:4],
    ]
    _, messages = assemble_text(module_text([make(rng) for make in makes]), "sm_90a")
    assert "Potential Performance Loss" not in messages
