from __future__ import annotations

import pytest
from xdsl.utils.exceptions import VerifyException

from louver.compile.canonical.canonicalize import CANONICAL
from louver.compile.passes import State
from louver.frontend.builder import build_tile_ir
from louver.frontend.epilogue import Epilogue
from louver.frontend.problem import Problem, Tile
from louver.ir.context import parse_ir
from support.fused import EPILOGUES, FULL
from support.golden import Golden

GOLDEN = {
    "matmul": Problem(),
    "matmul_n_major_f32": Problem(b_layout="n_major", out="f32"),
    "linear_bias_bf16": Problem("linear", "bf16", "bf16", "bf16", bias="row"),
    "linear_bias_e4m3_e5m2": Problem("linear", "e4m3", "e5m2", "bf16", bias="row"),
    "matmul_bias_s8_u8": Problem("matmul", "s8", "u8", "f16", bias="row"),
    "linear_fused_s8": Problem("linear", "s8", "s8", "s8", bias="row", epilogue=FULL),
    "linear_batch": Problem("linear", batch="both", epilogue=Epilogue(c="f16")),
    "linear_gated": Problem("linear", bias="row", epilogue=EPILOGUES["gated-scaled"]),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_text(name: str, golden: Golden) -> None:
    golden.check(f"ir/{name}.mlir", str(build_tile_ir(GOLDEN[name], Tile(128, 256, 64))))


@pytest.mark.parametrize(
    "problem",
    [
        Problem(),
        Problem("linear", bias="row"),
        Problem(b_layout="n_major", bias="row"),
        Problem("linear", "u8", "s8", "bf16", bias="row"),
        Problem("linear", "e5m2", "e4m3", "e4m3", bias="row"),
        *(
            Problem(kind, "bf16", "bf16", "s8", bias="row", epilogue=e)
            for e in EPILOGUES.values()
            for kind in ("matmul", "linear")
        ),
    ],
)
def test_text_round_trips(problem: Problem) -> None:
    text = str(build_tile_ir(problem, Tile(64, 24, 32)))
    assert str(parse_ir(text)) == text


@pytest.mark.parametrize(
    "problem",
    [
        *GOLDEN.values(),
        *(Problem(b_layout="n_major", pattern=pattern) for pattern in ("4:8@128", "1:4", None)),
        *(Problem("linear", "f32", "f32", "f32", batch=batch) for batch in ("dense", "sparse", "both")),
        Problem("linear", "e4m3", "e4m3", "bf16", accumulate="promoted"),
        *(Problem("linear", bias="row", epilogue=epilogue) for epilogue in EPILOGUES.values()),
    ],
)
def test_products_are_canonical_as_they_are_written(problem: Problem) -> None:
    """`compile_product` leaves canonical passes out."""
    state = State(build_tile_ir(problem, Tile(128, 128, 256)))
    text = str(state.module)
    for each in CANONICAL:
        each.run(state)
        assert str(state.module) == text, each.name


def test_a_tile_that_splits_a_group_is_refused() -> None:
    with pytest.raises(VerifyException, match="2:4 needs K to be a multiple of 4, got K = 30"):
        build_tile_ir(Problem(), Tile(64, 8, 30))
