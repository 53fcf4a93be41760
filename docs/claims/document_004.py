"""Document 004, the PTX ISA's section on `wgmma.mma_async.sp`."""

from __future__ import annotations

import numpy as np

from claims.claim import Claim, Document
from claims.shown import GENERATIONS, error, file_of, record, registers, taken
from louver.formats.codes import NIBBLE_CODES
from louver.formats.pattern import Pattern
from louver.isa.targets import FP8
from louver.isa.wgmma import ACCUMULATORS, FLOAT_N, INTEGER_N, Wgmma

FORMS, ON_HARDWARE = "`louver/isa/wgmma.py`", "`tests/gpu/isa/test_wgmma.py`"
K = {"f16": 32, "bf16": 32, "tf32": 16, "e4m3": 64, "e5m2": 64, "s8": 64, "u8": 64}


def text(
    a: str, b: str, d: str, n: int = 8, *, registers_a: bool = False, selector: int = 0, end: str | None = None
) -> str:
    """A product as the section writes it. end: what follows scale-d."""
    integer = d == "s32"
    count = n // (4 if d == "f16" else 2)
    held = registers("f" if d == "f32" else "r", count, 0 if d == "f32" else 100)
    source = registers("r", 4) if registers_a else "%d0"
    if end is None:
        transposes = (", 0" if registers_a else ", 0, 0") if a in ("f16", "bf16") else ""
        end = "" if integer else f", 1, 1{transposes}"
    return (
        f"wgmma.mma_async.sp.sync.aligned.m64n{n}k{K[a]}.{d}.{a}.{b} {held}, {source}, %d1, %r9, {selector}, %p{end};"
    )


def half_and_metadata() -> str:
    assert all(
        Wgmma(8, a, b, d[0], True).k == 2 * Wgmma(8, a, b, d[0], True).k_stored for (a, b), d in ACCUMULATORS.items()
    )
    return f"Every sparse form stores half of K: {FORMS}."


def illegal_codes() -> str:
    legal = set(NIBBLE_CODES[Pattern(2, 4)])
    assert not legal & {0b0000, 0b0101, 0b1010, 0b1111} and len(legal) == 6
    try:
        Wgmma(8, "f16", "f16", "f32", True).metadata_map.unpack(np.full(128, 0x55555555, dtype=np.uint32), 0)
    except ValueError:
        return "Refused, and decreasing pairs too: `louver/isa/metadata.py`."
    raise AssertionError("0b0101 is taken")


def granularity(a: str) -> str:
    b, d = a, ACCUMULATORS[a, a][0]
    assert Wgmma(8, a, b, d, True).k == K[a]
    return f"{taken(text(a, b, d), ['sm_90a'])}, with k{K[a]} ({FORMS})."


def selectors() -> str:
    assert not error(text("f16", "f16", "f32", selector=1), "sm_90a") and error(
        text("f16", "f16", "f32", selector=2), "sm_90a"
    )
    return f'ptxas takes 0 and 1 for 16 bits and refuses 2: "{error(text("f16", "f16", "f32", selector=2), "sm_90a")}" ({FORMS}).'


def tf32_codes() -> str:
    assert set(NIBBLE_CODES[Pattern(1, 2)]) == {0b0100, 0b1110}
    return f"1:2 with 0b0100 and 0b1110: `louver/formats/codes.py`. {taken(text('tf32', 'tf32', 'f32'), ['sm_90a'])}."


def selector_zero() -> str:
    assert error(text("e4m3", "e4m3", "f32", selector=1), "sm_90a") and not error(text("e4m3", "e4m3", "f32"), "sm_90a")
    return f"ptxas refuses selector 1 for 8 bits ({FORMS})."


