"""Rows 99 to 128 of document 000: the codec of metadata, selection of instructions, its examples."""

from __future__ import annotations

import random

import numpy as np

import louver
from claims.claim import Claim
from claims.document_000 import codecs, cost_value, detection, selection, texts
from claims.document_000.cost_value import cost
from claims.document_000.selection import EXAMPLE_2_PRINTED, PatternDatabase, PatternEntry
from claims.document_000.sizes import REAL_BITS, Sizes
from claims.shown import ORDERED, error, file_of, native, record, refused, speeds, spread
from louver.isa.catalogue import narrow_shapes, warp_shapes, warpgroup_shapes
from louver.isa.mma import Mma

PRUNED = [1.0, 0.0, 2.0, 0.0]


def packing() -> str:
    draw = random.Random(7)
    ids = [draw.randrange(4) for _ in range(37)]
    packed = codecs.pack(ids)
    assert packed.num_bytes == 10 and [packed.block_pattern(block) for block in range(37)] == ids
    assert packed.data[0] == ids[0] | ids[1] << 2 | ids[2] << 4 | ids[3] << 6
    return "Run: 37 random ids below 4 come back. The real codes have 4 bits, two groups a byte (`louver/formats/codes.py`)."


def both_readers() -> str:
    draw = random.Random(8)
    packed = codecs.pack([draw.randrange(4) for _ in range(101)])
    assert all(packed.block_pattern(block) == packed.block_pattern_fast(block) for block in range(101))
    return "Run: both readers agree for every block."


def decoding() -> str:
    assert all(codecs.decode_pattern(codecs.encode_pattern(*kept)) == kept for kept in codecs.POSITIONS)
    assert codecs.decode_pattern(6) == (-1, -1)
    return "Run: it undoes `encode_pattern`; an id of six or more gives -1, -1."


def invalid_is_packed() -> str:
    found = codecs.generate_metadata([1.0, 0.0, 0.0, 0.0, *PRUNED])
    assert found.block_pattern(0) == 3 and found.block_pattern(1) == 3
    return "Run: a block that is not 2:4 is or-ed in as 0xFF, and spoils the rest of its byte: it and the next block read as id 3."


def mask_encoder() -> str:
    wrong = [
        kept
        for kept in codecs.POSITIONS
        if codecs.encode_sparse_pattern([float(i in kept) for i in range(4)]) != codecs.encode_pattern(*kept)
    ]
    assert len(wrong) == 4
    return f"Run: as in row 49, ids of {', '.join(str(list(kept)) for kept in wrong)} are those of the mirrored block."


def metadata_space() -> str:
    assert Sizes(1024, 2).metadata == 1024 / 16 and Sizes(1024, 2, REAL_BITS).metadata == 1024 / 8
    return "n / 16 bytes for its 2 bits. The hardware's 4 bits take n / 8."


def true_codec() -> str:
    weight = louver.prune(np.random.default_rng(7).standard_normal((8, 32)).astype(np.float16), "2:4")
    indices = np.asarray(louver.compress(weight, "2:4").indices)
    nibbles = np.stack([indices & 15, indices >> 4], axis=-1).reshape(8, -1)
    for row, codes in zip(weight, nibbles, strict=True):
        kept = [np.flatnonzero(group) for group in row.reshape(-1, 4)]
        assert [codecs.hardware_code(int(first), int(second)) for first, second in kept] == list(codes[: len(kept)])
    product = Mma("f16", "f16", "f32", 32, sparse=True)
    assert 0 not in product.metadata_map.legal and len(product.metadata_map.legal) == 6
    return "Not in the document. Run on random weights: a code is both positions, the first in the low bits; six are legal, 0 is none of them. `louver/formats/codes.py`, `louver/isa/metadata.py`."


