"""Triton's own frontend, where it is installed, in whatever version: what it makes of every kernel is read, means what the kept text
means, and computes the same by the interpreter; and arguments that are not the kernel's.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import louver
from louver.compile.canonical.canonicalize import canonicalize
from louver.compile.canonical.propagate_sparsity import propagate_sparsity
from louver.compile.plan.nest import read_nest
from louver.frontend.triton import triton_to_tile_ir
from louver.ir.interpret import run_kernel
from louver.ir.tile import DotOp
from support.interpreted import run_triton, triton_given
from support.triton import require_block_pointers
from support.triton.cases import BATCHES, CASES, KEPT_CASES, TILE, Case, kept
from support.triton.grouped import GROUPED, layer
from support.triton.splits import SPLITS, split_call
from support.triton.texts import nest
from support.triton.tile_cases import TILE_CASES
from support.triton.tile_runs import RUNS


@pytest.fixture(scope="module")
def triton() -> Any:
    return pytest.importorskip("triton", reason="Triton is not installed: pip install 'louver[triton]'")


@pytest.fixture(scope="module")
def kernels(triton: Any) -> Any:
    from support.triton import kernels

    return kernels


PRODUCTS = {**CASES, **BATCHES, **GROUPED, **SPLITS}


def function_of(name: str, triton: Any) -> Any:
    """The kernel, where the Triton that is installed takes it."""
    if PRODUCTS[name].oldest:
        require_block_pointers()
    if name == "last_step" and triton.__version__.startswith("3.4."):
        pytest.skip("Triton 3.4 fails to simplify it")
    return PRODUCTS[name].function()


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", PRODUCTS)
def test_every_version_means_the_same(name: str, triton: Any) -> None:
    function_of(name, triton)
    product = read_nest(canonicalize(PRODUCTS[name].compile()))
    if name in ("eight_bit_blocks", "gated_layer", "narrow_gates"):
        # Newer versions negate where older ones subtract from 0.
        assert (product.a, product.b, product.store) == (nest(name).a, nest(name).b, nest(name).store)
    else:
        assert product == nest(name)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", CASES)
def test_every_product_by_the_interpreter(rng: np.random.Generator, name: str, triton: Any) -> None:
    function_of(name, triton)
    operands = triton_given(rng, name, 261, 71, 139)
    module = CASES[name].compile()
    operands.assert_close(run_triton(module, operands))
    operands.assert_close(run_triton(canonicalize(module), operands, numbered=True))


@pytest.mark.parametrize("name", GROUPED)
def test_every_layer_of_experts_by_the_interpreter(rng: np.random.Generator, name: str, triton: Any) -> None:
    case = layer(rng, name, features=128 if name == "expert_rows" else 136)
    known = case.sparse()
    louver.jit(function_of(name, triton))[case.grid](**known)
    case.assert_close(known["y"])


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", SPLITS)
def test_every_split_by_the_interpreter(rng: np.random.Generator, name: str, triton: Any) -> None:
    call = split_call(rng, name, 136, 72, 256)
    louver.jit(function_of(name, triton))[call.grid](**call.arguments)
    call.check(call.out)


@pytest.mark.parametrize("name", TILE_CASES)
def test_every_kernel_of_register_tiles_by_the_interpreter(rng: np.random.Generator, name: str, triton: Any) -> None:
    case, run = TILE_CASES[name], RUNS[name](rng, name)
    module = triton_to_tile_ir(case.function(), case.signature, case.constexprs, sparse=case.sparse)
    propagate_sparsity(module)
    module.verify()
    run_kernel(module, run.grid, run.arguments)
    run.check()


@pytest.mark.parametrize(("name", "version"), KEPT_CASES)
def test_the_kept_text_is_what_triton_makes(name: str, version: str, triton: Any, kernels: Any) -> None:
    if not triton.__version__.startswith(f"{version}."):
        pytest.skip(f"Triton {version} made this text; {triton.__version__} is installed")
    from support.triton.keep import text

    assert text(CASES[name]).rstrip() == kept(name, version).rstrip()


def test_what_triton_refuses_is_its_own_error(triton: Any, kernels: Any) -> None:
    case = CASES["made_descriptors"]
    with pytest.raises(triton.CompilationError):
        triton_to_tile_ir(kernels.made_descriptors, case.signature, {**TILE, "BK": 48}, sparse={"a": "2:4"})


ERRORS = [
    (lambda case: Case(case.kernel, case.signature | {"e": "i32"}, TILE), r"arguments are d, a, b, .*got 'e'"),
    (lambda case: Case(case.kernel, case.signature, {"BM": 128, "BN": 64}), "got 'BK' in neither"),
    (lambda case: Case(case.kernel, case.signature, TILE | {"M": 4}), "got 'M' in both"),
    (lambda case: Case(case.kernel, case.signature, TILE, {"M": "2:4"}), "a pointer or a descriptor, got 'M': i32"),
    (lambda case: Case(case.kernel, case.signature, TILE, {"BM": "2:4"}), "got 'BM': a constexpr"),
    (
        lambda case: Case(case.kernel, case.signature, TILE, {"a": "5:4"}),
        "patterns with an encoding are 2:4, 1:2 and vectors N:M@L, got '5:4'",
    ),
]


@pytest.mark.parametrize(("change", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_arguments_that_are_not_the_kernels(change: Any, message: str, kernels: Any) -> None:
    with pytest.raises(ValueError, match=message):
        change(CASES["made_descriptors"]).compile()


def test_a_kernel_is_a_jit_function() -> None:
    with pytest.raises(
        ValueError, match="a kernel is a function decorated with triton.jit, got builtin_function_or_method"
    ):
        triton_to_tile_ir(len, {}, {})


def test_without_triton_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    class Kernel:
        arg_names = ("a",)
        fn = len

    for name in ("triton", "triton.compiler.compiler"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(ImportError, match=re.escape("pip install 'louver[triton]'")):
        triton_to_tile_ir(Kernel(), {"a": "*fp16"}, {})


DOT = """tt.func public @k(%a: !tt.ptr<f32>) {{
  %x = arith.constant dense<1.0> : tensor<16x16x{element}>
  %c = arith.constant dense<0.0> : tensor<16x16xf32>
  %d = tt.dot %x, %x, %c{said} : tensor<16x16x{element}> * tensor<16x16x{element}> -> tensor<16x16xf32>
  tt.return
}}"""


@pytest.mark.parametrize(
    ("element", "said", "found"),
    [("f32", "", "ieee"), ("f32", ", inputPrecision = tf32", "tf32"), ("f16", "", None)],
)
def test_dots_of_f32_that_say_nothing_are_exact(
    element: str, said: str, found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Kernel:
        arg_names = ("a",)
        fn = len

    monkeypatch.setattr("louver.frontend.triton._ttir", lambda *_: DOT.format(element=element, said=said))
    module = triton_to_tile_ir(Kernel(), {"a": "*fp32"}, {})
    (dot,) = [op for op in module.walk() if isinstance(op, DotOp)]
    assert (None if dot.input_precision is None else dot.input_precision.data) == found
