"""Rows 1 to 61 of document 000: what the hardware has, by generation."""

from __future__ import annotations

import numpy as np

import louver
from claims.claim import Claim
from claims.document_000 import clocks, codecs, coefficients, detection, selection, texts
from claims.document_000.coefficients import TABLE_80, TABLE_90, TABLE_100
from claims.document_000.sizes import REAL_BITS, Sizes
from claims.shown import (
    GENERATIONS,
    ORDERED,
    emulated,
    error,
    file_of,
    native,
    record,
    refused,
    speeds,
    spread,
    taken,
)
from louver.isa.mma import Mma
from louver.isa.wgmma import Wgmma


def at_most_two() -> str:
    """0:4 and 1:4 groups are legal: they store explicit zeros."""
    weight = np.zeros((16, 32), dtype=np.float16)
    weight[:, ::8] = 1.0  # one of eight: every other group is empty
    kept = louver.compress(weight, "2:4")
    assert (np.asarray(kept.dense()) == weight).all()
    assert louver.check(weight, "2:4").ok and not louver.check(weight, "2:4", exact=True).ok
    return (
        "At most two, a stored value may be 0: groups with one non-zero or none compress, with explicit zeros, and come back bit for bit. "
        "`louver/formats/check.py` has both rules (`exact=True` is the document's)."
    )


def code_bits() -> str:
    product = Mma("f16", "f16", "f32", 32, sparse=True)
    codes = sorted(codecs.hardware_code(*kept) for kept in codecs.POSITIONS)
    assert tuple(codes) == product.metadata_map.legal
    return (
        f"The hardware reads {REAL_BITS} bits a group, two positions of 2 bits: legal codes are "
        f"{', '.join(hex(code) for code in codes)} (`louver/formats/codes.py`). That is 1 bit an element, not 0.5."
    )


def net_compression() -> str:
    saved = [Sizes(1 << 20, width).reduction for width in (4, 2, 1)]
    real = Sizes(1 << 20, 1, REAL_BITS).reduction
    assert all(abs(share - 0.375) > 0.05 for share in saved) and real == 0.375
    shares = ", ".join(f"{share:.2%}" for share in saved)
    return f"Its own 2 bits save {shares} of f32, f16, 8-bit data. 37.5% is right for 8-bit data with the real 4 bits."


def no_turing() -> str:
    assert coefficients.feature_flags(75) & coefficients.FEATURE_SPARSITY_2_4
    said = error(texts.TRUE_SM80["f16"], "sm_75")
    assert said
    return f'L4423 of the same document denies sm_75, and ptxas says: "{said}".'


def ada_differs() -> str:
    assert not error(texts.TRUE_SM80["e4m3"], "sm_89") and error(texts.TRUE_SM80["e4m3"], "sm_80")
    return f"sm_89 multiplies sparse e4m3, sm_80 does not: ptxas takes `mma.sp` of e4m3 for the one and refuses it for the other. Native on {', '.join(native(ORDERED, 'e4m3'))}."


def no_custom_pattern() -> str:
    forms = [Wgmma(8, a, a, d, True) for a, d in (("f16", "f32"), ("bf16", "f32"), ("e4m3", "f32"), ("s8", "s32"))]
    assert all(form.k == 2 * form.k_stored for form in forms)
    assert error(texts.TRUE_SM90.replace("k32", "k48"), "sm_90a")
    return "Every form of `wgmma.sp` stores half of K, two of four (tf32: one of two); ptxas refuses other depths."


def no_hints() -> str:
    said = refused(texts.SM80["f16"])
    return f"There is no `.sparse` in PTX. {said}. CUDA has no `__sparse_matrix`. Louver's hint marks the argument (`louver/frontend/ttir/read.py`, `--sparse w=2:4`)."


def family_80() -> str:
    return f"The name is `mma.sp` or `mma.sp::ordered_metadata`. {taken(texts.TRUE_SM80['f16'], GENERATIONS)}; {refused(texts.SM80['f16'])}."


def weighed() -> str:
    """Louver's own comparison, at a size where a sparse product is faster."""
    found = louver.advise(4096, 4096, 4096, formats=["f16", "f16 2:4"], device="H200")
    assert found["f16 2:4"].time.us < found["f16"].time.us
    return "Run: `louver.advise` puts predicted times of dense and sparse formats beside each other (`louver/advice/product.py`); `louver/formats/check.py` tells whether the pattern holds."


