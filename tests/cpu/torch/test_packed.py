"""Packed indices: the words of products in place of natural indices."""

from __future__ import annotations

import copy
import io
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

import louver.torch  # noqa: E402
from louver.isa.metadata import prepack, prepacked_shape  # noqa: E402
from louver.torch.columns import is_packed, natural, packed, packed_form  # noqa: E402
from louver.torch.joined import JoinedWeight, MemberRows  # noqa: E402
from louver.torch.linear import SparseLinear, SparseWeight  # noqa: E402
from louver.torch.tokens import quantized_rows  # noqa: E402

SIZES = [(64, 256), (64, 512), (130, 264), (1, 8), (200, 1000)]


def made(rows: int = 130, size: int = 264, dtype: Any = None) -> Any:
    weight = SparseWeight.of(torch.randn(rows, size).to(dtype or torch.bfloat16), "2:4", prune=True)
    return weight.requires_grad_(False)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize(("rows", "size"), SIZES)
def test_words_are_those_of_products_and_come_back(rows: int, size: int, dtype: str) -> None:
    kind, weight = getattr(torch, dtype), made(rows, size)
    words = packed(weight.indices, size, kind)
    assert [words.dtype, list(words.shape)] == list(packed_form(rows, size, kind))
    element = "e4m3" if kind.itemsize == 1 else "bf16"
    wanted = prepack(weight.indices.numpy(), rows, size, element)
    flat = words.reshape(prepacked_shape(rows, size, element) + ((2,) if kind.itemsize == 2 else ())).numpy()
    assert flat.tobytes() == np.ascontiguousarray(wanted).tobytes()
    assert torch.equal(natural(words, rows, size), weight.indices)


def test_illegal_codes_are_named_and_nothing_changes() -> None:
    weight = made()
    weight.indices[3, 1] = 0x45
    with pytest.raises(ValueError, match="got 0x5 at row 3, group 2"):
        weight.pack_()
    assert weight.places.dtype == torch.uint8


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_products_and_gradients_are_those_of_natural_indices(dtype: str) -> None:
    layer = SparseLinear(264, 130, dtype=getattr(torch, dtype))
    other = copy.deepcopy(layer)
    other.weight.pack_()
    assert is_packed(other.weight.places)
    x = torch.randn(5, 264).to(layer.weight.dtype)
    ys: list[Any] = []
    for each in (layer, other):
        leaf = x.clone().requires_grad_()
        y = each(leaf)
        y.square().sum().backward()
        ys.append((y, leaf.grad, each.weight.values.grad, each.weight.dense()))
    assert all(torch.equal(a, b) for a, b in zip(*ys, strict=True))
    assert other.weight.is_transposable == layer.weight.is_transposable
    assert is_packed(other.weight.places)
    ops = torch.ops.louver
    dense = ops.take(other.weight.dense(), other.weight.places)
    assert torch.equal(dense, layer.weight.values)


def test_natural_indices_are_there_when_asked_for() -> None:
    weight = made()
    codes = weight.indices.clone()
    assert torch.equal(weight.pack_().natural(), codes)
    assert is_packed(weight.places)
    assert torch.equal(weight.indices, codes)
    assert weight.indices is weight.places
    # A write counts: the product is that of the new places.
    new = made()
    weight.pack_().indices.copy_(new.indices)
    weight.values.copy_(new.values)
    assert torch.equal(weight.dense(), new.dense())


def test_a_state_dict_has_natural_indices() -> None:
    layer = SparseLinear(264, 130, dtype=torch.bfloat16)
    wanted = {name: each.clone() for name, each in layer.state_dict().items()}
    layer.weight.pack_()
    got = layer.state_dict()
    assert set(got) == set(wanted)
    assert all(torch.equal(got[name], wanted[name]) and got[name].dtype == wanted[name].dtype for name in wanted)
    other = SparseLinear(264, 130, dtype=torch.bfloat16)
    other.weight.pack_()
    for assign in (False, True):
        other.load_state_dict(wanted, assign=assign)
        assert is_packed(other.weight.places)
        assert torch.equal(other.weight.dense(), layer.weight.dense())
    bad = {**wanted, "weight.indices": torch.zeros_like(wanted["weight.indices"])}
    with pytest.raises(RuntimeError, match=r"weight.indices: the codes of .* are 0x4"):
        other.load_state_dict(bad)


def test_copies_and_pickles_stay_packed_and_moves_unpack() -> None:
    layer = SparseLinear(264, 130, dtype=torch.bfloat16)
    layer.weight.pack_()
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    for each in (copy.deepcopy(layer), torch.load(file, weights_only=False)):
        assert is_packed(each.weight.places)
        assert torch.equal(each.weight.dense(), layer.weight.dense())
    dense = layer.weight.dense()
    assert not is_packed(layer.half().weight.places)
    assert torch.equal(layer.weight.dense(), dense.half())
    assert not is_packed(copy.deepcopy(layer).to("meta").weight.pack_().places)


@pytest.mark.parametrize(("kind", "stays"), [("float16", True), ("float32", False), ("float8_e4m3fn", False)])
def test_words_on_a_gpu_are_those_of_the_type(monkeypatch: pytest.MonkeyPatch, kind: str, stays: bool) -> None:
    weight = made(dtype=torch.bfloat16)
    codes, values = weight.indices.clone(), weight.values.clone()
    weight.pack_()
    with monkeypatch.context() as patch:
        # A stand-in: memory of a GPU stays packed.
        patch.setattr(torch.Tensor, "is_cuda", True)
        weight.to(getattr(torch, kind))
    assert is_packed(weight.places) == stays
    assert torch.equal(weight.natural(), codes) and torch.equal(weight.values, values.to(getattr(torch, kind)))


