"""Sparse models on several ranks (gloo): equal to one process, and clear errors for what cannot be divided."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import louver.torch
from support.torch_weights import close

torch: Any = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.filterwarnings("ignore:louver computes by the reference path"),
    pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch has no torch.distributed"),
    pytest.mark.skipif(torch.__version__.startswith("2.6"), reason="DTensor of PyTorch 2.6 shards no integers"),
]

from louver.torch.linear import SparseWeight  # noqa: E402
from louver.torch.placed import placed_as  # noqa: E402
from support import parallel_ranks as ranks  # noqa: E402
from support.parallel_ranks import Attention, Mlp, dense, sparse, step, tokens  # noqa: E402

nn = torch.nn
TESTS = Path(__file__).resolve().parents[2]


ODD = (
    "columns.even",
    "columns.odd",
    "columns.few",
    "columns.cut windows",
    "rows.even",
    "mlp",
    "load dense mlp",
    *ranks.EXPERTS,
)
"""What 3 ranks run."""


@pytest.fixture(scope="module", params=[2, 3, 4])
def found(request: Any, tmp_path_factory: Any) -> tuple[int, list[dict[str, Any]]]:
    """The number of ranks, and what each of them has. One start of the processes for all cases."""
    names = ODD if request.param == 3 else ()
    return request.param, ranks.start(request.param, tmp_path_factory.mktemp("ranks"), names=names)


def case(found: tuple[int, list[dict[str, Any]]], name: str) -> Any:
    """What the first rank has of a case; the others have the same."""
    _, each = found
    if name not in each[0]:
        pytest.skip("other numbers of ranks run this")
    first = each[0][name]
    for other in each[1:]:
        assert type(other[name]) is type(first), other[name]
        if isinstance(first, dict):
            assert all(same(first[key], other[name][key]) for key in first)
    return first


def same(x: Any, y: Any) -> bool:
    return torch.equal(x, y) if torch.is_tensor(x) else x == y


def single(rows: int, columns: int, pattern: str = "2:4", dtype: Any = torch.bfloat16) -> tuple[Any, Any]:
    made = sparse(nn.Linear, columns, rows, dtype=dtype, pattern=pattern)
    return made(tokens(columns, dtype)).detach(), made[0].weight.dense().detach()


@pytest.mark.parametrize(
    ("name", "rows", "pattern", "dtype"),
    [
        ("columns.even", 72, "2:4", torch.bfloat16),
        ("columns.odd", 25, "2:4", torch.bfloat16),
        ("columns.4:8", 36, "4:8", torch.float32),
        ("columns.windows", 48, "4:8@4", torch.float32),
    ],
)
def test_rows_are_divided_anywhere_with_equal_bits(found: Any, name: str, rows: int, pattern: str, dtype: Any) -> None:
    y, whole = single(rows, 64, pattern, dtype)
    got = case(found, name)
    assert torch.equal(got["dense"], whole)
    # The CPU's f32 products of fewer rows sum in another order.
    assert torch.equal(got["y"], y) if dtype is torch.bfloat16 else None is close(torch, got["y"], y, 1e-6)


def test_few_rows_and_cut_windows_are_refused(found: Any) -> None:
    count, _ = found
    few, windows = case(found, "columns.few"), case(found, "columns.cut windows")
    if count > 2:
        assert few.startswith("ValueError: each rank has a row of a weight divided along rows, got 2 rows of")
        assert few.endswith("take fewer ranks, or leave the layer out of the plan")
    assert "4:8@8 is divided along rows at multiples of 8, got 28 rows" in windows


def test_columns_are_divided_at_multiples(found: Any) -> None:
    count, _ = found
    y, whole = single(40, 192)
    got = case(found, "rows.even")
    assert torch.equal(got["dense"], whole)
    close(torch, got["y"], y, 0.01)
    y, whole = single(40, 96, "1:2", torch.float32)
    got = case(found, "rows.1:2")
    assert torch.equal(got["dense"], whole)
    close(torch, got["y"], y, 1e-5)
    odd = case(found, "rows.odd")
    assert odd.startswith("ValueError: K of torch.bfloat16 is divided at multiples of 16 columns, alike for all ranks")
    assert f"got 176 columns of a layer [40, 176] for {count} ranks" in odd
    assert odd.endswith(f"leave the layer out of the plan, use ColwiseParallel, or pad K to a multiple of {16 * count}")
    assert "4:8@4, a pattern of vectors, is divided along rows alone" in case(found, "rows.windows")


@pytest.mark.parametrize(("name", "kind"), [("mlp", Mlp), ("attention", Attention)])
def test_blocks_equal_those_of_one_process(found: Any, name: str, kind: Any) -> None:
    made = sparse(kind, True)
    expected, got = step(made, tokens()), case(found, name)
    # The gradient of k's bias is 0 but for rounding: a constant changes no softmax.
    for key in expected.keys() - {key for key in expected if "joined" in key or key == "0.k_proj.bias"}:
        close(torch, got[key], expected[key], 0.02)
    with torch.no_grad():
        close(torch, got["inference"], made(tokens()), 0.02)
    # Each member has its own rows, whole ones in the state of all ranks.
    state = {key.removeprefix("state."): each for key, each in got.items() if key.startswith("state.")}
    wanted = made.state_dict()
    assert state.keys() == wanted.keys()
    assert all(torch.equal(each, wanted[key]) for key, each in state.items())


@pytest.mark.parametrize("name", ["e4m3 first", "e4m3 after"])
def test_quantized_layers_have_scales_of_whole_rows(found: Any, name: str) -> None:
    made = sparse(Mlp)
    louver.torch.quantize_(made)
    expected, got = step(made, tokens()), case(found, name)
    state = {key.removeprefix("state."): each for key, each in got.items() if key.startswith("state.")}
    assert all(torch.equal(state[key], each.float()) for key, each in made.state_dict().items())
    # Each rank has scales of its own for its part of a token.
    for key in ("y", "x"):
        close(torch, got[key], expected[key], 0.06)
    close(torch, got["inference"], expected["y"], 0.06)


@pytest.mark.parametrize(
    ("name", "kind", "joined"),
    [("already", Mlp, True), ("already attention", Attention, True), ("already, PyTorch's", Mlp, False)],
)
def test_compress_keeps_placements(found: Any, name: str, kind: Any, joined: bool) -> None:
    made = sparse(kind, True)
    expected, got = step(made, tokens()), case(found, name)
    assert got["class"] == f"{kind.__name__}{joined}" and set(got["done"]) == {"sparse"}
    for key in ("y", "x"):
        close(torch, got[key], expected[key], 0.02)
    close(torch, got["decompressed"], expected["y"], 0.02)
    for key, placed in got["placements"].items():
        rows = not key.startswith(("0.down", "0.o_"))
        assert placed == ("(Shard(dim=0),)" if rows else "(Replicate(),)" if "bias" in key else "(Shard(dim=1),)")
    assert got["placements"].keys() == made.state_dict().keys()


def test_packed_indices_become_natural_when_they_are_divided(found: Any) -> None:
    close(torch, case(found, "packed")["y"], sparse(Attention)(tokens()), 0.02)


def test_sequence_parallel(found: Any) -> None:
    x = tokens().repeat(2, 1)
    close(torch, case(found, "sequence")["y"], sparse(Mlp)(x), 0.02)


@pytest.mark.parametrize(("file", "kind"), [("mlp", Mlp), ("attention", Attention)])
@pytest.mark.parametrize("form", ["", "dense "])
def test_a_rank_reads_the_bytes_of_its_parts_alone(found: Any, file: str, kind: Any, form: str) -> None:
    expected = sparse(kind, True)(tokens()).detach()
    case_of = f"load {form}{file}"
    if case_of not in found[1][0]:
        pytest.skip("other numbers of ranks run this")
    for rank in found[1]:
        got = rank[case_of]
        close(torch, got["y"], expected, 0.02)
        assert got["read"] == got["held"]
        # Headers, and the first bytes of arrays, which tell what they are.
        assert got["read"] < got["from disk"] < got["read"] + 60_000


def test_files_that_do_not_fit_are_refused(found: Any) -> None:
    assert case(found, "load wrong").startswith(
        "ValueError: wrong.safetensors: 0.weight does not keep 2:4: 2:4 allows 2 non-zeros in each group of 4"
    )
    lacking = "without 0.gate_proj.weight.values and no 0.gate_proj.weight: is it another model's?"
    assert case(found, "load lacking").endswith(lacking)


def test_each_rank_has_some_experts(found: Any) -> None:
    pytest.importorskip("transformers")
    assert "each rank has an expert, got 2 experts for 3 ranks: take fewer ranks" in case(found, "few experts")
    made = ranks.sparse_experts()
    expected, got = ranks.step_experts(made, "cpu"), case(found, "experts")
    for key in expected:
        close(torch, got[key], expected[key], 0.02)
    assert torch.equal(got["dense"], made[0].down_proj.dense())
    assert set(got["placed"].values()) == {"(Shard(dim=0),)"}


def test_errors_say_what_to_do(found: Any) -> None:
    count, _ = found
    assert "ExpertParallel divides a layer of experts with sparse weights, got Mlp" in case(found, "no experts")
    assert case(found, "some members").startswith(
        "RuntimeError: layers of one product are divided together, got a style for 2 of 3"
    )
    assert "layers of one product have one style, got Layout(" in case(found, "differing members")
    assert "are divided along rows, got RowwiseParallel for a layer" in case(found, "member by columns")
    assert "a weight is divided once, got" in case(found, "twice")
    assert "takes x as a DTensor, got a plain tensor" in case(found, "plain x")
    assert f"got {24 * count + 8} rows for {count} ranks" in case(found, "turns")


def test_what_products_read_is_compared_on_each_rank(found: Any) -> None:
    assert case(found, "verify") == {"verify": {}, "transposable": False}


def test_the_example_runs() -> None:
    file = TESTS.parent / "examples" / "tensor_parallel.py"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=200, env=env)
    assert done.returncode == 0, done.stderr
    assert "ranks; down.weight.values" in done.stdout and "rank 0 read" in done.stdout


def test_units_of_columns() -> None:
    from louver.formats.pattern import Pattern
    from louver.torch.parallel.styles import columns_unit

    kinds = [("2:4", torch.bfloat16), ("2:4", torch.float8_e4m3fn), ("2:4", torch.int8), ("1:2", torch.float32)]
    assert [columns_unit(Pattern.parse(text), dtype) for text, dtype in kinds] == [16, 32, 32, 8]
    assert columns_unit(Pattern.parse("4:8"), torch.bfloat16) == 16


def test_parallel_imports_nothing_of_torch_distributed_for_plain_layers() -> None:
    code = "import sys, torch, louver.torch.linear; print('louver.torch.parallel' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.strip() == "False"
    assert isinstance(dense(Mlp)[0], Mlp)


def test_a_dense_weight_the_other_way_round_is_refused(tmp_path: Path) -> None:
    """A square one with a mask along both axes would be read without an error."""
    conv1d = pytest.importorskip("transformers.pytorch_utils").Conv1D
    made = nn.Sequential(conv1d(64, 64))
    louver.torch.prune_(made, transposable=True)
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_file(made.state_dict(), tmp_path / "dense.safetensors")
    louver.torch.compress_(made, force=True)
    before = made[0].weight.dense()
    from louver.torch.parallel import load_

    with pytest.raises(
        ValueError, match=r"got 0.weight of a layer whose dense weight is \[in, out\]: load it into the"
    ):
        load_(made, tmp_path / "dense.safetensors")
    assert torch.equal(made[0].weight.dense(), before)


@pytest.fixture
def alone() -> Any:
    """The mesh of one rank, in this process."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield torch.distributed.init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def test_calls_without_gradients_make_no_dtensors(alone: Any, monkeypatch: Any) -> None:
    """Where nothing is sent, plain tensors stay plain."""
    from torch.distributed.tensor import DTensor, Partial

    made = ranks.shared(sparse(Attention), alone, row={"output_layouts": Partial()})
    x = tokens()
    expected = made(x.clone().requires_grad_()).detach()
    monkeypatch.setattr(DTensor, "from_local", lambda *_, **__: pytest.fail("a DTensor was made"))
    with torch.no_grad():
        assert torch.equal(made(x), expected)