def flattened() -> str:
    ragged = [1.0, 2.0, 0.0, 0.0, 3.0, 4.0] * 2  # 2 × 6: a block of the flattened matrix crosses rows
    flat = detection.is_2_4_sparse(ragged)
    assert not flat and detection.is_2_4_sparse([1.0, 2.0, 0.0, 0.0] * 3)
    return "Run as written. It groups the flattened matrix, so a block crosses rows where cols % 4 is not 0. Hardware and `louver/formats/rows.py` group along K."


def six_patterns() -> str:
    assert [codecs.binary(kept) for kept in codecs.POSITIONS] == [mask for mask, _ in codecs.PATTERN_TABLE]
    assert [codecs.encode_pattern(*kept) for kept in codecs.POSITIONS] == list(range(6))
    return "Run: six pairs, ids 0 to 5, masks read from the left. They are the document's ids; the hardware reads positions instead (`louver/formats/codes.py`)."


def two_bits_do_not_hold_six() -> str:
    lost = [pattern for pattern in range(6) if codecs.pack([pattern]).block_pattern(0) != pattern]
    assert lost == [4, 5]
    return f"Six ids do not fit in 2 bits: ids {lost[0]} and {lost[1]} come back as {', '.join(str(codecs.pack([i]).block_pattern(0)) for i in lost)}."


def valid_and_invalid() -> str:
    blocks = ([3.14, 2.71, 0.0, 0.0], [3.14, 0.0, 0.0, 0.0], [3.14, 2.71, 1.41, 0.0], [3.14, 2.71, 1.41, 9.81])
    assert [detection.is_2_4_sparse(block) for block in blocks] == [True, False, False, False]
    return "Run: its checks say so. For the hardware, the block with one non-zero is legal 2:4 too."


def eight_blocks() -> str:
    ids = [0, 1, 2, 3, 3, 2, 1, 0]
    word = int.from_bytes(codecs.pack(ids).data, "little")
    assert [codecs.get_pattern(word, block) for block in range(8)] == ids
    return "Run: eight ids below 4 go into 16 bits and come back."


def extended_round_trip() -> str:
    ids = [5, 0, 4, 1, 3, 2, 5, 4, 0]
    assert codecs.unpack_wide(codecs.pack_wide(ids), len(ids)) == ids
    return "It gives no layout for 3 bits. Packed from the low bit on, over byte borders, all six ids come back here."


def overhead() -> str:
    found = [Sizes(1024, width).metadata / Sizes(1024, width).dense for width in (4, 2)]
    assert Sizes(1024, 4).metadata == 64 and found == [0.015625, 0.03125]
    real = Sizes(1024, 4, REAL_BITS)
    return f"64 bytes, {found[0]:.2%} and {found[1]:.3%}: the arithmetic holds for its 2 bits. The real 4 bits are {real.metadata:.0f} bytes, twice as much."


def coefficients_run() -> str:
    counts = {sm: len(each) for sm, each in coefficients.COEFFICIENTS.items()}
    assert counts == {80: 8, 90: 9, 100: 12}
    return "Kept as data in `docs/claims/document_000/coefficients.py` and used by its own examples. No unit is given, and nothing here can confirm them."


def table_80() -> str:
    dense, sparse, metadata, net = TABLE_80
    assert net.memory == sparse.memory + metadata.memory and net.cost == sparse.cost + metadata.cost
    m16n8k32 = 16 * 8 * 32
    share = Sizes(1024, 2).metadata / Sizes(1024, 2).dense
    assert dense.operations != m16n8k32 and metadata.memory != share
    return f"The sums hold, the terms do not: 12.5% of metadata is {share:.1%} at L345, and a sparse m16n8k32 has {m16n8k32:,} products, not {dense.operations}."


def interpretation_80() -> str:
    dense, _, metadata, net = TABLE_80
    assert metadata.memory == 0.125 and round(dense.cost / net.cost, 2) == 1.33 and net.latency == dense.latency
    return "1 / 0.75 is 1.33, from its own table. The table is not what a card does: see 28 and 132."


def compute_bound() -> str:
    found = speeds("h200/gemm.json", "f16")
    assert min(found) > 1.3
    return f"Compute-bound f16 products on an H200 run at {spread(found)} × cuBLAS dense ({file_of('h200/gemm.json')}). The instructions alone: {clocks.rates()} ({file_of(clocks.RECORD)})."


