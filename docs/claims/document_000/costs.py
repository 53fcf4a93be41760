"""Rows 62 to 98 of document 000: cost values, costs, phases of the compiler, detection, least sizes."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np

import louver
from claims.claim import Claim
from claims.document_000 import clocks, codecs, coefficients, cost_value, detection, selection
from claims.document_000.coefficients import COEFFICIENTS, LATENCY, PEAKS_PER_SM, WEIGHTS
from claims.document_000.cost_value import BIAS, INFINITY, ZERO, CostValue, Undefined, cost
from claims.document_000.detection import SparsityType
from claims.document_000.sizes import BANDWIDTH, Sizes
from claims.shown import file_of, record, tflops
from louver.measure.report.roofline import DATASHEET

SMS = 132
"""SMs of an H200."""


def representation() -> str:
    assert cost(1).value == 1 and CostValue(3, BIAS - 1).value == Fraction(3, 2)
    return "Run: `docs/claims/document_000/cost_value.py`. mantissa × 2^(exponent - 16382)."


def constants() -> str:
    assert (BIAS, cost_value.EXPONENT_MAX, INFINITY.exponent, ZERO.mantissa) == (16382, 0x3FFF, 16383, 0)
    largest = CostValue((1 << 64) - 1, BIAS)
    assert cost_value.of(largest.value * 4) == INFINITY
    return "Run. Note: 16383 is infinity, so 16382 is the last finite exponent, and no cost above its mantissa alone exists."


def repaired_operations() -> str:
    draw = random.Random(7)
    for _ in range(500):
        a, b = (cost_value.of(Fraction(draw.randrange(1, 1 << 40), draw.randrange(1, 1 << 20))) for _ in range(2))
        assert abs(cost_value.add(a, b).value - (a.value + b.value)) <= (a.value + b.value) / (1 << 60)
        assert cost_value.compare(a, b) == (a.value < b.value) - (a.value > b.value)
        assert cost_value.normalize(a).value == a.value
        assert cost_value.subtract(cost_value.add(a, b), b).value <= a.value
        assert cost_value.multiply(a, 3).value <= 3 * a.value
    return "Repaired and run on random costs. The document has no code for subtraction and multiplication."


def weighted_sum() -> str:
    metrics = [cost_value.of(Fraction(value)) for value in (4, 1, 2, 8)]
    found = cost_value.total(metrics, list(WEIGHTS.values())).value
    assert found == 4 * 1 + 1 * 3 + 2 * 64 + 8 * 100
    return f"Σ weight · metric, run with the repaired operations: (4, 1, 2, 8) by (1, 3, 64, 100) is {int(found)}."


def weights_disagree() -> str:
    assert WEIGHTS["WEIGHT_64"] == 64
    return "L1241 multiplies the register metric by 64 and the memory metric by 1; L1279 gives 64 to memory, and both 3 and 64 as inverses there."


def priority() -> str:
    assert WEIGHTS["WEIGHT_1"] < WEIGHTS["WEIGHT_100"]
    return "L1231 multiplies the latency by 1, the least weight; 100 goes to the last normalization."


def normalize_twice() -> str:
    found = cost_value.literal_normalize(cost(800), 100)
    assert found == CostValue(8, BIAS - 100)
    return "Run: 800 by weight 100 becomes 8 · 2^-100. The weight is a divisor and an exponent; 800 / 100 would be 8."


def compare_fails() -> str:
    assert cost_value.literal_compare(ZERO, cost(1)) == -1 and cost_value.compare(ZERO, cost(1)) == 1
    undefined = []
    for exponent in (BIAS + 1, BIAS - 64):
        try:
            cost_value.literal_compare(cost(1), CostValue(1, exponent))
        except Undefined:
            undefined.append(BIAS - exponent)
    assert undefined == [-1, 64]
    return "Run: a cost of zero loses to every other; exponents that differ by 1 the other way, or by 64, shift by -1 and 64, which C leaves undefined."


def sums_are_infinite() -> str:
    draw = random.Random(7)
    sums = {
        cost_value.literal_add(cost(draw.randrange(1, 1 << 60)), cost(draw.randrange(1, 1 << 60))) for _ in range(50)
    }
    assert sums == {INFINITY}
    return "Run: it ends in `normalize_cost(·, 0)`, which returns infinity. Every sum of two costs is infinite."


def scale_of_mantissa() -> str:
    dense = cost(LATENCY[80] << 56)
    assert dense.value == 2**58 and cost(LATENCY[100] << 56).value / dense.value == Fraction(1, 2)
    return "4 << 56 is 2^58, not about 2^63. The ratio 1.0 to 0.5 is right."


def net(sm: int) -> tuple[Fraction, Fraction]:
    """Dense and net sparse cost of its examples (L1529-1591), over sm_80's dense one."""
    unit = cost(4 << 56).value
    if sm == 80:
        dense, parts = cost(4 << 56), (cost((4 << 56) // 2), cost((1 << 56) // 4))
    else:
        dense, parts = cost(2 << 56), (cost((2 << 56) // 4), cost((5 << 56) // 100))
    return dense.value / unit, cost_value.add(*parts).value / unit


def net_80() -> str:
    dense, sparse = net(80)
    assert sparse == Fraction(9, 16)
    return f"Its mantissas give {float(sparse):.4f} and {float(dense / sparse):.2f} ×: a quarter of a cycle is 0.0625 of four cycles, not 0.25."


def net_100() -> str:
    dense, sparse = net(100)
    assert round(float(sparse), 4) == 0.1375
    return (
        f"Its mantissas give {float(sparse):.4f} and {float(dense / sparse):.2f} ×: 0.05 of a cycle is 0.0125 of four."
    )


def no_break_even() -> str:
    for sm in (80, 90, 100):
        answers = {dense > sparse for dense, sparse in (selection.break_even(n, n, sm) for n in (2, 8, 64, 512, 4096))}
        assert len(answers) == 1
    return "Run: both sides are linear in the blocks, so the answer is the same at every size. There is no break-even."


def break_even_numbers() -> str:
    found = [
        selection.break_even(side, side, sm, share=COEFFICIENTS[sm]["sparsity"]) for side, sm in ((64, 80), (32, 100))
    ]
    assert found == [(4096, 2304), (512, 192)]
    ratios = " and ".join(f"{dense:.0f} / {sparse:.0f} is {dense / sparse:.2f}" for dense, sparse in found)
    return f"{ratios}. Rows 73 and 74 and Example 2 give other numbers for the same cards."


def peaks() -> str:
    peak = DATASHEET["NVIDIA H200"][16] / SMS
    claimed = PEAKS_PER_SM[90]["sparse f16"]
    fastest = max(
        tflops(*row["shape"], row["ours_us"]) for row in record("h200/gemm.json")["rows"] if row["dtype"] == "f16"
    )
    assert fastest / SMS < peak < claimed / 20
    return f"An SM of an H200 has {peak:.1f} TFLOP/s of sparse f16 by its data sheet and {fastest / SMS:.1f} in {file_of('h200/gemm.json')}; {claimed:.0f} is {claimed / peak:.0f} times that."


def bandwidth() -> str:
    wrong: list[str] = []
    for side, width, dense, values, metadata, total, saved in BANDWIDTH:
        found = Sizes(side * side, width)
        assert (found.dense, found.values, found.metadata) == (dense, values, metadata)
        if round(100 * found.reduction, 1) != saved:
            wrong.append(f"{saved}% is {found.reduction:.2%}")
        if abs(found.net - total) > 1:
            wrong.append(f"{total / 2**20:.3f} MB is {found.net / 2**20:.4f}")
    assert len(wrong) == 4
    return f"Recomputed: {'; '.join(dict.fromkeys(wrong))}. The bytes of each part are right, for its 2 bits."


def formulas() -> str:
    found = Sizes(1024 * 1024, 4)
    assert found.metadata == 1024 * 1024 / 16 and found.net == found.values + found.metadata
    return "Run as written: they give the parts of the table above."


def detect() -> str:
    good = [1.0, 0.0, 2.0, 0.0, 0.0, 3.0, 4.0, 0.0]
    found = detection.detect_2_4_sparsity(good, 2, 4)
    assert found.valid and found.type is SparsityType.SPARSITY_2_4 and found.metadata is not None
    assert [found.metadata.block_pattern(block) for block in range(2)] == [1, 3]
    assert not detection.detect_2_4_sparsity([1.0] * 8, 2, 4).valid
    tail = detection.detect_2_4_sparsity([*good, 9.0], 3, 3)
    assert tail.valid
    spilled = detection.detect_2_4_sparsity([0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0], 2, 4).metadata
    assert spilled is not None and [spilled.block_pattern(block) for block in range(2)] == [0, 1]
    layouts = {detection.detect_2_4_sparsity(good, 2, 4, layout).metadata for layout in ("ROW_MAJOR", "COL_MAJOR")}
    assert len(layouts) == 1
    return "Run: `layout` is never read, a tail of rows · cols % 4 is not looked at, and ids 4 and 5 spill: [1,3], [0,1] read back as 0, 1. The real one: `louver/formats/check.py`."


def encode_by_positions() -> str:
    assert [codecs.encode_pattern(*kept) for kept in codecs.POSITIONS] == list(range(6))
    assert codecs.encode_pattern(2, 1) == codecs.INVALID
    return "Run: these ids are those of the table. `encode_sparse_pattern` (row 49) gives others for four of six."


def validate() -> str:
    draw = np.random.default_rng(7)
    for _ in range(20):
        weight = draw.standard_normal((8, 16)).astype(np.float32)
        if draw.random() < 0.5:
            weight = louver.prune(weight, "2:4")
        assert detection.is_2_4_sparse(weight.ravel().tolist()) == louver.check(weight, "2:4", exact=True).ok
    return 'Run beside `louver.check(w, "2:4", exact=True)` on random weights: the same answers (`louver/formats/check.py`).'


def zeros_and_nans() -> str:
    assert detection.is_2_4_sparse([float("nan"), -0.0, 1.0, 0.0])
    return "Run: -0.0 is a zero, NaN is none. `louver/formats/select.py` has the same rule."


def overflow() -> str:
    free = selection.dense_cost(128, 128, 80)
    wrapped = selection.dense_cost(192, 192, 80).value / selection.dense_cost(64, 64, 80).value
    assert free == cost(0) and selection.dense_cost(64, 64, 80).mantissa != 0 and wrapped < 9
    return f"Run: 4 · 128 · 128 << 48 leaves 64 bits and becomes {free.mantissa}: at 128×128 and its multiples the dense product is free, and 192×192 costs {float(wrapped):.0f} of 64×64."


def sparse_overflow() -> str:
    sizes = [side for side in (32, 64, 128, 256) if selection.sparse_cost(side, side, 80).mantissa == 0]
    assert sizes == [256]
    return "Run: it halves the cost, and leaves 64 bits too: 256×256 costs 0."


def literal_choice() -> str:
    """`should_use_sparse_instruction` with the document's own functions."""
    chosen = {}
    for side in (64, 128):
        parts = selection.sparse_cost(side, side, 80), selection.metadata_cost(side * side // 16, 80)
        total = cost_value.literal_add(*parts)
        chosen[side] = cost_value.literal_compare(total, selection.dense_cost(side, side, 80), x86=True) > 0
    total = cost_value.add(selection.sparse_cost(64, 64, 80), selection.metadata_cost(64 * 64 // 16, 80))
    assert cost_value.compare(total, selection.dense_cost(64, 64, 80)) == 1
    assert chosen == {64: False, 128: True}
    return "Run with its own functions: the infinite sum loses at 64×64, and at 128×128 it wins, because a dense cost of 0 loses to all. Repaired, sparse wins."


def metadata_factors() -> str:
    assert selection.metadata_factor(90) == (5, 0.25) and selection.METADATA_COST[90] == 0.1
    return "It takes 0.25 for sm_90; L597 and Example 2 take 0.1."


def share_of_savings() -> str:
    shares = [selection.METADATA_COST[sm] / (1 - COEFFICIENTS[sm]["sparsity"]) for sm in (80, 100)]
    assert shares[0] == 0.5 and round(shares[1], 3) == 0.067
    return f"By its own numbers metadata are 0.25 of 0.5 saved and 0.05 of 0.75: {shares[0]:.0%} and {shares[1]:.0%}."


def least_size() -> str:
    found = [
        (ours, row["shape"])
        for name in ("gemm.json", "gemm-models.json", "gemm-tokens.json", "gemm-uneven.json")
        for row in record(f"h200/{name}")["rows"]
        if row.get("cublas_us")
        for ours in [row["cublas_us"] / row["ours_us"]]
    ]
    least = min(found)
    smallest = min(shape[1] for _, shape in found)
    assert least[0] > 1 and smallest == 1
    return f"In {len(found)} recorded products, from {smallest} token on, 2:4 is never slower than cuBLAS: at least {least[0]:.2f} × ({'×'.join(map(str, least[1]))}). {clocks.small()}"


def ideal_sizes() -> str:
    assert coefficients.ideal_size(80) == 256
    return "It returns 256 for sm_80 and sm_90; L4367 says 128 for all."


NO_CONSTANTS = "No Triton kernel has a constant matrix: weights arrive at the call, where `louver/formats/check.py` finds the pattern."

CLAIMS = (
    Claim(62, "L1149-1155", "A cost has a mantissa of 64 bits and an exponent of 16", "reproduced", representation),
    Claim(63, "L1159-1171", "Bias 16382, greatest exponent 0x3FFF, infinity, zero", "reproduced", constants),
    Claim(64, "L1179-1187", "Five operations on costs", "reproduced", repaired_operations),
    Claim(65, "L1199-1207", "A cost is Σ weight · metric, weights 1, 3, 64, 100", "reproduced", weighted_sum),
    Claim(66, "L1217-1255", "Four metrics; registers by 64, memory by 1", "contradicts itself", weights_disagree),
    Claim(67, "L1271-1281", "64 is for memory; 3 and 64 are inverses", "contradicts itself", weights_disagree),
    Claim(68, "L1287-1293", "Latency has the greatest weight, 100", "contradicts itself", priority),
    Claim(69, "L1313-1345", "`normalize_cost` applies a weight", "contradicts itself", normalize_twice),
    Claim(70, "L1363-1403", "`compare_costs` finds the cheaper one", "contradicts itself", compare_fails),
    Claim(71, "L1421-1467", "`add_costs` adds", "contradicts itself", sums_are_infinite),
    Claim(72, "L1487-1519", "latency << 56 is about 2^63; 1.0 and 0.5", "contradicts itself", scale_of_mantissa),
    Claim(73, "L1529-1557", "sm_80's net cost is 0.75, 1.33 ×", "contradicts itself", net_80),
    Claim(74, "L1563-1591", "sm_100's net cost is 0.175, 2.86 ×", "contradicts itself", net_100),
    Claim(75, "L1601-1627", "`should_use_sparse` finds a break-even size", "contradicts itself", no_break_even),
    Claim(76, "L1631-1647", "1.78 × and 2.67 × at the break-even", "reproduced", break_even_numbers),
    Claim(77, "L1665-1673", "62.5 to 2,816 TFLOP/s for each SM", "refuted by measurement", peaks),
    Claim(78, "L1685-1695", "The table of bandwidth", "contradicts itself", bandwidth),
    Claim(79, "L1701-1715", "Its formulas", "reproduced", formulas),
    Claim(80, "L1731-1745", "Phase 1 builds IR with hints", "in the project", "`louver/frontend/ttir/read.py`, `louver/compile/canonical/propagate_sparsity.py`."),
    Claim(81, "L1753-1767", "A pass finds patterns in constant matrices", "cannot be checked here", NO_CONSTANTS),
    Claim(82, "L1773-1783", "A pass compares costs", "in the project", "Of formats, dense and sparse: `louver/advice/product.py`, `docs/advise.md`. Of schedules: `louver/choose/configure.py`."),
    Claim(83, "L1787-1799", "700+ patterns, 50+ of tcgen05, 12 sparse, by hash", "cannot be checked here", "Of a compiler that is not here. Louver's forms are objects: `louver/isa/catalogue.py`, `louver isa`."),
    Claim(84, "L1803-1821", "Phase 4 emits instruction and metadata", "in the project", "`louver/compile/lower/products/multiply.py`, `louver/isa/metadata.py`."),
    Claim(85, "L1835-1863", "Ten steps in order", "in the project", "Louver's own order: `docs/passes.md`, `docs/architecture.md`."),
    Claim(86, "L1883-1889", "Detection is O(n)", "in the project", "One pass, on the GPU too: `louver/formats/check.py`, `louver/library/streamed.py`. Exact, so without a confidence."),
    Claim(87, "L1909-1931", "`SparsityType`, `SparsityAnalysisResult`", "reproduced", detect),
    Claim(88, "L1935-2059", "`detect_2_4_sparsity` by layout", "contradicts itself", detect),
    Claim(89, "L2065-2089", "`encode_pattern` by positions", "reproduced", encode_by_positions),
    Claim(90, "L2103-2149", "`is_2_4_sparse`", "reproduced", validate),
    Claim(91, "L1985", "Zeros are values that equal 0.0", "reproduced", zeros_and_nans),
    Claim(92, "L2177-2253", "`should_use_sparse_instruction`", "contradicts itself", literal_choice),
    Claim(93, "L2259-2279", "`compute_dense_cost`", "contradicts itself", overflow),
    Claim(94, "L2285-2307", "`compute_sparse_cost`", "contradicts itself", sparse_overflow),
    Claim(95, "L2313-2337", "`compute_metadata_cost`: 0.25 or 0.05", "contradicts itself", metadata_factors),
    Claim(96, "L2357-2395", "Least useful sizes 64 and 32", "cannot be checked here", least_size),
    Claim(97, "L2401-2413", "Ideal sizes 256 and 128", "contradicts itself", ideal_sizes),
    Claim(98, "L2419-2425", "Why: metadata is 25% or 5% of what is saved", "contradicts itself", share_of_savings),
)  # fmt: skip
