"""Document 001, "Sparse Compiler": sparse tensors as encodings of types, and their decomposition."""

from __future__ import annotations

from claims.claim import Claim, Document
from claims.shown import has, printed
from louver.ir.tile.encodings import DENSE, METADATA, OPERAND_STEPS, VALUES

KERNEL = "tests/cpu/ir/inputs/simplified_sparse_dot.mlir"
"""The document's own text."""


def tile() -> str:
    return printed("compile", KERNEL, "--emit", "tile")


def decomposed() -> str:
    return printed("compile", KERNEL, "--emit", "decomposed")


def encoded() -> str:
    return printed("compile", KERNEL, "--emit", "encoded")


def only_encoding() -> str:
    has(tile(), 'tensor<32x64xf16, #tt.sparse<"NV24">>', "tensor<64x16xf16>")
    return 'Run on its text: dense and sparse types differ in `#tt.sparse<"NV24">` alone (`louver/ir/tile/types.py`).'


def own_text_parses() -> str:
    has(tile(), "tt.dot %A, %B, %cst", "tt.store %D_ptrs, %D_trunc")
    return f"Its text is read and printed again: `{KERNEL}`."


def undefined_names() -> str:
    defined, read = {"D", "A", "B"}, {"a_ptr", "b_ptr", "d_ptr"}
    assert not defined & read
    return "The Python text has the parameters D, A, B and reads a_ptr, b_ptr, d_ptr, which nothing defines (`docs/documented-form.md`). As IR, the kernel runs: `tests/emulated/tiles/test_tile_ir.py`."


def argument_tag() -> str:
    has(tile(), '%arg1: !tt.ptr<f16, #tt.sparse<"NV24">>')
    return "Run: the argument has the tag (`louver/compile/canonical/propagate_sparsity.py`)."


def tagged_through() -> str:
    assert tile().count('#tt.sparse<"NV24">') >= 4
    return "Run: pointer, tensor pointer, load and dot have the tag (`louver/compile/canonical/propagate_sparsity.py`)."


def three_operands() -> str:
    has(tile(), 'tt.dot %A, %B, %cst : tensor<32x64xf16, #tt.sparse<"NV24">> * tensor<64x16xf16> -> tensor<32x16xf32>')
    return "Run: `louver/ir/tile/dot.py`."


def names_of_operands() -> str:
    has(tile(), "tt.make_tensor_ptr %arg1, [32, 64], [64, 1], [0, 0]")
    return "Read with the names `shape=`, `strides=`, `offsets=`, printed without them: `louver/ir/tile/syntax.py`."


def two_arguments() -> str:
    has(decomposed(), "%arg1: !tt.ptr<f16>, %arg1_metadata: !tt.ptr<i16>")
    return "Run: values and metadata are two arguments, the second as `_metadata` (`louver/compile/decompose/decompose_sparse_tensors.py`)."


def two_loads() -> str:
    assert decomposed().count("tt.load") == 3 and decomposed().count("tt.make_tensor_ptr") == 4
    return "Run: creation and load are two each (`louver/compile/decompose/memory.py`)."


def recomputed() -> str:
    has(decomposed(), "[32, 32], [32, 1], [0, 0]", "[2, 64], [64, 1], [0, 0]")
    return "Run: [32, 32] and [2, 64] with strides of their own; the rules are in `docs/compiler.md`."


def extra_operand() -> str:
    has(decomposed(), "tt.dot %A, %B, %A_metadata, %cst, sparseIndex = 0")
    return "Run: `sparseIndex = 0`; 1 for a sparse right operand (`louver/ir/tile/dot.py`)."


def none_left() -> str:
    assert "#tt.sparse" not in decomposed()
    return "Run: the decomposed text has no sparse type (`louver/compile/decompose/decompose_sparse_tensors.py`)."


def shapes() -> str:
    has(decomposed(), "tensor<32x32xf16>", "tensor<2x64xi16>")
    return (
        "Run: the same shapes. [2, 64] has no natural order: it is prepacked, [M / 16, K] (`docs/documented-form.md`)."
    )


def orders() -> str:
    has(decomposed(), "%A_metadata, %cst")
    return "`tt.dot %A, %B, E, %cst` names nothing by E, and its GPU IR has `%cst, %E` (`docs/documented-form.md`). Louver prints the first order and reads both."


def own_swizzles() -> str:
    has(encoded(), "meta = 0", "meta = 1", "opIdx = 1")
    return "Values and the dense operand are staged and swizzled, metadata in its own order: `louver/ir/tile/shared.py`, `louver/compile/plan/feeds/ring_copies.py`."