def text_80(dtype: str, *true: str) -> str:
    said = refused(texts.SM80[dtype])
    for name in true:
        taken(texts.TRUE_SM80[name], GENERATIONS)
    return f"{said}. The true forms, assembled: {', '.join(texts.TRUE_SM80[name].split()[0] for name in true)} (`louver/isa/mma.py`)."


def registers_80() -> str:
    said = text_80("f16", "f16", "f16 k16")
    assert error(texts.TRUE_SM80["f16 k16"].replace("{%r0, %r1}", "{%r0, %r1, %r2, %r3}"), "sm_80")
    return f"{said} With k16, a sparse A has 2 registers, not 4."


def int4_on_ampere() -> str:
    for name in ("s4", "s4 k64"):
        taken(texts.TRUE_SM80[name], GENERATIONS)
    return f"It is there: `mma.sp` of s4 with k64 and k128 assembles from sm_80 on. Native on {', '.join(native(ORDERED, 's4'))}, emulated on {', '.join(emulated(ORDERED, 's4')[:3])} and newer (`louver/isa/targets.py`)."


def same_ops() -> str:
    sizes = {name: 16 * 8 * k for name, k in (("f16", 32), ("tf32", 16), ("s8", 64))}
    assert sizes == {"f16": 4096, "tf32": 2048, "s8": 8192}
    return f"256, 64, 256 fit no shape: m16n8k32 f16, k16 tf32, k64 s8 have {sizes['f16']:,}, {sizes['tf32']:,}, {sizes['s8']:,} products. The latency is not 4 clocks on an H200 (row 7)."


def warpgroup_name() -> str:
    return f"{refused(texts.SM90['f16'])}. The instruction is `wgmma.mma_async.sp`: {taken(texts.TRUE_SM90, ['sm_90a'])} (`louver/isa/wgmma.py`)."


