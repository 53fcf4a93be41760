"""Rows 129 to 149 of document 000: its references, characteristics, limits and summary."""

from __future__ import annotations

import numpy as np

import louver
from claims.claim import Claim
from claims.document_000 import clocks, coefficients, texts
from claims.document_000.coefficients import COEFFICIENTS, FP32_PER_SM, PEAKS_PER_SM, TABLE_100
from claims.document_000.hardware import (
    PROVENANCE,
    at_most_two,
    compute_bound,
    int4_on_ampere,
    no_tcgen05_on_120,
)
from claims.document_000.sizes import REAL_BITS, Sizes
from claims.shown import ORDERED, error, file_of, native, record, refused, speeds, spread
from louver.isa.mma import Mma


def found_variants() -> str:
    for text in texts.FOUND:
        refused(text)
    return f"{refused(texts.FOUND[0])}; the other four alike."


def four_times_better() -> str:
    ratio = COEFFICIENTS[80]["sparsity"] / COEFFICIENTS[100]["sparsity"]
    assert ratio == 2
    return f"0.25 against 0.5 is {ratio:.0f} ×, not 4 ×."


def typical_speedup() -> str:
    found = speeds("h200/gemm-models.json", "f16")
    inside = sum(1.3 <= each <= 1.8 for each in found) / len(found)
    assert max(found) < 2 and inside > 0.8
    return f"f16 on an H200, {len(found)} products: {spread(found)} × cuBLAS, {inside:.0%} of them within 1.3 to 1.8 ({file_of('h200/gemm-models.json')})."


def reason_of_speedup() -> str:
    return f"The range is right. Its reason, that memory must be the limit, is not. {compute_bound()}"


def traffic() -> str:
    real = Sizes(1 << 20, 1, REAL_BITS)
    own = Sizes(1 << 20, 1)
    assert real.net / real.dense == 0.625 and own.net / own.dense != 0.625
    return f"0.125 and 0.625 hold for 8-bit data with the hardware's 4 bits; its own 2 bits give {own.net / own.dense:.4f}."


def example_1024() -> str:
    found = Sizes(1024 * 1024, 4)
    assert (found.dense, found.values, found.metadata) == (4 * 2**20, 2 * 2**20, 64 * 2**10)
    return f"Recomputed: {found.reduction:.1%} saved; the sum is {found.net / 2**20:.4f} MB, not 2.064. With the real codes {Sizes(1024 * 1024, 4, REAL_BITS).reduction:.1%}."


def no_f32() -> str:
    fp8 = PEAKS_PER_SM[90]["sparse fp8"] / PEAKS_PER_SM[90]["dense fp8"]
    assert fp8 == 2 and FP32_PER_SM[100][0] == PEAKS_PER_SM[100]["dense f16"]
    return f"624 of 312 is {fp8:.0f} ×, not 4 ×, and it gives f32 and f16 the same 352. There is no sparse f32 product at all."


def over_f32() -> str:
    rows = {row.operation: row.throughput for row in TABLE_100}
    assert rows["dense fp8"] * 2 == 4 and rows["dense fp4"] * 2 == 8
    return "2 · 2 and 4 · 2, from its table; no Blackwell card is here."


def operands() -> str:
    sparse, dense = Mma("f16", "f16", "f32", 32, sparse=True), Mma("f16", "f16", "f32", 16)
    counts = {form: (form.a_fragment.registers, form.b_fragment.registers) for form in (sparse, dense)}
    assert counts[sparse] == (4, 4) and counts[dense] == (4, 2)
    return "A sparse m16n8k32 reads 4 registers of A, 4 of B and one of metadata; two dense m16n8k16 for the same K read 8 and 4. Fewer, not 25% more."


def footprint() -> str:
    found = Sizes(262144, 4)
    real = Sizes(262144, 4, REAL_BITS)
    assert found.net == 528 * 1024 and f"{found.net / found.dense:.1%}" == "51.6%"
    return f"Recomputed: 528 KB, 51.6%. With the real codes {real.net / 1024:.0f} KB, {real.net / real.dense:.1%}."


def one_of_four() -> str:
    groups = {count: np.array([[1.0] * count + [0.0] * (4 - count)] * 2, dtype=np.float16) for count in range(5)}
    legal = [count for count, group in groups.items() if louver.check(group, "2:4").ok]
    assert legal == [0, 1, 2]
    return "Groups with 0, 1 or 2 non-zeros are legal 2:4; with 3 or 4 they are not (`louver/formats/check.py`, row 2)."