def in_the_type() -> str:
    has(encoded(), "#tt.dot_op<{opIdx = 0, parent = #mma, kWidth = 2, meta = 0}>", "meta = 1}>")
    return "Run: `louver/ir/tile/encodings.py`."


def attribute() -> str:
    has(
        encoded(),
        "#tt.dot_op<{opIdx = 0, parent = #mma, kWidth = 2, meta = 0}>",
        "#tt.dot_op<{opIdx = 1, parent = #mma, kWidth = 2}>",
    )
    return "Run: as `#tt.dot_op` (`louver/ir/tile/encodings.py`)."


def meta_values() -> str:
    assert (DENSE, VALUES, METADATA) == (-1, 0, 1) and set(OPERAND_STEPS) == {-1, 0, 1}
    return "Run: -1, 0, 1 (`louver/ir/tile/encodings.py`)."


DOCUMENT = Document(
    "001",
    "Sparse Compiler",
    (
        "Believe nearly all of it: Louver's compiler is built this way, and its text runs.",
        "A sparse tensor is a dense type with an encoding; a pass makes two dense tensors of it.",
        "Its Python text does not run: three names are not defined.",
        "Its dot has two orders of operands, and a bare `E`; take metadata before the sums.",
        "Its metadata [2, 64] is prepacked, 16 rows in one: it is not in the order of the matrix.",
        "Its tile has 32 rows: a warp's `mma.sp` multiplies it, a warpgroup needs 64.",
    ),
    (
        Claim(1, "L14", "A sparse type differs by its encoding alone", "in the project", only_encoding),
        Claim(2, "L18-49", "The kernel with block pointers", "contradicts itself", undefined_names),
        Claim(3, "L25-41", "`make_block_ptr` with an order", "in the project", "`louver/compile/decompose/expand_blocks.py`, `louver/compile/canonical/describe_tiles.py`."),
        Claim(4, "L46", "`tl.dot` without sums, then a cast", "in the project", own_text_parses),
        Claim(5, "L53", "The argument's pointer is sparse", "in the project", argument_tag),
        Claim(6, "L54-57", "The encoding goes on to tensor pointers and loads", "in the project", tagged_through),
        Claim(7, "L60", "A dot of a sparse operand has three operands", "in the project", three_operands),
        Claim(8, "L54", "`shape=`, `strides=`, `offsets=`", "in the project", names_of_operands),
        Claim(9, "L71", "The pointer and all made from it are tagged", "in the project", tagged_through),
        Claim(10, "L74", "DecomposeSparseTensors passes over the whole IR", "in the project", "`louver/compile/decompose/decompose_sparse_tensors.py`, `louver/compile/decompose/operations.py`."),
        Claim(11, "L74", "The argument becomes values and metadata", "in the project", two_arguments),
        Claim(12, "L74", "Creation and load become two", "in the project", two_loads),
        Claim(13, "L74", "Shape, offsets, strides are recomputed", "in the project", recomputed),
        Claim(14, "L74", "Metadata is an operand of the dot; `sparseIndex`", "in the project", extra_operand),
        Claim(15, "L74", "No sparse tensor is left", "in the project", none_left),
        Claim(16, "L79-80", "Values [32, 32], metadata [2, 64] of i16", "in the project", shapes),
        Claim(17, "L87-103", "The order of the dot's operands", "contradicts itself", orders),
        Claim(18, "L87", "`sparseIndex` names the sparse side", "in the project", extra_operand),
        Claim(19, "L96", "Swizzles differ for A, B and E", "in the project", own_swizzles),
        Claim(20, "L96", "The type tells an operand's part, not the dot", "in the project", in_the_type),
        Claim(21, "L99-101", "`dot_op` with opIdx, parent, kWidth, meta", "in the project", attribute),
        Claim(22, "L109-115", "meta is -1, 0 or 1", "in the project", meta_values),
        Claim(23, "L117", "More arrays take more values of meta", "in the project", "An entry of `OPERAND_STEPS` in `louver/ir/tile/encodings.py`. Vectors became lists of rows instead (`docs/selection.md`)."),
        Claim(24, "L117", "Passes lower by meta", "in the project", "`louver/compile/lower/tiles/dot.py`, `louver/compile/lower/tiles/warpgroup_dot.py`."),
        Claim(25, "L14-117", "Such kernels run on a GPU", "in the project", "`tests/gpu/frontend/test_register_tiles.py`, `tests/emulated/tiles/test_tile_ir.py`."),
    ),
)  # fmt: skip
