"""The refusals of the interpreter, and their words."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import louver
from louver.ir.context import parse_ir
from louver.ir.interpret import InterpretationError, run_kernel
from louver.ir.refusal import UnsupportedKernelError
from support.triton.texts import changed

ARGUMENTS = "%x: !tt.ptr<f32>, %y: !tt.ptr<f32>, %n: i32"


def kernel(body: str, arguments: str = ARGUMENTS) -> Any:
    return parse_ir(f"tt.func public @one({arguments}) {{\n{body}\ntt.return\n}}")


def given(n: int = 0) -> dict[str, Any]:
    return {"x": np.ones(6, np.float32), "y": np.ones(6, np.float32), "n": n}


FAULTS = [
    (
        """%p = tt.addptr %x, %n : !tt.ptr<f32>, i32
        %v = tt.load %p : !tt.ptr<f32> loc("kernel.py":7:3)""",
        6,
        "an access to 'x' stays inside its 6 elements, not at 6: mask elements outside (program 0, 0, 0), got at kernel.py:7:3: ",
    ),
    (
        """%p = tt.addptr %x, %n : !tt.ptr<f32>, i32
        %v = tt.load %y : !tt.ptr<f32>
        tt.store %p, %v : !tt.ptr<f32> loc("kernel.py":9:1)""",
        -1,
        "not at -1: mask elements outside (program 0, 0, 0), got at kernel.py:9:1: tt.store",
    ),
    (
        """%one = arith.constant 1 : i64
        %t = tt.make_tensor_descriptor %x, [%n], [%one] : <f32>, <tensor<8xf32>>
        %v = tt.descriptor_load %t[%n] : !tt.tensordesc<tensor<8xf32>> -> tensor<8xf32>
        tt.descriptor_store %t[0], %v : !tt.tensordesc<tensor<8xf32>>, tensor<8xf32>""",
        7,
        "an access to 'x' stays inside its 6 elements, not at 6",
    ),
    (
        """%two = arith.constant 2 : i64
        %t = tt.make_tensor_descriptor %x, [%n], [%two] : <f32>, <tensor<8xf32>>""",
        3,
        "a descriptor's last dimension is contiguous: its stride is 1, not 2",
    ),
    ("%r = arith.divsi %n, %n : i32", 0, "an integer division needs a divisor other than 0"),
    ("%r = arith.shli %n, %n : i32", 32, "a shift of 32-bit integers is by 0 to 31 bits"),
    ("%r = arith.cmpi sgt, %n, %n : i32\nllvm.intr.assume %r : i1", 3, "a condition of tl.assume must be true"),
    ("scf.for %i = %n to %n step %n : i32 {\n}", 0, "a loop's step is at least 1, got 0"),
    (
        """%c = arith.cmpi eq, %n, %n : i32
        %p = arith.select %c, %x, %y : !tt.ptr<f32>
        %i = tt.ptr_to_int %p : !tt.ptr<f32> -> i64""",
        0,
        "pointers that are chosen from several arrays, x and y, may only be loaded from and stored to",
    ),
    (
        """%r = tt.make_range {start = 0 : i32, end = 8 : i32} : tensor<8xi32>
        %s = tt.splat %n : i32 -> tensor<8xi32>
        %i = arith.addi %r, %s : tensor<8xi32>
        %g = tt.gather %r[%i] {axis = 0 : i32} : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi32>""",
        1,
        "a gather's indices along an axis of 8 elements are 0 to 7",
    ),
    (
        """%p = tt.bitcast %x : !tt.ptr<f32> -> !tt.ptr<i64>
        %o = tt.addptr %x, %n : !tt.ptr<f32>, i32
        %q = tt.bitcast %o : !tt.ptr<f32> -> !tt.ptr<i64>""",
        1,
        "'x' may be read as elements of another type only if it is dense and holds a whole number of them",
    ),
]


@pytest.mark.parametrize(("body", "n", "message"), FAULTS)
def test_what_is_undefined_is_an_error(body: str, n: int, message: str) -> None:
    with pytest.raises(InterpretationError, match=re.escape(message)):
        run_kernel(kernel(body), (1,), given(n))


def test_errors_inside_of_loops_name_the_operation() -> None:
    body = """%one = arith.constant 1 : i32
        scf.for %i = %one to %n step %one : i32 {
          %p = tt.addptr %x, %i : !tt.ptr<f32>, i32
          %v = tt.load %p : !tt.ptr<f32> loc("kernel.py":3:9)
        }"""
    with pytest.raises(InterpretationError) as caught:
        run_kernel(kernel(body), (2, 1), given(8))
    assert caught.value.location == "kernel.py:3:9"
    assert caught.value.operation.startswith("%v = tt.load %p")


def test_a_kernel_without_its_mask_names_the_users_line() -> None:
    module = changed("grouped_pointers", (r"(tt.store %outs_\d+, %result_?\d*), %\d+", r"\1"))
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((64, 64), (64, 64)))
    arguments = {"a": a, "b": b, "d": np.zeros((64, 64), np.float16), "M": 64, "N": 64, "K": 64}
    arguments |= dict.fromkeys(("stride_am", "stride_bk", "stride_dm"), 64)
    with pytest.raises(
        InterpretationError, match=r"an access to 'd' stays inside .* got at tests/support/triton/kernels.py:\d+"
    ):
        run_kernel(module, (1,), arguments)


def test_unknown_operations_are_refused_before_anything_runs() -> None:
    body = """%v = tt.load %y : !tt.ptr<f32>
        tt.store %x, %v : !tt.ptr<f32>
        %r = math.ctpop %n : i32 loc("kernel.py":5:2)"""
    arguments = given() | {"x": np.zeros(1, np.float32)}
    message = "math.ctpop has no meaning in the interpreter, got at kernel.py:5:2: "
    with pytest.raises(UnsupportedKernelError, match=re.escape(message)):
        run_kernel(kernel(body), (1,), arguments)
    assert arguments["x"][0] == 0


SPARSE = '%x: !tt.ptr<f32, #tt.sparse<"NV12">>, %y: !tt.ptr<f32>, %n: i32'


def sparse(pattern: str) -> Any:
    rng = np.random.default_rng(2)
    return louver.compress(louver.prune(rng.standard_normal((4, 8)).astype(np.float32), pattern), pattern)


BINDINGS = [
    (ARGUMENTS, {"z": 1}, "the kernel's arguments are x, y, n, got x, y, n, z"),
    (ARGUMENTS, {"n": 1.5}, "'n' is an integer, i32, got 1.5"),
    (ARGUMENTS, {"n": 2**31}, "'n' is an integer, i32, got 2147483648"),
    (ARGUMENTS, {"n": np.ones(3)}, "'n' is a number, i32, got ndarray"),
    (ARGUMENTS, {"x": 3}, "'x' is a contiguous array of f32, got int"),
    (ARGUMENTS, {"x": np.ones(3, np.float16)}, "'x' is a contiguous array of f32, got float16"),
    (ARGUMENTS, {"x": np.ones((4, 4), np.float32).T[::2]}, "'x' is a contiguous array of f32, got float32, strides"),
    (SPARSE, {}, "'x' is a sparse tensor"),
    (SPARSE, {"x": sparse("2:4")}, "'x' is sparse in 1:2, got 2:4"),
    (ARGUMENTS.replace("i32", "f80"), {}, "'n': an element type of tile IR is one of"),
    (
        ARGUMENTS.replace("%n: i32", "%n: !tt.tensordesc<tensor<8xf32>>"),
        {"n": np.ones(8, np.float32)},
        "too few arguments",
    ),
]


@pytest.mark.parametrize(("arguments", "change", "message"), BINDINGS)
def test_arguments_that_do_not_fit(arguments: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        run_kernel(kernel("", arguments), (1,), given() | change)


def test_a_sparse_argument_is_read_only() -> None:
    body = "%v = tt.load %y : !tt.ptr<f32>\ntt.store %x, %v : !tt.ptr<f32>"
    with pytest.raises(InterpretationError, match="a kernel stores to writable arrays only, not to 'x'"):
        run_kernel(kernel(body), (1,), given() | {"x": sparse("1:2")})


@pytest.mark.parametrize("grid", [(), (1, 0), (1, 1, 1, 1)])
def test_a_grid_has_programs(grid: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="a grid has 1 to 3 axes of at least one program, got"):
        run_kernel(kernel(""), grid, given())


def test_a_module_holds_one_kernel() -> None:
    with pytest.raises(ValueError, match="a module holds one kernel, got 0: run one kernel at a time"):
        run_kernel(parse_ir("builtin.module {\n}"), (1,), {})