def f32_is_tf32() -> str:
    statement = texts.true_warp("f32.f32.f32.f32", 16, 4, 4)
    assert native(ORDERED, "tf32")
    return f"Sparse tensor cores read no f32: {refused(statement)}. f32 weights run 1:2 as tf32 (`louver/library/prepare.py`)."


def criteria() -> str:
    side = 128
    pruned = PRUNED * (side * side // 4)
    failed = {
        "pattern": selection.failed_criterion([1.0] * 4, 2, 2, 80, 1.0),
        "size": selection.failed_criterion(PRUNED * (32 * 32 // 4), 32, 32, 90, 1.0),
        "intensity": selection.failed_criterion(PRUNED * (64 * 64 // 4), 64, 64, 80, 11.0),
        "cost": selection.failed_criterion(pruned, side, side, 80, 1.0),
        "target": selection.failed_criterion(PRUNED * (192 * 192 // 4), 192, 192, 75, 1.0),
    }
    assert all(name == found for name, found in failed.items()), failed
    return "Run: each of the five refuses in turn. At 128×128 the overflown cost (row 93) refuses every matrix."


def pattern_criterion() -> str:
    assert selection.failed_criterion(PRUNED, 2, 2, 80, 1.0) != "pattern"
    assert selection.failed_criterion([1.0, 0.0, 0.0, 0.0], 2, 2, 80, 1.0) == "pattern"
    assert detection.is_2_4_sparse(PRUNED)
    return "Run: it asks for exactly two non-zeros. The hardware takes fewer too (row 2)."


def cost_criterion() -> str:
    side = 128
    assert selection.failed_criterion(PRUNED * (side * side // 4), side, side, 80, 1.0) == "cost"
    assert selection.failed_criterion(PRUNED * (64 * 64 // 4), 64, 64, 80, 1.0) is None
    return "Run: it leaves metadata out, and at 128×128 the dense cost has overflown to 0, so dense always wins."


def size_criterion() -> str:
    assert selection.failed_criterion(PRUNED * 64, 8, 32, 90, 1.0) == "size"
    return "Run: it compares rows and columns of the weight, never the number of tokens, which decides the time of a product."


def intensity_criterion() -> str:
    found = [
        (2 * m * n * k / (2 * (m * k + n * k + m * n)), row["cublas_us"] / row["ours_us"])
        for row in record("h200/gemm.json")["rows"]
        if row["dtype"] == "f16"
        for m, n, k in [row["shape"]]
    ]
    assert all(intensity > 500 and speed > 1.3 for intensity, speed in found)
    return f"At {min(i for i, _ in found):,.0f} to {max(i for i, _ in found):,.0f} FLOP a byte, 2:4 runs at {spread(s for _, s in found)} × dense f16 ({file_of('h200/gemm.json')})."


def target_criterion() -> str:
    assert not error(texts.TRUE_SM80["f16"], "sm_80") and error(texts.TRUE_SM80["f16"], "sm_75")
    return "ptxas takes `mma.sp` from sm_80 on and refuses it for sm_75 (`louver/isa/targets.py`)."


def reasons_for_dense() -> str:
    assert min(speeds("h200/gemm-tokens.json")) > 1
    return f'Of its six reasons "compute-bound" is wrong (row 113), few tokens are none: from one on {spread(speeds("h200/gemm-tokens.json"))} × cuBLAS ({file_of("h200/gemm-tokens.json")}).'


def entry_offsets() -> str:
    offsets, at = {}, 0
    for name, size in selection.ENTRY_FIELDS.items():
        offsets[name], at = at, at + size
    assert at == 40 and (offsets["latency"], offsets["throughput"]) == (8, 24)
    return "Offsets and the 40 bytes add up."


def number_of_forms() -> str:
    counts = [
        len([form for form in forms() if form.sparse]) for forms in (warp_shapes, narrow_shapes, warpgroup_shapes)
    ]
    return f"Of a compiler that is not here. Louver has {counts[0]} sparse shapes of a warp, {counts[1]} of 4 and 6 bits and with scales, {counts[2]} of a warpgroup by type (`louver/isa/catalogue.py`)."


def endless() -> str:
    full = PatternDatabase(4)
    for signature in (3, 7, 11, 5):
        full.insert(PatternEntry(signature, cost(1), cost(1)))
    found = full.lookup(11)
    assert found is not None and found.signature == 11
    try:
        full.lookup(99)
    except RecursionError:
        return "Run: it finds what is there. In a full table, a signature that is not there is looked for without end."
    raise AssertionError("the lookup ended")


def by_target() -> str:
    assert [selection.emitted_family(sm) for sm in (75, 80, 90, 100, 120)] == [
        "dense",
        "mma.sync",
        "warpgroup",
        "tcgen05",
        "tcgen05",
    ]
    assert error(texts.true_tcgen05("f16"), "sm_120a")
    return "Run: it sends sm_120 to tcgen05, which ptxas refuses there. Louver asks the target's table: `louver/isa/targets.py`, `louver/compile/pipeline.py`."


def metadata_register() -> str:
    assert not error(texts.true_tcgen05("f16"), "sm_100a")
    said = error(texts.true_tcgen05("f16").replace("[%r1]", "%r1"), "sm_100a")
    assert said
    return "Metadata of tcgen05 lies in tensor memory, at an address: ptxas refuses a register in its place."


def example_1() -> str:
    assert detection.example_1().startswith("Matrix is 2:4 sparse!\n")
    return "Run as written; it accepts its matrix."


def example_1_output() -> str:
    printed = detection.example_1().split()[-1]
    by_position = codecs.pack([codecs.encode_pattern(0, 1), codecs.encode_pattern(1, 3)])
    assert printed == "0x05" and by_position.data == b"\x10"
    assert [codecs.pack([0, 4, 0]).block_pattern(block) for block in range(3)] == [0, 0, 1]
    return f"Run: its code prints {printed}. 0x10 is what the ids by position give, and that reads back as 0, 0, 1: id 4 spilled."


def example_2_data() -> str:
    assert selection.METADATA_COST == {80: 0.25, 90: 0.1, 100: 0.05}
    return "Kept as data; for sm_90 it takes 0.1 where L2331 takes 0.25."


def example_2_code() -> str:
    assert selection.example_2(64, 80)[0] == 4096
    return "Run: `docs/claims/document_000/selection.py`."


def example_2_output() -> str:
    wrong: dict[int, str] = {}
    for sm, sides in EXAMPLE_2_PRINTED.items():
        for side, printed in sides.items():
            dense, sparse, speedup = selection.example_2(side, sm)
            if (round(dense, 2), round(sparse, 2), round(speedup, 2)) != printed:
                wrong[side] = f"{sparse:.2f} and {speedup:.2f} × for {printed[1]:.2f} and {printed[2]:.2f} ×"
                assert sm == 100
    assert list(wrong) == [64, 256, 1024]
    return f"Run: sm_80 and sm_90 print what it says. sm_100 prints {wrong[64]} at 64×64, and alike at the others."


def pattern_db() -> str:
    assert [pattern.cost.value / 2**56 for pattern in selection.PATTERN_DB] == [2, 0.5, 1, 0.125]
    for pattern in selection.PATTERN_DB:
        assert error(f"{pattern.mnemonic} %r0;", "sm_100a")
    return "Run: its four costs are 2, 0.5, 1, 0.125. ptxas knows none of its four mnemonics."


def nothing_selected() -> str:
    assert selection.first_comparison_is_undefined()
    literal = [selection.select_instruction(p, s, 100, literal=True) for p in ("FP16", "FP8") for s in (True, False)]
    repaired = selection.select_instruction("FP16", True, 100)
    assert literal == [None] * 4 and repaired is not None and repaired.sparse
    assert cost_value.compare(cost(1), cost_value.INFINITY) == 1
    return "Run: the first comparison, with infinity, shifts by -1, which C leaves undefined; as an x86 shifts, nothing is ever selected. Repaired, it selects the sparse one."


def messages() -> str:
    said = [selection.compile_mma_operation("FP16", True, 100), selection.compile_mma_operation("INT8", True, 100)]
    assert said[0].endswith(".sparse (cost: 0.50)") and said[1].startswith("No matching pattern")
    return (
        "Run with repaired comparisons: both of its lines can be printed. Literally, only the fallback's is (row 127)."
    )


CLAIMS = (
    Claim(99, "L2441-2445", "2-bit ids, four a byte, O(1)", "reproduced", packing),
    Claim(100, "L2459-2489", "`SparseMetadata` and its order of bits", "reproduced", packing),
    Claim(101, "L2503-2529", "Two ways to read an id", "reproduced", both_readers),
    Claim(102, "L2535-2569", "`decode_pattern`", "reproduced", decoding),
    Claim(103, "L2595-2663", "`generate_metadata`", "contradicts itself", invalid_is_packed),
    Claim(104, "L2669-2691", "`encode_nonzero_mask`", "contradicts itself", mask_encoder),
    Claim(105, "L2697-2701", "Metadata takes n / 16 bytes", "contradicts the PTX ISA", metadata_space),
    Claim(106, "–", "What the hardware reads", "in the project", true_codec),
    Claim(107, "L2725-2815", "A tree of four decisions", "in the project", "`louver/compile/pipeline.py` gives the family with its reasons, `louver/choose/configure.py` the schedule, `louver/advice/product.py` the format."),
    Claim(108, "L2791-2795", "FP32 to INT4 are its precisions", "contradicts the PTX ISA", f32_is_tf32),
    Claim(109, "L2833-2905", "`should_use_sparse_variant` with five criteria", "reproduced", criteria),
    Claim(110, "L2845", "Criterion 1: the pattern holds", "reproduced", pattern_criterion),
    Claim(111, "L2855", "Criterion 2: the cost is lower", "contradicts itself", cost_criterion),
    Claim(112, "L2869", "Criterion 3: the matrix is large enough", "reproduced", size_criterion),
    Claim(113, "L2881", "Criterion 4: above 10 FLOP a byte, dense", "refuted by measurement", intensity_criterion),
    Claim(114, "L2895", "Criterion 5: sm_80 or newer", "in the project", target_criterion),
    Claim(115, "L2911-2923", "Six reasons for dense", "refuted by measurement", reasons_for_dense),
    Claim(116, "L2945-2963", "An entry of the database has 40 bytes", "reproduced", entry_offsets),
    Claim(117, "L2969-2987", "700 patterns, 50+ of tcgen05, about 12 sparse", "cannot be checked here", number_of_forms),
    Claim(118, "L3003-3035", "`lookup_pattern` by linear probing", "reproduced", endless),
    Claim(119, "L3057-3093", "`emit_sparse_instruction` by target", "contradicts the PTX ISA", by_target),
    Claim(120, "L3099-3145", "Metadata of tcgen05 is loaded into a register", "contradicts the PTX ISA", metadata_register),
    Claim(121, "L3167-3379", "Example 1", "reproduced", example_1),
    Claim(122, "L3385-3389", "It prints 0x10", "contradicts itself", example_1_output),
    Claim(123, "L3429-3511", "`get_cost_model`", "reproduced", example_2_data),
    Claim(124, "L3517-3577", "Example 2's functions", "reproduced", example_2_code),
    Claim(125, "L3625-3711", "What Example 2 prints", "contradicts itself", example_2_output),
    Claim(126, "L3735-3835", "`PATTERN_DB` of four", "contradicts the PTX ISA", pattern_db),
    Claim(127, "L3841-3909", "`select_instruction` takes the cheapest", "contradicts itself", nothing_selected),
    Claim(128, "L3915-3951", "`compile_mma_operation` and its two lines", "reproduced", messages),
)  # fmt: skip
