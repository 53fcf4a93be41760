"""Batches in tile IR: what the builder writes is read back; what has no one entry for each program is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import get_args

import pytest

from louver.compile.pipeline import compile_product
from louver.compile.plan.nest import read_nest
from louver.compile.plan.schedule import Schedule
from louver.compile.signature import Signature
from louver.frontend import problem as problems
from louver.frontend.builder import build_tile_ir
from louver.frontend.epilogue import Epilogue
from louver.frontend.problem import Problem
from louver.ir.context import parse_ir
from louver.ir.product import Batch, LoadMatrix, walk
from louver.ir.refusal import UnsupportedKernelError
from louver.library.compiled import from_json, to_json
from support.signatures import boxes, grid
from support.sizes import sizes
from support.tile_ir import TILE

KINDS = [("matmul", "k_major"), ("matmul", "n_major"), ("linear", "k_major")]


def entries(name: str) -> Batch:
    return Batch(*sizes("batch", f"batch_stride_{name}"))


@pytest.mark.parametrize("batch", get_args(problems.Batch))
@pytest.mark.parametrize(("kind", "layout"), KINDS)
def test_entries_are_read_back(kind: str, layout: str, batch: str) -> None:
    problem = Problem(kind, b_layout=layout, bias="row", epilogue=Epilogue(c="bf16"))  # type: ignore[arg-type]
    alone, module = read_nest(build_tile_ir(problem, TILE)), build_tile_ir(replace(problem, batch=batch), TILE)
    for nest in (read_nest(module), read_nest(parse_ir(str(module)))):
        assert nest.a == replace(alone.a, batch=entries("a") if batch != "dense" else None)
        assert nest.b == replace(alone.b, batch=entries("b") if batch != "sparse" else None)
        assert nest.store == replace(alone.store, batch=entries("d"))
        (c,) = [node for node in walk(nest.epilogue) if isinstance(node, LoadMatrix)]
        assert c.batch == entries("c")


REFUSED = [
    ("%entry = tt.get_program_id z", "%entry = tt.get_program_id y", "matrices of a batch and tiles must be numbered"),
    (
        "%c_tensor[%entry,",
        "%c_tensor[%m_tile,",
        "an array that an epilogue reads must have the output's batch",
    ),
    ("%b_tensor[%entry,", "%b_tensor[%n_tile,", "operands and output must have one batch size, and one index"),
    ("%b_tensor[%entry,", "%b_tensor[%M,", "the index in a batch must be a program's number"),
    ("%b, [%batch,", "%b, [%M,", "operands and output must have one batch size, and one index"),
    ("%c, [%batch,", "%c, [%M,", "an array that an epilogue reads must have the output's batch"),
]


@pytest.mark.parametrize(("written", "instead", "rule"), REFUSED)
def test_other_entries_are_refused(written: str, instead: str, rule: str) -> None:
    text = str(build_tile_ir(Problem(batch="both", epilogue=Epilogue(c="f16")), TILE))
    assert text.count(written) == 1
    with pytest.raises(UnsupportedKernelError, match=rule):
        read_nest(parse_ir(text.replace(written, instead)))


def test_blocks_of_several_entries_are_refused() -> None:
    text = str(build_tile_ir(Problem(batch="dense"), TILE))
    several = text.replace(f"tensor<1x{TILE.n}x", f"tensor<2x{TILE.n // 2}x")
    assert several != text
    with pytest.raises(UnsupportedKernelError, match="must be loaded through a descriptor"):
        read_nest(parse_ir(several))


def test_a_batch_is_a_problem_of_its_own() -> None:
    with pytest.raises(ValueError, match="batch must be one of None, 'dense', 'sparse', 'both', got 'all'"):
        Problem(batch="all")  # type: ignore[arg-type]
    found = {
        batch: (Problem(batch=batch).batched_a, Problem(batch=batch).batched_b) for batch in get_args(problems.Batch)
    }
    assert found == {"dense": (False, True), "sparse": (True, False), "both": (True, True)}


@pytest.mark.parametrize("store", ["direct", "bulk"])
def test_signatures_say_what_has_entries(store: str) -> None:
    schedule = Schedule.of(tile_n=64, stages=3, store=store)  # type: ignore[arg-type]
    signature = compile_product(Problem("linear", batch="sparse", epilogue=Epilogue(c="f32")), schedule).signature
    assert from_json(Signature, json.loads(json.dumps(to_json(signature)))) == signature
    names = [parameter.name for parameter in signature.parameters]
    assert "batch" in names and "batch_pitch_c" in names and ("batch_pitch" in names) == (store == "direct")
    ranks = {p.argument: len(p.box) for p in boxes(signature)}
    assert ranks == {"a": 3, "b": 2} | ({"d": 3} if store == "bulk" else {})
    assert grid(signature, 128, 64, 132, 5) == 5 and grid(signature, 129, 65, 132, 5) == 20
    assert grid(signature, 128, 64, 132, 1000) == 132


@pytest.mark.parametrize("cluster", [1, 2])
def test_products_without_a_batch_are_as_ever(cluster: int) -> None:
    ptx = compile_product(Problem("linear"), Schedule.of(tile_n=64, stages=3, cluster=cluster)).ptx  # type: ignore[arg-type]
    assert "tensor.3d" not in ptx and "batch" not in ptx