def rows_of_a_warp() -> str:
    places = Wgmma(8, "f16", "f16", "f32", True).metadata_map
    rows, _ = places.coordinates()
    assert [{int(row) // 16 for row in rows[32 * warp : 32 * warp + 32].ravel()} for warp in range(4)] == [
        {0},
        {1},
        {2},
        {3},
    ]
    return "Nothing is shared: each warp supplies the metadata of its own 16 rows (`louver/isa/metadata.py`, document 004)."


def table_90() -> str:
    _, sparse, metadata, net = TABLE_90
    assert abs(sparse.cost + metadata.cost - net.cost) < 1e-9 and metadata.latency > net.latency
    return f"0.5 + 0.1 is 0.6. Its own cost function takes 0.25 for sm_90 (L2331), not 0.1. On an H200 a load of metadata from shared memory adds {clocks.metadata()} ({file_of(clocks.RECORD)})."


def improvement_90() -> str:
    gain = 1 / TABLE_90[3].cost
    assert round(gain, 2) == 1.67 and coefficients.LATENCY[90] / coefficients.LATENCY[80] == 0.75
    return f"3 of 4 cycles is 25% less, 1 / 0.6 is {gain:.2f}. On an H200, f16 gains {spread(speeds('h200/gemm.json', 'f16'))} ×, for another reason."


def text_90() -> str:
    said = [refused(text) for text in texts.SM90.values()]
    held = Wgmma(128, "f16", "f16", "f32", True).d_fragment
    assert held.registers == 64
    return f"{said[0]}. A thread of an m64n128 product has 64 sums, not 256."


def no_tcgen05_on_120() -> str:
    text = texts.true_tcgen05("f16")
    return f"{taken(text, ['sm_100a', 'sm_103a', 'sm_110a'])}, not for sm_120a: a consumer Blackwell has `mma.sp` with kinds (`louver/isa/targets.py`)."


def name_100() -> str:
    for kind in ("f16", "tf32", "f8f6f4", "i8"):
        assert not error(texts.true_tcgen05(kind), "sm_100a"), kind
    return f"{refused(texts.SM100['f16'])}. The names are `tcgen05.mma.sp.cta_group::1.kind::f16` and so on (assembled for sm_100a)."


def one_thread() -> str:
    assert not error(texts.true_tcgen05("f16"), "sm_100a")
    assert error(texts.true_tcgen05("f16").replace("cta_group::1", "cta_group::1.sync.aligned"), "sm_100a")
    return "One thread issues it: it has no `.sync.aligned` (ptxas refuses one), and its operands are descriptors and tensor memory."


def no_dynamic() -> str:
    return f"{refused(texts.DYNAMIC)}. Finding a pattern is software: `louver/library/streamed.py` checks, prunes and compresses in one pass on the GPU, and `louver/user/finding.py` does so at each call of a kernel."


def reversed_ids() -> str:
    groups = {kept: [float(index in kept) for index in range(4)] for kept in codecs.POSITIONS}
    found = {kept: codecs.encode_sparse_pattern(group) for kept, group in groups.items()}
    wrong = [kept for kept in codecs.POSITIONS if found[kept] != codecs.encode_pattern(*kept)]
    assert wrong == [(0, 1), (0, 2), (1, 3), (2, 3)]
    ids = ", ".join(f"{list(kept)} {found[kept]}" for kept in codecs.POSITIONS)
    return f"Run: the mask is built from the right and looked up as written from the left. Four of six ids are those of the mirrored block: {ids}. `encode_pattern` (L2065) gives 0 to 5."


def overhead_measured() -> str:
    kernels = record("h200/compress.json")["rows"][0]["kernels"]
    shares = {name: kernels[name]["share"] for name in ("check", "compress to ready")}
    listed = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    return f"{refused(texts.DYNAMIC)}. In software a pass runs at near a copy's speed: {listed} of it ({file_of('h200/compress.json')})."


def dynamic_code() -> str:
    values = [1.0, 2.0, 0.0, 0.0, 0.0, 3.0, 0.0, 4.0]
    assert detection.detect_and_apply_dynamic(values) is not None
    assert len(detection.detect_and_apply_dynamic(values) or b"") == 2
    assert detection.detect_and_apply_dynamic([1.0, 0.0, 0.0, 0.0]) is None
    return "Run: it falls back at the first bad block, and writes a byte a block, not 2 bits. Louver's pass: `louver/library/streaming/build_streaming.py`."


def break_even_of_detection() -> str:
    """By its own cost functions: detection grows like the product of the document, so its share never falls."""
    shares = {}
    for side in (128, 512):
        blocks = side * side // 4
        dense, _ = selection.break_even(side, side, 100)
        shares[side] = 4 * blocks / dense
    assert len(set(shares.values())) == 1 and min(shares.values()) > 1
    return f"By its own costs, 4 cycles a block are {shares[128]:.0%} of the product at 128 and at 512: both grow with the matrix. In truth the pass grows with the weight, the product with weight × tokens."


def no_natural_pattern() -> str:
    zeros = 0.9
    broken = sum(ways * (1 - zeros) ** kept * zeros ** (4 - kept) for kept, ways in ((3, 4), (4, 1)))
    groups = 4096 * 14336 // 4
    assert broken * groups > 50_000
    return f"At 90% random zeros {broken * groups:,.0f} of {groups / 1e6:.1f} million groups of 4096×14336 hold more than two: such an activation is pruned on the way, not found."


def table_100() -> str:
    rows = {row.operation: row for row in TABLE_100}
    pairs = [(rows[f"sparse {name}"].cost, rows[f"dense {name}"].cost) for name in ("f16", "fp8", "fp4")]
    assert all(sparse == dense / 4 for sparse, dense in pairs)
    return "Kept as data; its rows agree with each other (sparse is a quarter of dense). No Blackwell card is here, so nothing measures them."


def half_latency() -> str:
    ratio = coefficients.LATENCY[100] / coefficients.LATENCY[80]
    assert ratio == 0.5
    return "2 of 4 cycles is half the latency: 2 × as fast, or 100% faster."


def key_insights() -> str:
    rows = {row.operation: row for row in TABLE_100}
    sparse80 = coefficients.COEFFICIENTS[80]["sparsity"] / coefficients.COEFFICIENTS[100]["sparsity"]
    fp4 = rows["sparse fp4"].throughput * 2
    assert sparse80 == 2 and fp4 == 8 and 0.5 + 0.125 == 0.625
    return "2 ×, 4 · 2 = 8 and 0.5 + 0.125 = 0.625 follow from its table, which nothing here can measure."


def text_100() -> str:
    for text in texts.SM100.values():
        refused(text)
    assert error(texts.true_tcgen05("i8"), "sm_103a") and not error(texts.true_tcgen05("i8"), "sm_100a")
    assert error(texts.true_tcgen05("i4"), "sm_100a")
    return f"{refused(texts.SM100['f16'])}; the other four alike. tcgen05 has no 4-bit integers, and no 8-bit ones on sm_103a."


def block_scale() -> str:
    true = "tcgen05.mma.sp.cta_group::1.kind::mxf8f6f4.block_scale [%r0], %d0, %d1, [%r1], %r2, [%r3], [%r4], %p;"
    return (
        f"{refused(texts.BLOCK_SCALE)}. Block scales exist: {taken(true, ['sm_100a'])} as `kind::mxf8f6f4.block_scale`."
    )


PROVENANCE = "Says where the document comes from: nothing to check."
UNMEASURED_100 = "No Blackwell card is here."

CLAIMS = (
    Claim(1, "L5-109", "Its sources, date and confidence", "cannot be checked here", PROVENANCE),
    Claim(2, "L79", "2:4 is exactly two non-zeros of four", "contradicts the PTX ISA", at_most_two),
    Claim(3, "L81", "Half of the elements are zeros", "in the project", "`louver/formats/pattern.py`, `louver/formats/compress.py`."),
    Claim(4, "L83", "Metadata has 2 bits a block of four, 0.5 an element", "contradicts the PTX ISA", code_bits),
    Claim(5, "L85", "Net compression is 37.5%", "contradicts itself", net_compression),
    Claim(6, "L93-105", "Turing (sm_75) has limited 2:4", "contradicts itself", no_turing),
    Claim(7, "L101-105", "Latency 4, 3, 2 cycles; cost 0.5, 0.5, 0.25", "refuted by measurement", clocks.latencies),
    Claim(8, "L101", "sm_80 to sm_89 are one entry", "contradicts the PTX ISA", ada_differs),
    Claim(9, "L103", "Hopper has custom patterns beside 2:4", "contradicts the PTX ISA", no_custom_pattern),
    Claim(10, "L125-135", "Feature bit 25 from sm_75 on, bit 26 from sm_100 on", "contradicts itself", no_turing),
    Claim(11, "L141-149", "A compiler phase finds patterns in matrices of known values", "in the project", "On arrays and files: `louver/formats/check.py`, the command `inspect`. In a kernel's dense argument: `louver/user/finding.py`. Kernels have no constant matrices."),
    Claim(12, "L155-163", "A sparse product is used where its cost is lower and the pattern holds", "in the project", weighed),
    Claim(13, "L169-175", "Hints: PTX `.sparse`, CUDA `__sparse_matrix`, cuSPARSE", "contradicts the PTX ISA", no_hints),
    Claim(14, "L191-195", "sm_80's unit is `mma.sync` of 32 threads", "in the project", "`louver/isa/mma.py`."),
    Claim(15, "L193", "The family is `mma.sync.aligned.m16n8k16.sparse.*`", "contradicts the PTX ISA", family_80),
    Claim(16, "L211-215", "A block is M[4i:4i+4] of the flattened matrix", "reproduced", flattened),
    Claim(17, "L221-239", "Six patterns, ids 0 to 5", "reproduced", six_patterns),
    Claim(18, "L229-239", "2-bit ids, with two extended ones", "contradicts itself", two_bits_do_not_hold_six),
    Claim(19, "L247-265", "One valid block and three invalid ones", "reproduced", valid_and_invalid),
    Claim(20, "L273-287", "Eight blocks in 16 bits", "reproduced", eight_blocks),
    Claim(21, "L293-299", "`get_pattern` reads any block's id", "contradicts itself", two_bits_do_not_hold_six),
    Claim(22, "L305-319", "The encoding table", "reproduced", six_patterns),
    Claim(23, "L323-327", "3 bits in some implementations", "reproduced", extended_round_trip),
    Claim(24, "L331-345", "64 bytes a 1,024 elements; 1.56% and 3.125%", "reproduced", overhead),
    Claim(25, "L359-381", "Eight cost coefficients of sm_80", "cannot be checked here", coefficients_run),
    Claim(26, "L391-401", "The table dense against sparse of sm_80", "contradicts itself", table_80),
    Claim(27, "L411-415", "Half the traffic, 12.5% metadata, 1.33 ×", "reproduced", interpretation_80),
    Claim(28, "L417", "A compute-bound product gains nothing", "refuted by measurement", compute_bound),
    Claim(29, "L429-443", "The f16 instruction, with 4 registers of A", "contradicts the PTX ISA", registers_80),
    Claim(30, "L449-459", "The tf32 instruction", "contradicts the PTX ISA", lambda: text_80("tf32", "tf32", "tf32 k8")),
    Claim(31, "L465-475", "The s8 instruction", "contradicts the PTX ISA", lambda: text_80("s8", "s8", "s8 k32")),
    Claim(32, "L481-491", "The bf16 instruction", "contradicts the PTX ISA", lambda: text_80("bf16", "bf16")),
    Claim(33, "L4349", "sm_80 has no sparse 4-bit integers", "contradicts the PTX ISA", int4_on_ampere),
    Claim(34, "L497-501", "Every variant takes 4 cycles; 256, 64, 256 operations", "contradicts the PTX ISA", same_ops),
    Claim(35, "L517-521", "sm_90's unit is `warpgroup.mma` of 128 threads", "contradicts the PTX ISA", warpgroup_name),
    Claim(36, "L539", "Experimental custom patterns", "contradicts the PTX ISA", no_custom_pattern),
    Claim(37, "L541", "Metadata is shared by four warps", "contradicts the PTX ISA", rows_of_a_warp),
    Claim(38, "L543", "TMA can bring metadata ahead", "in the project", 'Schedules with `metadata="stage"` or `"barrier"`: `louver/compile/plan/schedule.py`.'),
    Claim(39, "L559-579", "Nine cost coefficients of sm_90", "cannot be checked here", coefficients_run),
    Claim(40, "L589-599", "The table of sm_90: metadata 5 cycles, net 0.6", "contradicts itself", table_90),
    Claim(41, "L607-613", "25% less latency, 1.67 ×", "reproduced", improvement_90),
    Claim(42, "L623-663", "Three instructions with 256 sums", "contradicts the PTX ISA", text_90),
    Claim(43, "L683", "sm_120 has tcgen05", "contradicts the PTX ISA", no_tcgen05_on_120),
    Claim(44, "L685", "The family is `tcgen05.mma.m64n32k32.sparse.*`", "contradicts the PTX ISA", name_100),
    Claim(45, "L687", "128 threads issue it", "contradicts the PTX ISA", one_thread),
    Claim(46, "L689", "The hardware finds patterns at run time", "contradicts the PTX ISA", no_dynamic),
    Claim(47, "L705-713", "2 cycles, cost 0.25, 2 × for 8 and 4 bits", "cannot be checked here", UNMEASURED_100),
    Claim(48, "L729-743", "`enum SparsityPattern`", "reproduced", six_patterns),
    Claim(49, "L749-781", "`encode_sparse_pattern` gives these ids", "contradicts itself", reversed_ids),
    Claim(50, "L791-801", "Three uses: activations, pruning in training, a choice at run time", "in the project", "Activations: `louver.sparsify`, `louver/library/sparsify.py`. In training: `louver/torch/masked.py`. A choice at run time, by a flag on the device: `louver/user/found_launch.py`."),
    Claim(51, "L809-821", "4 to 8 cycles a block by `tcgen05.mma.sparse.dynamic`", "contradicts the PTX ISA", overhead_measured),
    Claim(52, "L831-879", "`detect_and_apply_sparsity_dynamic`", "reproduced", dynamic_code),
    Claim(53, "L887-897", "Finding a pattern pays from 128×128 on", "contradicts itself", lambda: f"{break_even_of_detection()} {no_natural_pattern()}"),
    Claim(54, "L919-945", "Twelve cost coefficients of sm_100", "cannot be checked here", coefficients_run),
    Claim(55, "L955-971", "The table of sm_100", "cannot be checked here", table_100),
    Claim(56, "L981", "2 cycles instead of 4 is 50% faster", "contradicts itself", half_latency),
    Claim(57, "L983-987", "2 × better; 8 × over f32; 62.5% of the traffic", "reproduced", key_insights),
    Claim(58, "L1001-1077", "Five instructions with register operands", "contradicts the PTX ISA", text_100),
    Claim(59, "L1083-1095", "The block-scaled instruction", "contradicts the PTX ISA", block_scale),
    Claim(60, "L1101-1111", "`.sparse.dynamic`", "contradicts the PTX ISA", no_dynamic),
    Claim(61, "L1117-1121", "Latency, rates and operations of sm_100", "cannot be checked here", UNMEASURED_100),
)  # fmt: skip