def rows_of_warps() -> str:
    rows, _ = Wgmma(8, "f16", "f16", "f32", True).metadata_map.coordinates()
    assert all({int(r) // 16 for r in rows[32 * w : 32 * w + 32].ravel()} == {w} for w in range(4))
    return "Warp w supplies rows 16w to 16w + 15: `louver/isa/metadata.py`."


def fragments(a: str) -> str:
    form = Wgmma(8, a, a, ACCUMULATORS[a, a][0], True, a_source="registers")
    assert form.a_fragment.registers == 4
    codes = np.random.default_rng(7).choice(form.metadata_map.legal, (64, 16)).astype(np.uint8)
    words = form.metadata_map.pack(codes)
    found = np.concatenate([form.metadata_map.unpack(words, s) for s in range(form.metadata_map.selectors)], axis=1)
    assert (found == codes).all()
    return f"Four registers of A; random metadata goes through the map and back (`louver/isa/metadata.py`). On hardware: {ON_HARDWARE}."


def eight_codes() -> str:
    assert 32 // 4 == 8
    return "A register of 32 bits holds 8 vectors of 4 bits; 16 would take 64. The tf32 and 16-bit sections count right (L67, L45)."


def syntax(a: str, source: str) -> str:
    """Both sums, all flags of the form."""
    b, in_registers = a, source == "registers"
    for d in ACCUMULATORS[a, b]:
        assert not error(text(a, b, d, registers_a=in_registers), "sm_90a")
    return f"Assembled for sm_90a ({FORMS})."


def transposes(a: str) -> str:
    shared, held = text(a, a, "f32", end=", 1, -1, 1, 1"), text(a, a, "f32", registers_a=True, end=", 1, -1, 1, 1")
    assert not error(shared, "sm_90a") and error(held, "sm_90a")
    return f"Assembled for sm_90a; ptxas refuses imm-trans-a for A in registers ({FORMS})."


def no_transposes(a: str) -> str:
    assert error(text(a, a, "f32", end=", 1, 1, 0, 0"), "sm_90a")
    return f"{syntax(a, 'shared')} ptxas refuses transposes."


def integer(source: str) -> str:
    saturating = text("s8", "s8", "s32", registers_a=source == "registers").replace("k64.s32", "k64.satfinite.s32")
    plain = text("s8", "s8", "s32", registers_a=source == "registers")
    scaled = text("s8", "s8", "s32", end=", 1, 1")
    assert not error(saturating, "sm_90a") and not error(plain, "sm_90a") and error(scaled, "sm_90a")
    return f"Assembled for sm_90a, with and without `.satfinite`; ptxas refuses scales ({FORMS})."


def float_shapes() -> str:
    assert len(FLOAT_N) == 32
    for a in ("f16", "bf16", "tf32", "e4m3"):
        assert not error("\n".join(text(a, a, "f32", n) for n in FLOAT_N), "sm_90a")
    assert error(text("f16", "f16", "f32", 12), "sm_90a")
    return f"32 n of each float type assembled; n12 is refused ({FORMS})."


def integer_shapes() -> str:
    assert len(INTEGER_N) == 18
    assert not error("\n".join(text("s8", "s8", "s32", n) for n in INTEGER_N), "sm_90a")
    assert error(text("s8", "s8", "s32", 40), "sm_90a")
    return f"18 n assembled; n40 is refused ({FORMS})."


def sums(*pairs: tuple[str, str]) -> str:
    for a, b in pairs:
        for d in ("f16", "f32", "s32"):
            expected = d in ACCUMULATORS[a, b]
            assert expected == (not error(text(a, b, d, end=None if expected else ""), "sm_90a")), (a, b, d)
    return f"ptxas takes {', '.join(ACCUMULATORS[pairs[0]])} and nothing else ({FORMS})."


def selector_constant() -> str:
    assert error(text("f16", "f16", "f32", selector=4), "sm_90a")
    assert error(text("f16", "f16", "f32").replace("%r9, 0,", "%r9, %r8,"), "sm_90a")
    return f"ptxas refuses a register, and numbers above those of the type ({FORMS})."


def mixed() -> str:
    assert not error(text("e4m3", "e5m2", "f32"), "sm_90a") and error(text("f16", "bf16", "f32"), "sm_90a")
    assert not error(text("s8", "u8", "s32"), "sm_90a")
    return f"e4m3 × e5m2 and s8 × u8 assembled, f16 × bf16 is refused ({FORMS})."


def negates() -> str:
    assert not error(text("e4m3", "e4m3", "f32", end=", -1, 1"), "sm_90a") and error(
        text("e4m3", "e4m3", "f32", end=", 0, 1"), "sm_90a"
    )
    return f"ptxas takes -1 and 1, and refuses 0. On hardware: {ON_HARDWARE}."


def fp8_precision() -> str:
    rows = {
        (row["data"], row["accumulate"]): row["error"]
        for row in record("h200/errors.json")["worst_sums"]
        if row["dtype"] == "e4m3" and row["k"] == 4096
    }
    fast, promoted = rows["one sign", "fast"], rows["one sign", "promoted"]
    assert fast > 100 * promoted
    return f"Sums of e4m3 keep about 14 bits, not 24: of one sign at K = 4,096, the error is {fast:.2g} of Σ|a||b|, and {promoted:.1g} where Louver promotes them ({file_of('h200/errors.json')}, `docs/rounding.md`)."


def versions() -> str:
    assert error(text("f16", "f16", "f32"), "sm_90a", "8.1") and not error(text("f16", "f16", "f32"), "sm_90a", "8.2")
    assert error(text("s8", "u8", "s32"), "sm_90a", "8.3") and not error(text("s8", "u8", "s32"), "sm_90a", "8.4")
    return f"ptxas takes it from PTX 8.2 on, and mixed integers from 8.4 on ({FORMS})."


def one_target() -> str:
    return f"{taken(text('f16', 'f16', 'f32'), ['sm_90a'])}, and for no other of {', '.join(GENERATIONS)} (`louver/isa/targets.py`)."


def examples() -> str:
    for b in ("u8", "s8"):
        assert not error(text(b, "u8", "s32"), "sm_90a")
    return f"Both assembled ({FORMS})."


def mixed_eight_bits() -> str:
    assert {(a, b) for a in FP8 for b in FP8} <= set(ACCUMULATORS)
    return sums(("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"), ("e5m2", "e5m2"))


DOCUMENT = Document(
    "004",
    "PTX ISA: wgmma.mma_async.sp",
    (
        "Believe it: 47 of its statements assemble, or run, as it says.",
        "Metadata 0 is undefined: pad with 0x4.",
        "L109 counts 16 vectors of 4 bits in a register of 32: it has 8.",
        "8-bit floats do not sum in single precision: about 14 bits are kept.",
        "The figures 171 to 181 are as the maps of `louver/isa/metadata.py`.",
    ),
    (
        Claim(1, "L2", "A is stored as M × K/2 with metadata", "in the project", half_and_metadata),
        Claim(2, "L4", "0b0000, 0101, 1010, 1111 are invalid", "in the project", illegal_codes),
        Claim(3, "L8", "f16 and bf16: 2:4 with k32", "in the project", lambda: granularity("f16")),
        Claim(4, "L11", "Their selector is 0 or 1", "in the project", selectors),
        Claim(5, "L13", "tf32: 1:2 by 0b1110 and 0b0100", "in the project", tf32_codes),
        Claim(6, "L18-21", "8-bit floats: 2:4 with k64, selector 0", "in the project", selector_zero),
        Claim(7, "L23-26", "Integers alike", "in the project", lambda: granularity("s8")),
        Claim(8, "L29-39", "Each warp supplies 16 rows", "in the project", rows_of_warps),
        Claim(9, "L45-66", "Fragments of k32", "in the project", lambda: fragments("f16")),
        Claim(10, "L67-88", "Fragments of k16", "in the project", lambda: fragments("tf32")),
        Claim(11, "L89-115", "Fragments of k64", "in the project", lambda: fragments("e4m3")),
        Claim(12, "L109", "16 vectors of 4 bits in a .b32", "contradicts itself", eight_codes),
        Claim(13, "L121", "f16, A by descriptor", "in the project", lambda: syntax("f16", "shared")),
        Claim(14, "L122", "f16, A in registers", "in the project", lambda: transposes("f16")),
        Claim(15, "L132", "bf16, A by descriptor", "in the project", lambda: syntax("bf16", "shared")),
        Claim(16, "L133", "bf16, A in registers", "in the project", lambda: transposes("bf16")),
        Claim(17, "L142", "tf32, A by descriptor", "in the project", lambda: no_transposes("tf32")),
        Claim(18, "L143", "tf32, A in registers", "in the project", lambda: syntax("tf32", "registers")),
        Claim(19, "L152", "8-bit floats, A by descriptor", "in the project", lambda: no_transposes("e4m3")),
        Claim(20, "L153", "8-bit floats, A in registers", "in the project", lambda: syntax("e5m2", "registers")),
        Claim(21, "L164", "Integers, A by descriptor", "in the project", lambda: integer("shared")),
        Claim(22, "L165", "Integers, A in registers", "in the project", lambda: integer("registers")),
        Claim(23, "L122-129", "32 shapes n8 to n256", "in the project", float_shapes),
        Claim(24, "L165-169", "18 shapes of integers", "in the project", integer_shapes),
        Claim(25, "L129", "f16 sums in f16 or f32", "in the project", lambda: sums(("f16", "f16"))),
        Claim(26, "L140", "bf16 sums in f32", "in the project", lambda: sums(("bf16", "bf16"))),
        Claim(27, "L150", "tf32 sums in f32", "in the project", lambda: sums(("tf32", "tf32"))),
        Claim(28, "L160-163", "8-bit floats sum in f16 or f32, mixed too", "in the project", mixed_eight_bits),
        Claim(29, "L170-172", "Integers sum in s32, mixed too", "in the project", lambda: sums(("s8", "s8"), ("s8", "u8"), ("u8", "s8"), ("u8", "u8"))),
        Claim(30, "L174", "scale-d false: D = A · B", "in the project", f"`louver/isa/product_meaning.py`, {ON_HARDWARE}."),
        Claim(31, "L175", "A fence before registers are used", "in the project", "The emulator refuses a product without it: `louver/emulator/warpgroup.py`, `docs/emulator-rules.md`."),
        Claim(32, "L176", "Commit and wait before results are read", "in the project", "The emulator refuses an early read: `louver/emulator/warpgroup.py`, `docs/emulator-rules.md`."),
        Claim(33, "L177", "Descriptors are equal in all warps", "in the project", "The emulator compares them: `louver/emulator/warpgroup.py`."),
        Claim(34, "L177", "sp-sel is a constant", "in the project", selector_constant),
        Claim(35, "L178-193", "The table of sp-meta and sp-sel", "in the project", lambda: f"{selectors()} {selector_zero()}"),
        Claim(36, "L194", "Transposes: 16 bits, by descriptor", "in the project", lambda: transposes("f16")),
        Claim(37, "L195", "-1 negates floats", "in the project", negates),
        Claim(38, "L196-200", "Types are equal but for 8 bits", "in the project", mixed),
        Claim(39, "L203-204", "Sums have at least single precision", "refuted by measurement", fp8_precision),
        Claim(40, "L206", "tf32 drops 13 bits", "in the project", f"{ON_HARDWARE} (truncation)."),
        Claim(41, "L209-210", "Integers saturate or wrap", "in the project", f"{ON_HARDWARE}, `tests/cpu/isa/test_wgmma_meaning.py`."),
        Claim(42, "L211", "`.sync`: a warp waits for its threads", "in the project", "`louver/ptx/validate.py`, `louver/emulator/warp.py`."),
        Claim(43, "L212", "`.aligned`: the same instruction in all threads", "in the project", "`louver/ptx/validate.py`, `louver/emulator/warpgroup.py`."),
        Claim(44, "L214-215", "PTX 8.2", "in the project", versions),
        Claim(45, "L217", "sm_90a", "in the project", one_target),
        Claim(46, "L220-226", "Two examples", "in the project", examples),
        Claim(47, "L142-151", "tf32 products", "in the project", "In the library: `tests/gpu/library/test_tf32.py`."),
        Claim(48, "L122", "A in registers", "in the project", "In register tiles, for an A that a kernel computes: `louver/compile/plan/encode/unit.py`. Products read it from shared memory: registers measured slower (`docs/perf-log/07-values-from-registers.md`)."),
        Claim(49, "L194-195", "Transposed and negated operands", "in the project", "Transposed in `louver/compile/plan/encode/unit.py`; negated nowhere, for want of a use."),
    ),
)  # fmt: skip
