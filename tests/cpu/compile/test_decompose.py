"""Sparse tensors become values and metadata: the documented example, users' kernels, the library's, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from louver.analysis.integers import literal
from louver.compile.decompose.decompose_sparse_tensors import decompose_sparse_tensors
from louver.compile.pipeline import compile_tile_ir
from louver.compile.plan.schedule import Schedule
from louver.frontend.ttir import read_ttir
from louver.ir.arith import ExtSIOp
from louver.ir.context import parse_ir
from louver.ir.interpret import InterpretationError, run_kernel
from louver.ir.refusal import UnsupportedKernelError
from louver.ir.tile import DotOp, FuncOp, Index, MakeTensorDescriptorOp, MakeTensorPtrOp
from support.golden import ROOT, Golden
from support.pass_golden import before
from support.triton.cases import CASES

INPUTS = Path(__file__).parents[1] / "ir" / "inputs"
POINTERS = (
    "counted_pointers",
    "gated_pointers",
    "grouped_pointers",
    "indexed_pointers",
    "narrow_unmasked",
    "rest_by_pointers",
    "unmasked_pointers",
    "unrolled_k",
    "weight_pointers",
    "whole_k",
    "wide_steps",
)
"""Kernels of pointer arithmetic, which become descriptors before this pass."""

ENCODED = [name for name in CASES if name not in POINTERS]
"""Kept kernels after propagate-sparsity."""

KERNELS = sorted(
    f"{folder}/{path.stem}"
    for folder in ("ir", "canonical")
    for path in (ROOT / folder).glob("*.mlir")
    if path.stem != "sparse_dot_decomposed"
)
SPARSE = '#tt.sparse<"NV24">'


def decomposed(text: str) -> ModuleOp:
    """The module decomposed, its properties checked."""
    module = parse_ir(text)
    before = str(module)
    made = decompose_sparse_tensors(module)
    made.verify()
    assert str(module) == before, "the module that is given stays as it is"
    assert "tt.sparse" not in str(made)
    assert str(parse_ir(str(made))) == str(made)
    assert str(decompose_sparse_tensors(made)) == str(made), "a second time changes nothing"
    return made


def only(module: ModuleOp, kind: type[Operation], name: str) -> Operation:
    (found,) = (op for op in module.walk() if isinstance(op, kind) and op.results[0].name_hint == name)
    return found


def test_the_documented_example(golden: Golden) -> None:
    made = decomposed((INPUTS / "simplified_sparse_dot.mlir").read_text())
    golden.check("ir/sparse_dot_decomposed.mlir", str(made))
    documented = parse_ir((INPUTS / "simplified_decomposed_dot.mlir").read_text())
    # It calls the metadata E.
    for function in (op for module in (made, documented) for op in module.walk() if isinstance(op, FuncOp)):
        function.argument_attributes = []
    assert made.is_structurally_equivalent(documented)


def test_both_documented_operand_orders_are_read() -> None:
    text = (INPUTS / "simplified_decomposed_dot.mlir").read_text()
    other = text.replace("%A, %B, %E, %cst", "%A, %B, %cst, %E")
    assert other != text and str(parse_ir(other)) == str(parse_ir(text))


def text_of(name: str) -> str:
    """A golden file, or a kept kernel after propagate-sparsity."""
    return str(before("require-multiplied", name)) if name in CASES else (ROOT / f"{name}.mlir").read_text()


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", [*KERNELS, *ENCODED])
def test_kernels_are_decomposed(name: str) -> None:
    text = text_of(name)
    made = decomposed(text)
    indices = [op.sparse_index for op in made.walk() if isinstance(op, DotOp)]
    assert len([each for each in indices if each is not None]) == len(re.findall(r"tt\.dot .*tt\.sparse", text))
    if "tt.sparse" not in text:
        assert str(made) == str(parse_ir(text))


@pytest.mark.parametrize("name", ["ir/linear_batch", "block_pointers"])
def test_descriptors_and_block_pointers(name: str, golden: Golden) -> None:
    made = decomposed(text_of(name))
    golden.check(f"decomposed/{Path(name).name}.mlir", str(made))


def test_attributes_and_locations_stay_with_the_values() -> None:
    text = f"""tt.func @f(%x: i32, %a: !tt.ptr<f16, {SPARSE}> {{tt.divisibility = 16 : i32}}) {{
      %v = tt.make_tensor_ptr %a, [64, 64], [64, 1], [0, 0] : <tensor<64x64xf16, {SPARSE}>>
      %t = tt.load %v {{boundaryCheck = array<i32: 0>, padding = 2 : i32}} : !tt.ptr<tensor<64x64xf16, {SPARSE}>>
      tt.return }}"""
    made = str(decomposed(text))
    assert "%a: !tt.ptr<f16> {tt.divisibility = 16 : i32}, %a_metadata: !tt.ptr<i16>)" in made
    assert "tt.load %v {boundaryCheck = array<i32: 0>, padding = 2 : i32} : !tt.ptr<tensor<64x32xf16>>" in made
    assert "tt.load %v_metadata {boundaryCheck = array<i32: 0>} : !tt.ptr<tensor<4x64xi16>>" in made


def value_of(entry: Index, known: dict[str, int]) -> int:
    """The value of an entry of an index list, for these arguments."""
    number = literal(entry)
    if number is not None:
        return number
    assert isinstance(entry, SSAValue)
    match entry.owner:
        case arith.AddiOp(lhs=a, rhs=b):
            return value_of(a, known) + value_of(b, known)
        case arith.MuliOp(lhs=a, rhs=b):
            return value_of(a, known) * value_of(b, known)
        case arith.DivUIOp(lhs=a, rhs=b) | arith.DivSIOp(lhs=a, rhs=b):
            return value_of(a, known) // value_of(b, known)
        case ExtSIOp(input=a):
            return value_of(a, known)
        case _:
            return known[str(entry.name_hint)]


def test_sizes_and_strides_of_any_matrix(rng: np.random.Generator) -> None:
    made = decomposed((ROOT / "ir/linear_batch.mlir").read_text())
    values, metadata = (only(made, MakeTensorDescriptorOp, f"a_tensor{suffix}") for suffix in ("", "_metadata"))
    assert isinstance(values, MakeTensorDescriptorOp) and isinstance(metadata, MakeTensorDescriptorOp)
    for _ in range(50):
        m, k, batch = (int(rng.integers(1, 500)) for _ in range(3))
        known = {"M": m, "K": k, "batch": batch, "stride_a": 2 * k + 32, "batch_stride_a": m * (2 * k + 32)}
        rows, entries, kept = -(-m // 16), -(-k // 64) * 64, -(-k // 4) * 2
        found = [[value_of(entry, known) for entry in of] for of in (values.sizes, values.steps)]
        assert found == [[batch, m, kept], [m * (k + 16), k + 16, 1]]
        found = [[value_of(entry, known) for entry in of] for of in (metadata.sizes, metadata.steps)]
        assert found == [[batch, rows, entries], [rows * entries, entries, 1]]


BLOCKS = f"""tt.func public @k(%a: !tt.ptr<f16>, %s: !tt.ptr<f16, {SPARSE}>, %d: !tt.ptr<f32>, %K: i32, %j: i64, %c: i1) {{
  %zeros = arith.constant dense<0.0> : tensor<64x32xf32>
  %zero = arith.constant 0 : i32
  %step = arith.constant 64 : i32
  %left = tt.make_tensor_ptr %a, [64, %j], [%j, 1], [0, 0] : <tensor<64x64xf16>>
  %right = tt.make_tensor_ptr %s, [%j, 32], [1, %j], [64, 16] {{order = array<i32: 0, 1>}} : <tensor<64x32xf16, {SPARSE}>>
  BODY
  tt.return
}}"""
LOOP = f"""%r, %total = scf.for %k = %zero to %K step %step iter_args(%p = %right, %sum = %zeros)
      -> (!tt.ptr<tensor<64x32xf16, {SPARSE}>>, tensor<64x32xf32>) : i32 {{
    %x = tt.load %left : !tt.ptr<tensor<64x64xf16>>
    %y = tt.load %p : !tt.ptr<tensor<64x32xf16, {SPARSE}>>
    %z = tt.dot %x, %y, %sum, inputPrecision = tf32 {{maxNumImpreciseAcc = 32 : i32}}
        : tensor<64x64xf16> * tensor<64x32xf16, {SPARSE}> -> tensor<64x32xf32>
    %q = tt.advance %p, [%step, 0] : <tensor<64x32xf16, {SPARSE}>>
    scf.yield %q, %z : !tt.ptr<tensor<64x32xf16, {SPARSE}>>, tensor<64x32xf32>
  }}"""


def test_a_sparse_right_operand_in_a_loop() -> None:
    text = str(decomposed(BLOCKS.replace("BODY", LOOP)))
    assert "<tensor<32x32xf16>>" in text and "<tensor<64x2xi16>>" in text
    assert "[32, 16] {order = array<i32: 0, 1>} : <tensor<32x32xf16>>" in text
    assert "[64, 1] {order = array<i32: 0, 1>} : <tensor<64x2xi16>>" in text
    assert "tt.advance %p, [32, 0] : <tensor<32x32xf16>>" in text
    assert "tt.advance %p_metadata, [%step, 0] : <tensor<64x2xi16>>" in text
    assert (
        "tt.dot %x, %y, %y_metadata, %sum, inputPrecision = tf32, sparseIndex = 1 {maxNumImpreciseAcc = 32 : i32} : "
        "tensor<64x64xf16> * tensor<32x32xf16>, tensor<64x2xi16> -> tensor<64x32xf32>"
    ) in text


def test_branches_pass_both_parts_on() -> None:
    pointer = f"!tt.ptr<tensor<64x32xf16, {SPARSE}>>"
    body = f"%x = scf.if %c -> ({pointer}) {{ scf.yield %right : {pointer} }} else {{ scf.yield %right : {pointer} }}\n"
    text = str(decomposed(BLOCKS.replace("BODY", body + f"%t = tt.load %x : {pointer}")))
    assert "%x, %x_metadata = scf.if %c -> (!tt.ptr<tensor<32x32xf16>>, !tt.ptr<tensor<64x2xi16>>)" in text
    assert "%t_metadata = tt.load %x_metadata" in text


def test_1_2_has_twice_the_entries() -> None:
    encoding = '#tt.sparse<"NV12">'
    text = str(
        decomposed(f"""tt.func @f(%a: !tt.tensordesc<tensor<64x32xf32, {encoding}>>, %p: i32) {{
      %sixteen = arith.constant 16 : i32
      %m = arith.muli %p, %sixteen : i32
      %t = tt.descriptor_load %a[%m, 96] : !tt.tensordesc<tensor<64x32xf32, {encoding}>> -> tensor<64x32xf32, {encoding}>
      tt.return }}""")
    )
    assert "%a: !tt.tensordesc<tensor<64x16xf32>>, %a_metadata: !tt.tensordesc<tensor<4x64xi16>>" in text
    assert "tt.descriptor_load %a[%m, 48]" in text and re.search(r"tt.descriptor_load %a_metadata\[%\S+, 192\]", text)


@pytest.mark.parametrize(("column", "entry"), [(0, 0), (32, 4), (64, 64), (96, 68), (160, 132)])
def test_tiles_of_part_of_a_word_begin_at_a_thread_s_entries(column: int, entry: int) -> None:
    text = str(
        decomposed(f"""tt.func @f(%a: !tt.tensordesc<tensor<32x32xf16, {SPARSE}>>, %j: i32) {{
      %by = arith.constant 32 : i32
      %k = arith.muli %j, %by : i32
      %t = tt.descriptor_load %a[16, {column}] : !tt.tensordesc<tensor<32x32xf16, {SPARSE}>> -> tensor<32x32xf16, {SPARSE}>
      %u = tt.descriptor_load %a[16, %k] : !tt.tensordesc<tensor<32x32xf16, {SPARSE}>> -> tensor<32x32xf16, {SPARSE}>
      tt.return }}""")
    )
    assert "%a: !tt.tensordesc<tensor<32x16xf16>>, %a_metadata: !tt.tensordesc<tensor<2x64xi16>>" in text
    assert f"tt.descriptor_load %a[16, {column // 2}]" in text
    assert re.search(rf"tt.descriptor_load %a_metadata\[1, {entry}\]", text)
    assert "arith.remsi %k" in text


TILE = f"!tt.ptr<tensor<64x32xf16, {SPARSE}>>"
REFUSED = {
    f"%n = arith.xori %K, %K : i32\n%x = tt.advance %right, [%n, 0] : <tensor<64x32xf16, {SPARSE}>>": "begin at a provable multiple of 64 columns",
    f"%x = tt.advance %right, [0, 8] : <tensor<64x32xf16, {SPARSE}>>": "begin at a provable multiple of 16 rows",
    f"%x = tt.make_tensor_ptr %s, [64, 64], [63, 1], [0, 0] : <tensor<16x64xf16, {SPARSE}>>": "multiples of 2, not 63",
    f"%x = tt.make_tensor_ptr %s, [64, 64], [64, %j], [0, 0] : <tensor<16x64xf16, {SPARSE}>>": "one stride is the constant 1",
    f"%x = tt.make_tensor_ptr %s, [64, 64], [64, 1], [0, 0] : <tensor<8x64xf16, {SPARSE}>>": f"not 8 x 64, got: %x = tt.make_tensor_ptr %s, [64, 64], [64, 1], [0, 0] : <tensor<8x64xf16, {SPARSE}>>: choose larger blocks",
    f"%x = tt.make_tensor_ptr %s, [64, 64], [64, 1], [0, 0] : <tensor<16x8xf16, {SPARSE}>>": f"not 16 x 8, got: %x = tt.make_tensor_ptr %s, [64, 64], [64, 1], [0, 0] : <tensor<16x8xf16, {SPARSE}>>: choose larger blocks",
    f"%x = tt.make_tensor_ptr %s, [64, 64], [64, 1], [0, 0] : <tensor<16x32xf16, {SPARSE}>>\n"
    f"%y = tt.advance %x, [0, 64] : <tensor<16x32xf16, {SPARSE}>>": "move by whole words of metadata, 64 columns, not by 32",
    f"%x = tt.make_tensor_ptr %s, [64, 64], [64, 1], [0, 16] : <tensor<16x32xf16, {SPARSE}>>": "begin at a provable multiple of 32 columns",
    f"%x = tt.addptr %s, %K : !tt.ptr<f16, {SPARSE}>, i32": "may only be described by block pointers or descriptors",
    f"%x = tt.load %s : !tt.ptr<f16, {SPARSE}>": "loaded through a block pointer",
    f"%x = tt.load %right : {TILE}\n%y = tt.expand_dims %x {{axis = 0 : i32}} : tensor<64x32xf16, {SPARSE}> -> "
    f"tensor<1x64x32xf16, {SPARSE}>": "may only be described by block pointers or descriptors, moved, loaded and multiplied",
    f"%x = tt.load %right : {TILE}\n%y = tt.reshape %x : tensor<64x32xf16, {SPARSE}> -> tensor<2x32x32xf16, {SPARSE}>": (
        "a reshape of a sparse tile must keep its rows and columns"
    ),
    f"%x = tt.make_tensor_descriptor %s, [64], [1] : <f16, {SPARSE}>, <tensor<64xf16, {SPARSE}>>": "needs two dimensions at least",
}  # fmt: skip


def test_a_dot_along_the_other_axis_multiplies_the_dense_tile() -> None:
    body = (
        f"%x = tt.make_tensor_ptr %s, [64, 64], [64, 1], [0, 0] : <tensor<64x64xf16, {SPARSE}>>\n"
        f"%y = tt.load %x : !tt.ptr<tensor<64x64xf16, {SPARSE}>>\n%l = tt.load %left : !tt.ptr<tensor<64x64xf16>>\n"
        "%o = arith.constant dense<0.0> : tensor<64x64xf32>\n"
        f"%z = tt.dot %l, %y, %o : tensor<64x64xf16> * tensor<64x64xf16, {SPARSE}> -> tensor<64x64xf32>"
    )
    text = str(decomposed(BLOCKS.replace("BODY", body)))
    assert (
        "tt.decompress %y, %y_metadata {columns = 1 : i32} : tensor<64x32xf16>, tensor<4x64xi16> -> tensor<64x64xf16>"
        in text
    )
    assert re.search(r"%z = tt.dot %l, %\S+, %o : tensor<64x64xf16> \* tensor<64x64xf16> -> tensor<64x64xf32>", text)


@pytest.mark.parametrize("body", REFUSED)
def test_what_is_refused_says_where(body: str) -> None:
    with pytest.raises(UnsupportedKernelError, match=re.escape(REFUSED[body])) as caught:
        decompose_sparse_tensors(parse_ir(BLOCKS.replace("BODY", body)))
    assert "got: " in str(caught.value)


def test_arguments_are_left_to_the_launch() -> None:
    """An offset may be an argument, as long as it is what metadata's rows and words take."""
    text = str(decomposed(BLOCKS.replace("BODY", f"%x = tt.advance %right, [%K, 0] : <tensor<64x32xf16, {SPARSE}>>")))
    assert '"louver.multiple" = [["K", 64 : i64]]' in text or 'louver.multiple = [["K", 64 : i64]]' in text


