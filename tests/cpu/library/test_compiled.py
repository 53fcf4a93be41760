from __future__ import annotations

import json
from dataclasses import replace

import pytest

import louver.ptx.assembler as assembler
from louver.choose.reasons import given
from louver.compile.pipeline import compile_product
from louver.compile.plan.schedule import Schedule
from louver.compile.signature import Signature
from louver.frontend.problem import Problem
from louver.library.compiled import Launch, build_record, from_json, to_json
from support.signatures import grid

PROBLEM = Problem("linear", out="bf16", bias="row")
SCHEDULE = Schedule.of(tile_n=16, stages=4)


def test_a_record_launches_without_the_pipeline() -> None:
    record = build_record(PROBLEM, SCHEDULE, "sm_90a")
    compiled = compile_product(PROBLEM, SCHEDULE)
    assert record.cubin.startswith(b"\x7fELF") and record.kernel in compiled.ptx
    assert record.kernel.encode() in record.cubin
    # As it comes back from a file.
    assert from_json(Launch, json.loads(json.dumps(dict(record.launch)))) == Launch.of(
        compiled, given(PROBLEM, SCHEDULE, "sm_90a")
    )
    assert record.resources["ptxas"] == assembler.ptxas_version()


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (True, "C7510: Potential Performance Loss"),
        (False, "a thread spills 8 bytes of registers and reads 8 back, in 0 bytes of stack"),
    ],
    ids=["performance loss", "spill"],
)
def test_a_kernel_that_loses_performance_is_no_record(monkeypatch: pytest.MonkeyPatch, lost: bool, said: str) -> None:
    clean = assembler.assemble(compile_product(PROBLEM, SCHEDULE).ptx)
    if lost:
        spoilt = replace(clean, warnings=(assembler.Remark("C7510", "Potential Performance Loss", None, True),))
    else:
        spoilt = replace(clean, kernels=(replace(clean.kernels[0], spill_store_bytes=8, spill_load_bytes=8),))
    monkeypatch.setattr(assembler, "assemble", lambda ptx, target: spoilt)
    with pytest.raises(RuntimeError) as caught:
        build_record(PROBLEM, SCHEDULE, "sm_90a")
    assert str(caught.value) == (
        "a product's kernel must assemble without spills and serialized products, got "
        f"{said} (ptxas {clean.version}, {PROBLEM}, {SCHEDULE}). Give the schedule a smaller tile, or the epilogue fewer arrays"
    )


def test_other_targets_are_refused() -> None:
    with pytest.raises(ValueError, match="sm_90a, got sm_100a"):
        build_record(PROBLEM, SCHEDULE, "sm_100a")


def test_signatures_bound_their_grids() -> None:
    signature = compile_product(Problem("matmul"), Schedule.of(tile_n=64, stages=4)).signature
    assert grid(signature, 1, 1, 132) == 1
    assert grid(signature, 128, 64, 132) == 1
    assert grid(signature, 129, 65, 132) == 4
    assert grid(signature, 1 << 20, 1 << 20, 132) == 132
    paired = compile_product(Problem("matmul"), Schedule.of(tile_n=64, stages=4, cluster=2)).signature
    assert grid(paired, 1, 1, 132) == 2
    assert grid(paired, 257, 1, 132) == 4
    assert grid(paired, 1 << 20, 1 << 20, 131) == 130
    with pytest.raises(
        ValueError, match="expected the fields of ArgumentParameter or BoxParameter or BoxSizeParameter, got kind"
    ):
        from_json(Signature, {**to_json(signature), "parameters": [{"kind": "other"}]})
