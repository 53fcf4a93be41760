"""Document 003, the paper NM-SpMM: products of vectors N:M on CUDA cores. `docs/nm.md` maps it part by part."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from statistics import geometric_mean

import numpy as np

import louver
from claims.claim import Claim, Document
from claims.shown import file_of, record
from louver.formats.pattern import Pattern
from louver.isa.targets import SM_80, SM_90A
from louver.library.blocking import TABLE_I, Blocking, Step, intensity
from louver.measure.nm import CASES, SPARSITIES, TOKENS, VERSIONS, WEIGHTS

NM, LADDER = "h200/nm.json", "h200/nm-ladder.json"
NAMES = {"16:32@32": "50%", "12:32@32": "62.5%", "8:32@32": "75%", "4:32@32": "87.5%"}
PAPER = {"cublas": (1.8, 2.4, 3.5, 6.3), "nmsparse": (1.2, 1.3, 2.4, 5.3), "over nmsparse": (1.5, 1.8, 1.5, 1.2)}
"""Speeds on an A100 at 50, 62.5, 75 and 87.5% (L377)."""


def weight() -> louver.SparseTensor:
    """A pruned matrix of [96, 77], 2 of 8 vectors of 32 rows."""
    dense = np.random.default_rng(7).standard_normal((96, 77)).astype(np.float32)
    return louver.compress(louver.prune(dense, "2:8@32"), "2:8@32")


def means(layout: str = "matmul") -> list[float]:
    """Geometric mean speed over cuBLAS of the same layout, by sparsity."""
    rows = record(NM)["rows"]
    return [
        geometric_mean([row["us"][f"cublas {layout}"] / row["us"][layout] for row in rows if row["pattern"] == pattern])
        for pattern in NAMES
    ]


def listed(values: Sequence[float], form: str = ".2f") -> str:
    return ", ".join(format(each, form) for each in values)


def windows() -> str:
    s = weight()
    assert np.array_equal(np.asarray(s.dense()), np.asarray(louver.prune(np.asarray(s.dense()), "2:8@32")))
    return "Run: prune, compress and back, of 32 rows at a time, with a tail (`louver/formats/pattern.py`, `tests/cpu/formats/test_vectors.py`)."


def sizes() -> str:
    s = weight()
    indices = s.unpacked_indices()
    assert s.values.shape == (96, ceil(77 / 8) * 2) and indices.shape == (3, ceil(77 / 8) * 2)
    return "Run: B' and D have these sizes, transposed; a last group is filled up (`docs/nm.md`)."


def equation_1() -> str:
    """The sum over kept rows, with the corrected place of a row, is the product with the dense weight."""
    s = weight()
    x = np.random.default_rng(8).standard_normal((5, 77))
    dense, found = np.asarray(s.dense()).astype(np.float64), np.zeros((5, 96))
    values, d = np.asarray(s.values), s.unpacked_indices()
    padded = np.pad(x, ((0, 0), (0, 3)))
    for j in range(96):
        for u in range(values.shape[1]):
            found[:, j] += padded[:, u // 2 * 8 + d[j // 32, u]] * values[j, u]
    np.testing.assert_allclose(found, x @ dense.T, rtol=1e-12, atol=1e-12)
    u = np.arange(4)
    assert list(u * 8 // 2) != list(u // 2 * 8)
    return "Run with A's column ⌊u / N⌋ · M + D it is the dense product. As printed, u · M / N + D begins inside a group for every other u, and the sum has a term too many (`docs/nm.md`)."


def equation_2() -> str:
    w, x = np.random.default_rng(9).standard_normal((2, 64, 64))
    pruned = np.asarray(louver.prune(w.astype(np.float32), "2:8@32")).astype(np.float64)
    error = np.abs(pruned @ x - w @ x) / w.size
    assert error.shape == (64, 64) and error.sum() > 0
    return "Run: `examples/nm.py` prints its mean."


def conclusions() -> str:
    assert weight().values.size == 96 * 20
    return "N / M of the products, N / M of B, and D beside it: `louver/formats/tensor.py`."


def accuracy_methods() -> str:
    return "Louver takes any mask: `louver/formats/compress.py`. Its own measurements of accuracy are in `docs/accuracy.md`."


def footprint() -> str:
    low = Pattern.parse("2:8@32")
    assert abs(low.kept_by(1) - 0.25) < 1e-12 and 0.25 < low.kept_by(4) < 1
    return f"Between ms · ws and ms · ks. Figure 2's 3/8 and 7/8 are of its drawing; four random windows of 2:8 keep {low.kept_by(4):.0%} (`louver/library/blocking.py`)."


def equation_3() -> str:
    step = Step(TABLE_I["large"], Pattern.parse("16:32@32"), 192)
    by_hand = 2 * 64 * 128 * 96 / (64 * 192 + 96 * 128 + 2 * 64 * 128)
    assert step.intensity() == by_hand == intensity((64, 192), (96, 128))
    return f"Run: {by_hand:.1f} FLOP for each element at 50% with the large blocks (`louver/library/blocking.py`). It moves C in each step; Listing 1 stores it once."


def falls() -> str:
    found = [Step(TABLE_I["large"], Pattern.parse(f"{each}@32"), 192).intensity() for each in SPARSITIES]
    assert found == sorted(found, reverse=True)
    return f"Run: {listed(found, '.1f')} (`tests/cpu/library/test_blocking.py` tries every blocking)."


def packing_rule() -> str:
    best = {}
    for row in record(LADDER)["rows"]:
        if row["pattern"] in NAMES:
            ours = {name: row["us"][name] for name in VERSIONS if row["us"].get(name)}
            best[row["case"], row["pattern"]] = min(ours, key=ours.__getitem__)
    assert set(best.values()) == {"V3 unpacked"}
    return f"On an H200, loads without packing are the fastest in all {len(best)} sparse cases, at 75 and 87.5% too ({file_of(LADDER)})."


def two_pipelines() -> str:
    return "One ring of stages serves both: copies run ahead of products (`louver/choose/configure.py`, `docs/fma-unit.md`)."


def depth_formula() -> str:
    pattern, block = Pattern.parse("8:32@32"), TABLE_I["large"]
    size = SM_90A.max_shared_bytes
    printed = 32 * size // (8 * (8 * block.ms + 8 * block.ns))
    right = 32 * size // (8 * (32 * block.ms + 8 * block.ns))
    depth = block.depth(pattern, 4096, SM_90A)
    taken = Step(block, pattern, printed // 32 * 32).shared_bytes
    assert depth == right // 32 * 32 and taken > size // 2
    return f"Listing 1 gives ks = {printed} at 75%, whose blocks take {taken:,} of the {size // 2:,} bytes that equation (4) allows; equation (5) gives {depth}."


def equation_4() -> str:
    for name in NAMES:
        step = Step(TABLE_I["large"], Pattern.parse(name), TABLE_I["large"].depth(Pattern.parse(name), 4096, SM_90A))
        assert step.shared_bytes <= SM_90A.max_shared_bytes // 2 * 1.01
    return "Run for the four sparsities (`louver/library/blocking.py`). The command `roofline` prints the bytes."


def half_kept() -> str:
    return "log2 M bits, rounded up to 1, 2, 4 or 8: `louver/formats/codes.py`."


def table_i() -> str:
    said = {"small": (32, 32, 16, 32, 4, 4), "medium": (32, 64, 32, 32, 8, 4), "large": (64, 128, 64, 32, 8, 8)}
    assert {name: Blocking(*each) for name, each in said.items()} == dict(TABLE_I)
    return "Run: the three sets are legal (`louver/library/blocking.py`)."


def grid() -> str:
    large = TABLE_I["large"]
    assert (4 * large.mt, 8 * large.nt) == (32, 64) and (large.mr, large.nr) == (64, 32)
    return "Its grid of 4×8 threads of 8×8 covers 32×64; Table I's large set has 64×32 (`docs/nm-analysis.md`). 16 FP32 cores for a warp are an A100's; its Table III gives the other two cards twice as many."


def register_bound() -> str:
    held = {f"{mt}×{nt}": mt + nt + mt * nt for mt, nt in ((8, 8), (8, 16), (16, 16))}
    assert held["8×16"] < 255 < held["16×16"] and SM_90A.registers_per_thread == 255
    return f"Run: {', '.join(f'{tile} takes {count}' for tile, count in held.items())} (`louver/library/blocking.py`)."


def equation_6() -> str:
    assert TABLE_I["large"].cmar() == 4.0 and TABLE_I["large"].cmar(4) == 1.0
    return "Run: 8×8 has 4.0 with loads of 16 bytes, 1.0 with 4 (`louver/library/blocking.py`)."


def packing_share() -> str:
    pattern = Pattern.parse("8:32@32")
    printed = 128 * 8 / (32 * 32)
    assert printed == 1.0 and 256 * 12 / (32 * 32) > 1
    return f"ns · N / (L · M) is {printed:.2f} for ns = 128 at 75%, and 3.0 for 256 at 62.5%: above everything. Random windows keep 1 - (1 - N / M)^q, {pattern.kept_by(4):.0%} (`docs/nm-analysis.md`)."


def overhead() -> str:
    """`col_info` over D, by the paper's formula, for Table I's large blocks."""
    shares: dict[int, list[float]] = {}
    for length in (4, 32):
        for name in SPARSITIES:
            pattern = Pattern.parse(f"{name}@{length}")
            step = Step(TABLE_I["large"], pattern, TABLE_I["large"].depth(pattern, 4096, SM_80))
            shares.setdefault(length, []).append(step.ks / (step.ws * step.qs))
    assert max(shares[4][:2]) < 0.1 and min(shares[32]) >= 0.5
    return f"It does not say its L. ks / (ws · qs) is {listed(shares[4], '.0%')} for L = 4, and {listed(shares[32], '.0%')} for L = 32."


def listing_4() -> str:
    current, loaded = 1, 1  # cur = 1; the first block goes to cur
    current ^= 1  # the loop begins by cur ^= 1
    assert current != loaded
    return "Traced: it loads buffer 1, flips, and multiplies buffer 0, which nothing loaded. Line 45 ends with fragment 1, right for even ws only (`docs/nm-analysis.md`)."


def points() -> str:
    assert len(TOKENS) * len(WEIGHTS) == 100
    return "The same 5 × 20: `louver/measure/nm.py`."


def table_ii() -> str:
    said = {
        "A": (512, 512, 512),
        "B": (512, 1024, 1024),
        "C": (512, 2048, 2048),
        "D": (1024, 2048, 2048),
        "E": (2048, 4096, 4096),
        "F": (4096, 4096, 4096),
    }
    assert {case: (n, m, k) for case, (m, n, k) in CASES.items()} == said
    return "The same six, as M×N×K: `louver/measure/nm.py`."


def table_iii() -> str:
    for mhz, sms, flops, peak in ((1410, 108, 128, 19.5), (1695, 82, 256, 35.6), (2520, 128, 256, 82.6)):
        assert round(mhz * sms * flops / 1e6, 1) == peak
    return "Clock × SMs × FLOP a clock gives its peaks: 19.5, 35.6, 82.6 TFLOP/s."


def versions() -> str:
    rows = [row for row in record(LADDER)["rows"] if row["case"] == "F"]
    gains = [row["us"]["V1"] / row["us"]["V3 unpacked"] for row in rows]
    assert min(gains) > 1
    return f"Its three as schedules, and V3 without packing: {listed(sorted(gains))} × V1 at 4096³ ({file_of(LADDER)})."


def dense_case() -> str:
    row = next(row for row in record(LADDER)["rows"] if row["case"] == "F" and row["pattern"].startswith("32:32"))
    best = max(row["us"]["cublas"] / row["us"][name] for name in VERSIONS if row["us"].get(name))
    assert best > 0.95
    return f"With N = M at 4096³ the best version has {best:.2f} × cuBLAS f32 ({file_of(LADDER)})."


def figure_7() -> str:
    rows = {row["pattern"]: row["us"] for row in record(LADDER)["rows"] if row["case"] == "F"}
    ratios = [rows[name]["V1"] / rows[name]["V2"] for name in NAMES]
    assert max(ratios) < 1
    return (
        f"On an H200 V2 has {listed(ratios)} × the speed of V1: packing is a loss at each sparsity ({file_of(LADDER)})."
    )


def figure_8() -> str:
    tiles = {row["case"]: row["tiles"]["V3 unpacked"] for row in record(LADDER)["rows"] if row["pattern"] == "8:32@32"}
    assert len(set(tiles.values())) > 1
    return f"Five tiles were timed for each case: {', '.join(f'{case} {tile}' for case, tile in tiles.items())} are the best at 75% ({file_of(LADDER)})."


def figure_9() -> str:
    found = means()
    assert all(ours >= paper for ours, paper in zip(found, PAPER["cublas"], strict=True))
    return f"An A100 is not here. The same 100 points on an H200: {listed(found)} × cuBLAS f32 ({file_of(NM)})."


def over_nmsparse() -> str:
    mean = geometric_mean(PAPER["over nmsparse"])
    assert max(PAPER["over nmsparse"]) < 2.1
    return f"Its own 1.5, 1.8, 1.5, 1.2 have the mean {mean:.2f}; none is 2.1."


def nmsparse_ratios() -> list[float]:
    return [ours / theirs for ours, theirs in zip(PAPER["cublas"], PAPER["nmsparse"], strict=True)]


def figure_10() -> str:
    rows = {row["pattern"]: row for row in record(NM)["rows"] if row["shape"] == [4096, 4096, 4096]}
    peak = 132 * 256 * 1980e6
    shares = [2 * 4096**3 * Pattern.parse(name).n / 32 / (rows[name]["us"]["matmul"] * 1e-6) / peak for name in NAMES]
    assert min(shares) > 0.6 and max(shares) < 0.85
    return f"On an H200 {listed(shares, '.0%')} of the peak at 1,980 MHz, so 87.5% alone is held back ({file_of(NM)})."


def near_ideal() -> str:
    ideal = [32 / Pattern.parse(name).n for name in NAMES]
    shares = [mean / best for mean, best in zip(means(), ideal, strict=True)]
    assert min(shares) > 0.85
    ratios = nmsparse_ratios()
    assert [round(each, 1) for each in ratios[:3]] == [1.5, 1.8, 1.5]
    return f"Means over 100 points are {listed(shares, '.0%')} of M / N on an H200 ({file_of(NM)})."


DOCUMENT = Document(
    "003",
    "NM-SpMM",
    (
        "Believe the format and the speeds: an H200 passes its gains over cuBLAS f32 at all four sparsities.",
        "Believe that N:M is near its ideal M / N in f32 on CUDA cores.",
        "Do not pack on an H200: loads of whole blocks are faster at 50 to 87.5%.",
        "Equation (1) has the place of a row wrong, Listing 1 the depth of a step, Listing 4 its first buffer.",
        "\"2.1 × nmSPARSE\" does not follow from its own 1.2 to 1.8.",
        "On tensor cores, which it does not use, vectors gain on top (`docs/nm-measured.md`).",
    ),
    (
        Claim(1, "L50", "N of M vectors of L elements are kept", "in the project", windows),
        Claim(2, "L50", "B' [w, n], D [w, q]; sizes and padding", "in the project", sizes),
        Claim(3, "L52", "Equation (1)", "contradicts itself", equation_1),
        Claim(4, "L53", "Equation (2), the error", "in the project", equation_2),
        Claim(5, "L55", "N / M of products and of B; D beside", "in the project", conclusions),
        Claim(6, "L61", "V:N:M is another format", "in the project", "Built as `2:M@VL`: `docs/selection.md`, `louver/formats/pattern.py`."),
        Claim(7, "L66", "Methods that keep accuracy combine with it", "in the project", accuracy_methods),
        Claim(8, "L78", "Parameters ms, ns, ks, ws, qs, mt, nt, mr, nr", "in the project", "`louver/library/blocking.py`."),
        Claim(9, "L80", "Below 70% is moderate, above it memory limits", "in the project", "The limit depends on L, blocks and card: `docs/nm-analysis.md`, by the command `roofline`."),
        Claim(10, "L82", "A's footprint is between ms · ws and ms · ks", "in the project", footprint),
        Claim(11, "L84", "Equation (3)", "reproduced", equation_3),
        Claim(12, "L86", "Intensity falls with sparsity", "reproduced", falls),
        Claim(13, "L88", "Pack at high sparsity", "refuted by measurement", packing_rule),
        Claim(14, "L90", "A pipeline for each case", "in the project", two_pipelines),
        Claim(15, "L96-123", "Listing 1", "in the project", "`louver/compile/lower/products/multiply_add.py`."),
        Claim(16, "L100", "Listing 1's ks", "contradicts itself", depth_formula),
        Claim(17, "L129", "Equation (4)", "reproduced", equation_4),
        Claim(18, "L133", "Equation (5)", "reproduced", depth_formula),
        Claim(19, "L131", "log2 M bits an index", "in the project", half_kept),
        Claim(20, "L135", "ms and ns are multiples of 32", "in the project", "`louver/library/blocking.py` refuses others."),
        Claim(21, "L137-141", "Table I", "reproduced", table_i),
        Claim(22, "L147-180", "Listing 2", "in the project", "`louver/compile/lower/products/multiply_add.py`, `docs/fma-unit.md`."),
        Claim(23, "L184", "Threads as 4×8; 16 FP32 cores for a warp", "contradicts itself", grid),
        Claim(24, "L186", "mt + nt + mt · nt ≤ 255", "reproduced", register_bound),
        Claim(25, "L188", "Equation (6)", "reproduced", equation_6),
        Claim(26, "L190", "8×8 or 8×16 are typical", "in the project", "16×8 and 8×8, 8×4 for small tiles: `louver/compile/lower/products/multiply_add.py`."),
        Claim(27, "L200", "Packing reads ns · N / (L · M) of A", "contradicts itself", packing_share),
        Claim(28, "L200", "col_info, D in a new order, a new layout, offline", "in the project", "Lists of rows: `louver/formats/lists.py`."),
        Claim(29, "L200", "col_info costs 1 to 10% of D", "cannot be checked here", overhead),
        Claim(30, "L203", "Figure 4", "in the project", "`louver/formats/lists.py`, `docs/selection.md`."),
        Claim(31, "L205", "Loads without packing at moderate sparsity", "in the project", 'Schedules with `metadata="stage"`: `louver/compile/plan/schedule.py`.'),
        Claim(32, "L207-239", "Listing 3", "in the project", 'Both ways are schedules: `louver/measure/nm.py`.'),
        Claim(33, "L243", "Loads wait for products and for other loads", "in the project", "Rings of stages and entries loaded ahead: `docs/fma-unit.md`, `docs/rings.md`."),
        Claim(34, "L247-250", "Figures 5 and 6", "in the project", two_pipelines),
        Claim(35, "L252", "Double buffers, indices ahead", "in the project", "As many stages as fit: `louver/choose/configure.py`."),
        Claim(36, "L254-300", "Listing 4", "contradicts itself", listing_4),
        Claim(37, "L306", "100 points from Llama", "in the project", points),
        Claim(38, "L310-315", "Table II", "in the project", table_ii),
        Claim(39, "L316-327", "Table III", "reproduced", table_iii),
        Claim(40, "L331", "V1, V2, V3", "in the project", versions),
        Claim(41, "L333-342", "Figure 7: comparable to cuBLAS at N = M", "confirmed by measurement", dense_case),
        Claim(42, "L346-353", "Figure 8: each size has its blocks", "confirmed by measurement", figure_8),
        Claim(43, "L367-379", "Figure 9: 1.8, 2.4, 3.5, 6.3 × cuBLAS", "confirmed by measurement", figure_9),
        Claim(44, "L377", "2.1 × nmSPARSE", "contradicts itself", over_nmsparse),
        Claim(45, "L384", "Figure 10: 75 and 87.5% are bound by memory", "refuted by measurement", figure_10),
        Claim(46, "L388", "Speeds near M / N", "confirmed by measurement", near_ideal),
        Claim(47, "L35-39", "A front end in Python; packing from 70% on pays", "refuted by measurement", lambda: f"{figure_7()} The front end: `louver.linear`, `louver.jit` (`louver/__init__.py`)."),
    ),
)  # fmt: skip