def not_validated() -> str:
    product = Mma("f16", "f16", "f32", 32, sparse=True)
    try:
        product.metadata_map.unpack(np.zeros(32, dtype=np.uint32), 0)
    except ValueError as said:
        return f'Illegal metadata is undefined behaviour in the PTX ISA (document 004, row 2). Louver\'s emulator checks it: "{said}" (`louver/isa/metadata.py`).'
    raise AssertionError("metadata 0 is legal")


def types() -> str:
    assert not error(texts.TRUE_SM80["e4m3"], "sm_89")
    return f"FP32: no sparse unit. FP8: sm_89 has it ({', '.join(native(ORDERED, 'e4m3')[:2])}, …). INT4: {int4_on_ampere()} FP4 and FP6 from sm_100 on: right."


def any_size() -> str:
    tokens = sorted({row["shape"][1] for row in record("h200/gemm-uneven.json")["rows"]})
    assert any(count % 8 for count in tokens)
    return f"Louver takes any size (padding of K, any number of tokens: {', '.join(map(str, tokens[:3]))} in {file_of('h200/gemm-uneven.json')}). Ideal sizes: L2401 says 256 for sm_80, this table 128."


def activations() -> str:
    return "Weights: `docs/accuracy.md`. Activations never keep 2:4 by themselves (row 53); they are pruned on the way."


def dates_of_measuring() -> str:
    kernels = record("h200/compress.json")["rows"]
    assert kernels
    return f"Its fourth step, the overhead of detection, is measured: {file_of('h200/compress.json')}. Registers and spills of a kernel: `louver/ptx/assembler.py`."


def summary() -> str:
    assert coefficients.LATENCY == {80: 4, 90: 3, 100: 2}
    wrong = {
        "exactly two": 2,
        "cost 0.25": 7,
        "1.33, 1.67, 2.86 ×": 74,
        "2 bits": 4,
        "FP4 8 ×": 57,
        "least size": 96,
        "registers": 138,
    }
    return (
        "It repeats rows of above: "
        + ", ".join(f"{name} ({row})" for name, row in wrong.items())
        + ". 2:4 on pruned weights of large products is right (132)."
    )


CLAIMS = (
    Claim(129, "L3977-3995", "Eight functions with addresses and sizes", "cannot be checked here", PROVENANCE),
    Claim(130, "L4007-4019", "Five sparse variants of tcgen05", "contradicts the PTX ISA", found_variants),
    Claim(131, "L4027-4081", "sm_100 is 4 × better than sm_80", "contradicts itself", four_times_better),
    Claim(132, "L4101-4111", "At most 2 ×, typically 1.3 to 1.8 ×", "confirmed by measurement", typical_speedup),
    Claim(133, "L4123-4131", "Measured latencies 4, 3, 2 cycles", "refuted by measurement", clocks.latencies),
    Claim(134, "L4147-4153", "Traffic 0.5 + 0.125 = 0.625", "contradicts itself", traffic),
    Claim(135, "L4167-4181", "A 1024×1024 f32 matrix saves 48.4%", "reproduced", example_1024),
    Claim(136, "L4193-4201", "Sparse FP32 of an SM; FP8 4 × dense", "contradicts itself", no_f32),
    Claim(137, "L4207-4209", "4 × and 8 × over f32", "reproduced", over_f32),
    Claim(138, "L4221-4229", "25 to 37.5% more registers", "contradicts the PTX ISA", operands),
    Claim(139, "L4245-4275", "528 KB for 1 MB of f32, 51.6%", "reproduced", footprint),
    Claim(140, "L4295-4301", "Exactly two, or it falls back to dense", "contradicts the PTX ISA", at_most_two),
    Claim(141, "L4303", "1:4 and 3:4 are not possible", "contradicts the PTX ISA", one_of_four),
    Claim(142, "L4305", "The hardware validates patterns", "contradicts the PTX ISA", not_validated),
    Claim(143, "L4309-4317", "0:4, 1:4, 3:4, 4:4 are invalid", "contradicts the PTX ISA", one_of_four),
    Claim(144, "L4329-4349", "The table of types", "contradicts the PTX ISA", types),
    Claim(145, "L4363-4371", "Sizes: multiples of 4, ideal 128", "contradicts itself", any_size),
    Claim(146, "L4391-4403", "Weights are suitable, activations and gradients poor", "in the project", activations),
    Claim(147, "L4419-4431", "sm_120 has tcgen05 at 2 ×", "contradicts the PTX ISA", no_tcgen05_on_120),
    Claim(148, "L4527-4553", "What is left to measure", "in the project", dates_of_measuring),
    Claim(149, "L4565-4611", "Nine findings, best uses, limits", "contradicts itself", lambda: f"{summary()} {reason_of_speedup()}"),
)  # fmt: skip