@pytest.mark.parametrize("mine", [False, True])
@pytest.mark.parametrize("theirs", [False, True])
def test_weights_are_copied_in_both_forms(mine: bool, theirs: bool) -> None:
    for copied in (SparseWeight.copy_, SparseWeight.rewrite_):
        weight, other = made(), made()
        place = (weight.pack_() if mine else weight).places.data_ptr()
        copied(weight, other.pack_() if theirs else other)
        assert (is_packed(weight.places), is_packed(other.places)) == (mine, theirs)
        assert weight.places.data_ptr() == place
        assert torch.equal(weight.dense(), other.dense())


def test_quantizing_keeps_the_weight_packed_in_its_new_width() -> None:
    weight = made().pack_()
    codes = weight.natural()
    weight.quantized_(*quantized_rows(weight.values, torch.int8), torch.bfloat16)
    assert weight.places.dtype == torch.int32
    assert torch.equal(weight.natural(), codes)


@pytest.mark.parametrize("by_turns", [False, True])
def test_joined_weights_are_packed_as_one(by_turns: bool) -> None:
    parts = [made(64, 256), made(64 if by_turns else 128, 256)]
    dense = [part.dense() for part in parts]
    joint = JoinedWeight.joined(parts, by_turns=by_turns)
    whole = joint.natural()
    joint.pack_()
    x = torch.randn(3, 256).bfloat16()
    layers = [louver.torch.SparseLinear(256, len(each), False, dtype=torch.bfloat16) for each in dense]
    members = [type_of_members().member(layer, joint, part) for part, layer in enumerate(layers)]
    for member, wanted in zip(members, dense, strict=True):
        assert torch.equal(member.weight.dense(), wanted)
        torch.testing.assert_close(member(x).float(), x.float() @ wanted.float().t(), rtol=0.02, atol=0.05)
        state = member.state_dict()
        assert torch.equal(torch.ops.louver.dense(state["weight.values"], state["weight.indices"], 256), wanted)
    assert is_packed(joint.places)
    assert torch.equal(joint.natural(), whole)
    new = made(64, 256)
    members[0].weight.copy_(new)
    assert is_packed(joint.places)
    assert torch.equal(members[0].weight.dense(), new.dense())
    members[0].load_state_dict({"weight.values": parts[0].values, "weight.indices": parts[0].indices})
    assert is_packed(joint.places)
    assert torch.equal(members[0].weight.dense(), dense[0])
    assert louver.torch.verify(torch.nn.ModuleList([joint])) == {}
    assert torch.equal(members[0].separate().weight.dense(), dense[0])
    # Asked for by a member: both are natural again.
    assert members[1].weight.indices.dtype == torch.uint8
    assert not is_packed(joint.places)
    assert torch.equal(members[1].weight.dense(), dense[1])


def type_of_members() -> Any:
    from louver.torch.joined import JoinedLinear

    return JoinedLinear


@pytest.mark.parametrize("copied", [SparseWeight.copy_, SparseWeight.rewrite_])
@pytest.mark.parametrize("by_turns", [False, True])
@pytest.mark.parametrize("is_member", [False, True])
def test_members_are_copied_in_both_forms(copied: Any, by_turns: bool, is_member: bool) -> None:
    """A member from another weight, or another weight from a member; both packed."""
    parts = [made(64, 256), made(64, 256)]
    joint = JoinedWeight.joined(parts, by_turns=by_turns).pack_()
    member, other = MemberRows(joint, 1), made(64, 256).pack_()
    place = joint.places.data_ptr()
    mine, theirs = (member, other) if is_member else (other, member)
    wanted = theirs.dense()
    getattr(mine, copied.__name__)(theirs)
    assert is_packed(joint.places) and is_packed(other.places)
    assert torch.equal(mine.dense(), wanted) and torch.equal(theirs.dense(), wanted)
    assert torch.equal(MemberRows(joint, 0).dense(), parts[0].dense())
    if copied is SparseWeight.rewrite_:
        assert joint.places.data_ptr() == place


def test_members_whose_rows_fill_no_blocks_stay_natural() -> None:
    assert not is_packed(JoinedWeight.joined([made(72, 256), made(56, 256)]).pack_().places)


@pytest.mark.parametrize(
    ("pattern", "dtype"), [("1:2", torch.float32), ("2:4", torch.float32), ("1:4", torch.bfloat16)]
)
def test_weights_without_words_stay_natural(pattern: str, dtype: Any) -> None:
    weight = SparseWeight.of(torch.randn(64, 256).to(dtype), pattern, prune=True)
    assert weight.pack_().places.dtype == torch.uint8


def test_packed_indices_that_do_not_fit_are_refused() -> None:
    weight = made().pack_()
    x = torch.randn(2, 264).bfloat16()
    with pytest.raises(
        ValueError, match=r"are uint8 of shape .*, or packed int16 of shape \[3, 8, 128, 2\], got torch.int32"
    ):
        torch.ops.louver.linear(x, weight.values, weight.places.view(torch.int32).squeeze(-1))
    with pytest.raises(ValueError, match="got torch.int16 of shape"):
        torch.ops.louver.dense(weight.values.view(torch.uint8)[:, :132].view(torch.int8), weight.places, 264)


def test_models_stay_packed_when_they_are_compiled() -> None:
    layer = SparseLinear(256, 64, False, dtype=torch.bfloat16)
    layer.weight.pack_()
    x = torch.randn(3, 256).bfloat16()
    with torch.no_grad():
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x), layer(x))
    assert is_packed(layer.weight.places)
