"""Dense arguments that hold a pattern, on the host: the interpreter, and both kernels with their flag on the emulator."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import louver
from louver.compile.signature import FLAG
from louver.measure.forms import bind
from louver.ptx.flagged import flagged
from louver.ptx.module import Module
from louver.ptx.printer import print_module
from louver.runtime.arrays import view
from louver.user.compiled import Wanted, assembled, compile_wanted
from louver.user.descriptor import TensorDescriptor
from louver.user.finding import FindingKernel
from support.finds import TILE, Matrices, arguments, call, finding

found_kernels = pytest.importorskip(
    "support.triton.found", reason="Triton is not installed: pip install 'louver[triton]'"
)


@pytest.fixture
def kernel() -> FindingKernel:
    return finding(found_kernels.matmul)


WAYS = [(None, False, True), (None, True, False), ("register tiles", True, True), ("register tiles", False, False)]


@pytest.mark.parametrize(("family", "across", "holds"), WAYS)
def test_the_flag_lets_one_kernel_run(
    rng: np.random.Generator, kernel: FindingKernel, across: bool, holds: bool, family: str | None
) -> None:
    m = Matrices.of(rng, 70, 136, 128, across=across, holds=holds)
    hints = {} if family is None else {"family": family}
    y = m.output()
    kernel.emulate[m.grid](*arguments(m.x, m.w, y), **TILE, **hints)
    m.assert_right(y)
    y = m.output()
    call(kernel, m.grid, m.x, m.w, y)
    m.assert_right(y)
    text = str(kernel.explain(*arguments(m.x, m.w, y), **TILE, **hints))
    assert f"w: {'holds' if holds else 'does not hold'} 2:4 along axis {0 if across else 1}" in text
    assert ("wgmma.sp" in text or "holds 2:4, promised" in text) == holds


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("family", [None, "register tiles"])
def test_a_kernel_that_leaves_writes_nothing(
    rng: np.random.Generator, kernel: FindingKernel, family: str | None, runs: bool
) -> None:
    """Both kernels, with each word: barriers, bulk copies and roles end with them. Any word but 0 counts."""
    m = Matrices.of(rng)
    hints = {} if family is None else {"family": family}
    y = m.output()
    made, given = kernel._call(arguments(m.x, m.w, y), {**TILE, **hints})
    sparse = made.with_sparse({"w": louver.compress(m.stored, "2:4")})
    for each in (sparse, made):
        y.fill(np.nan)
        for runs_if, word in (("zero", 0 if runs else 1 << 30), ("not zero", 1 << 30 if runs else 0)):
            y.fill(np.nan)
            kernel._emulated(each.flagged(view(np.array([word], np.int32)), runs_if), given, m.grid)
            if runs:
                m.assert_right(y)
            else:
                assert np.isnan(y).all()


def test_the_flag_is_read_before_anything_else_and_other_kernels_do_not_change(
    rng: np.random.Generator, kernel: FindingKernel
) -> None:
    m = Matrices.of(rng)
    made, given = kernel._call(arguments(m.x, m.w, m.output()), dict(TILE))
    call_ = made.with_sparse({"w": louver.compress(m.stored, "2:4")})
    for each in (call_, made):
        plain = compile_wanted(Wanted.of(kernel._source, given, each, "bulk", "sm_90a", m.grid)).made
        with_flag = each.flagged(view(np.zeros(1, np.int32)), "zero")
        wanted = Wanted.of(kernel._source, given, with_flag, "bulk", "sm_90a", m.grid)
        found = compile_wanted(wanted).made
        body = found.ptx[found.ptx.index(".reg") :]
        first = [line.strip() for line in body.splitlines() if line.startswith("    ") and ".reg" not in line][:4]
        assert [line.split()[0] for line in first] == [
            "ld.param.u64",
            "ld.global.b32",
            "setp.eq.u32",
            "@!" + first[3][2:].split()[0],
        ]
        # Without its first and last lines, the text is the kernel's own but for the numbers of labels.
        assert plain.ptx == print_module(plain.module)
        assert found.signature.parameters[:-1] == plain.signature.parameters
        assert found.signature.parameters[-1].argument in (FLAG, found.signature.parameters[-1].name)
        again = Module(plain.module.target, [flagged(plain.kernel, found.signature.parameters[-1].name, "zero")])
        assert print_module(again) == found.ptx
        assert assembled(wanted).assembly.clean


def test_f32_holds_1_of_2(rng: np.random.Generator, kernel: FindingKernel) -> None:
    m = Matrices.of(rng, 20, 40, 64, dtype=np.float32)
    y = m.output()
    call(kernel, m.grid, m.x, m.w, y)
    assert np.abs(y - m.x.astype(np.float64) @ m.w).max() < 0.05
    assert "w: holds 1:2 along axis 1" in str(kernel.explain(*arguments(m.x, m.w, y), **TILE))


def test_views_with_gaps_run_dense_and_say_so(rng: np.random.Generator, kernel: FindingKernel) -> None:
    m = Matrices.of(rng)
    wide = np.zeros((m.stored.shape[0], m.stored.shape[1] + 16), np.float16)
    wide[:, : m.stored.shape[1]] = m.stored
    w, y = wide[:, : m.stored.shape[1]].T, m.output()
    for run in (kernel, kernel.emulate, finding(found_kernels.matmul, frozen=("w",))):
        y.fill(np.nan)
        call(run, m.grid, m.x, w, y)
        m.assert_right(y)
    assert "w: dense, 'w' is found in memory without gaps" in str(kernel.explain(*arguments(m.x, w, y), **TILE))


def test_whole_rows_of_a_larger_array_are_found(rng: np.random.Generator, kernel: FindingKernel) -> None:
    m = Matrices.of(rng)
    more = np.concatenate([np.ones((8, m.stored.shape[1]), np.float16), m.stored])
    w, y = more[8:].T, m.output()
    call(kernel.emulate, m.grid, m.x, w, y)
    m.assert_right(y)
    assert "w: holds" in str(kernel.explain(*arguments(m.x, w, y), **TILE))


def test_sparse_tensors_are_taken_as_they_are(rng: np.random.Generator, kernel: FindingKernel) -> None:
    m = Matrices.of(rng)
    y, s = m.output(), louver.compress(m.stored, "2:4")
    given = list(arguments(m.x, m.w, y))
    given[1] = s
    for run in (kernel, kernel.emulate, finding(found_kernels.matmul, frozen=("w",))):
        y.fill(np.nan)
        run[m.grid](*given, **TILE)
        m.assert_right(y)


def test_a_frozen_array_is_looked_at_once(rng: np.random.Generator) -> None:
    kernel = finding(found_kernels.matmul, frozen=("w",))
    m = Matrices.of(rng)
    y = m.output()
    call(kernel.emulate, m.grid, m.x, m.w, y)
    m.assert_right(y)
    old = m.w.copy()
    m.stored[:] = louver.prune(rng.standard_normal(m.stored.shape).astype(np.float16), "2:4")
    call(kernel, m.grid, m.x, m.stored.T, y)
    m.assert_right(y, old)
    kernel.forget(m.stored)
    call(kernel, m.grid, m.x, m.w, y)
    m.assert_right(y)


def test_both_operands_may_be_asked_for(rng: np.random.Generator) -> None:
    """A dot has one sparse operand; the other one is read as it is."""
    m = Matrices.of(rng, 70, 136, 128)
    m.x[:] = louver.prune(m.x, "2:4")
    kernel, y = finding(found_kernels.matmul, ("x", "w")), m.output()
    for run in (kernel, kernel.emulate):
        y.fill(np.nan)
        call(run, m.grid, m.x, m.w, y)
        m.assert_right(y)


def bad(find: Any, frozen: Any = ()) -> None:
    louver.jit(found_kernels.matmul, find=find, frozen=frozen)


NAMES = [
    (("z",), (), ValueError, r"find names arguments of matmul that may be arrays, x, w, y, .*got 'z'"),
    (("BM",), (), ValueError, "got 'BM'"),
    ("w", (), TypeError, r'find is a tuple of names of arguments, such as \("w",\), got \'w\''),
    ((3,), (), TypeError, r"got \(3,\)"),
    (("w",), ("x",), ValueError, "frozen promises that found arguments are not written, got 'x', which is not in find"),
    ((), ("w",), ValueError, "which is not in find"),
    (("w",), ("q",), ValueError, "frozen names arguments of matmul"),
]


@pytest.mark.parametrize(("find", "frozen", "kind", "text"), NAMES)
def test_names(find: Any, frozen: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        bad(find, frozen)


def test_arguments_that_no_dot_contracts(rng: np.random.Generator) -> None:
    m = Matrices.of(rng)
    with pytest.raises(ValueError, match="find names arguments whose tiles a dot multiplies .* got 'y' of matmul"):
        call(finding(found_kernels.matmul, ("y",)), m.grid, m.x, m.w, m.output())
    x, w, y = (rng.standard_normal((4, 64)).astype(np.float16) for _ in range(3))
    for frozen in ((), ("w",)):
        with pytest.raises(ValueError, match="got 'w' of scaled: a sparse vector has a multiple of 256 elements"):
            finding(found_kernels.scaled, ("w",), frozen)[(2,)](x, w, y, 256, BLOCK=128)


def test_types_without_sparse_products_run_dense(rng: np.random.Generator) -> None:
    x, w, y = (rng.integers(-5, 5, (4, 64)).astype(np.int32) for _ in range(3))
    kernel = finding(found_kernels.scaled, ("w",))
    kernel[(2,)](x, w, y, 256, BLOCK=128)
    np.testing.assert_array_equal(y, x * w)
    assert "w: dense, 'w' is of s32, and sparse products are of" in str(kernel.explain(x, w, y, 256, BLOCK=128))


def test_kernels_with_decorators_find_frozen_arguments(rng: np.random.Generator) -> None:
    import triton

    config = triton.Config({name: TILE[name] for name in TILE})
    tuned = triton.autotune([config], key=["M"])(found_kernels.matmul)
    with pytest.raises(ValueError, match="matmul has decorators, .* got 'w': name it in frozen too"):
        louver.jit(tuned, find=("w",))
    kernel, m = louver.jit(tuned, find=("w",), frozen=("w",)), Matrices.of(rng)
    y = m.output()
    for run in (kernel, kernel.emulate):
        y.fill(np.nan)
        run[m.grid](*arguments(m.x, m.w, y))
        m.assert_right(y)
    assert "w: frozen, found" in str(kernel.explain(*arguments(m.x, m.w, y)))


def test_descriptors(rng: np.random.Generator) -> None:
    """A descriptor's base is found, and the descriptor stays."""
    from support.triton.kernels import given_descriptors

    a, b = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((130, 128), (128, 72)))
    a = louver.prune(a, "2:4")
    for frozen in ((), ("a_tiles",)):
        kernel = finding(given_descriptors, ("a_tiles",), frozen)
        d = np.full((130, 72), np.nan).astype(ml_dtypes.bfloat16)
        tiles = [TensorDescriptor.from_tensor(each, block) for each, block in ((a, [128, 64]), (b, [64, 64]))]
        given = {
            "d_tiles": TensorDescriptor.from_tensor(d, [128, 64]),
            "a_tiles": tiles[0],
            "b_tiles": tiles[1],
            "K": 128,
        }
        kernel[(2, 2)](**given, BM=128, BN=64, BK=64)
        expected = a.astype(np.float64) @ b.astype(np.float64)
        assert np.abs(d.astype(np.float64) - expected).max() < 0.3
        assert "a_tiles: " in str(kernel.explain(**given, BM=128, BN=64, BK=64))


def test_kernels_with_computed_addresses_find_their_argument() -> None:
    from support.triton.forms.addresses import SMALL
    from support.triton.forms.find import forms

    call = forms("addresses")["rows listed"].call(1, SMALL)
    known, outs = bind(call, sparse=False)
    found = louver.jit(forms("addresses")["rows listed"].kernel, find=("w",))
    assert "w: holds 2:4 along axis 1" in str(found.explain(**known))
    found.emulate[call.grid](**known)
    np.testing.assert_allclose(outs["y"], call.expected()["y"], atol=0.05)