def test_products_follow_writes_to_a_frozen_divided_weight(alone: Any) -> None:
    """DTensor counts writes to itself, not to the part that products read."""
    made = ranks.shared(sparse(Mlp).requires_grad_(False), alone)
    down, joint = made[0].down_proj.weight, made[0].up_proj.weight.joint
    x, other = tokens(), SparseWeight.of(torch.randn(*down.shape).bfloat16(), "2:4", prune=True)

    def values() -> None:
        for weight in (down, joint):
            weight.values.mul_(1.5)

    def indices() -> None:
        down.indices.copy_(placed_as(down.indices, other.indices))

    def part() -> None:
        down.values.to_local().mul_(0.5)

    with torch.no_grad():
        made(x)

        def member() -> None:
            # From another divided member.
            made[0].gate_proj.weight.copy_(made[0].up_proj.weight)

        for write in (values, indices, part, member, values):
            write()
            gate, up = (x @ ranks.whole(each.weight.dense()).t() for each in (made[0].gate_proj, made[0].up_proj))
            expected = (nn.functional.silu(gate) * up) @ ranks.whole(down.dense()).t()
            close(torch, made(x), expected, 0.03)
            assert louver.torch.verify(made) == {}


@pytest.mark.parametrize(("name", "kind"), [("mlp", Mlp), ("attention", Attention)])
@pytest.mark.parametrize("how", ["divided", "fsdp"])
def test_a_whole_state_comes_back(found: Any, how: str, name: str, kind: Any) -> None:
    """Members are no parameters, so `torch.distributed.checkpoint` gives them whole rows."""
    got = case(found, f"{how} {name} restored")
    assert torch.equal(got["y"], got["before"])
    close(torch, got["y"], sparse(kind, True)(tokens()).detach(), 0.02)


def test_placements_that_load_does_not_read_are_refused(alone: Any, tmp_path: Path) -> None:
    from torch.distributed.tensor import DTensor, Partial

    from louver.torch.parallel import load_

    made = nn.Sequential(nn.Linear(16, 8, bias=False))
    pytest.importorskip("safetensors.torch").save_file(made.state_dict(), tmp_path / "dense.safetensors")
    made[0].weight = nn.Parameter(DTensor.from_local(made[0].weight.detach(), alone, [Partial()]))
    with pytest.raises(
        ValueError, match=r"got 0.weight with placements \(Partial\(sum\),\): call load_ before fully_shard"
    ):
        load_(made, tmp_path / "dense.safetensors")