def test_a_refusal_names_the_users_line() -> None:
    text = BLOCKS.replace("BODY", f'%x = tt.addptr %s, %K : !tt.ptr<f16, {SPARSE}>, i32 loc("kernel.py":7:3)')
    with pytest.raises(UnsupportedKernelError, match=r"got at kernel.py:7:3: %x = tt.addptr"):
        decompose_sparse_tensors(read_ttir(text))


def test_branches_that_lie_differently_are_refused() -> None:
    square = f"!tt.ptr<tensor<64x64xf16, {SPARSE}>>"
    body = (
        f"%u = tt.make_tensor_ptr %s, [64, 64], [64, 1], [0, 0] : <tensor<64x64xf16, {SPARSE}>>\n"
        f"%v = tt.make_tensor_ptr %s, [64, 64], [1, 64], [0, 0] : <tensor<64x64xf16, {SPARSE}>>\n"
        f"%x = scf.if %c -> ({square}) {{ scf.yield %u : {square} }} else {{ scf.yield %v : {square} }}"
    )
    with pytest.raises(UnsupportedKernelError, match="must be sparse along one dimension each time"):
        decompose_sparse_tensors(parse_ir(BLOCKS.replace("BODY", body)))


@pytest.mark.parametrize(
    ("function", "rule"),
    [
        (f"tt.func private @f(!tt.ptr<f16, {SPARSE}>)", "a declaration that takes sparse tensors"),
        (f"tt.func private @f() -> !tt.ptr<f16, {SPARSE}>", "a function that returns sparse tensors"),
        (f"tt.func @f(%t: tensor<64x64xf16, {SPARSE}>) {{ tt.return }}", "a sparse argument must be a pointer, or a descriptor"),
    ],
)  # fmt: skip
def test_functions_that_are_refused(function: str, rule: str) -> None:
    with pytest.raises(UnsupportedKernelError, match=rule):
        decompose_sparse_tensors(parse_ir(function))


def test_the_pipeline_reads_the_form_with_sparse_types() -> None:
    made = decomposed((ROOT / "ir/matmul.mlir").read_text())
    with pytest.raises(ValueError, match="a kernel is compiled from sparse types"):
        compile_tile_ir(made, Schedule.of(tile_m=128, tile_n=256, tile_k=64))


def test_block_pointers_of_the_example_have_views_of_both() -> None:
    made = decomposed((INPUTS / "simplified_sparse_dot.mlir").read_text())
    metadata = only(made, MakeTensorPtrOp, "A_ptrs_metadata")
    assert str(metadata.results[0].type) == "!tt.ptr<tensor<2x64xi16>>"


def test_the_interpreter_runs_the_form_with_sparse_types() -> None:
    text = (INPUTS / "simplified_decomposed_dot.mlir").read_text()
    shapes = {"arg0": (32, 16), "arg1": (32, 32), "arg3": (64, 16)}
    arrays = {name: np.ones(shape, np.float16) for name, shape in shapes.items()}
    with pytest.raises(InterpretationError, match="multiplies operands of sparse types"):
        run_kernel(parse_ir(text), (1,), {**arrays, "arg2": np.ones((2, 64), np.int16)})
