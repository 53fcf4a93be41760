"""`louver isa`: the products of a target as its instruction objects have them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from louver.isa.catalogue import narrow_shapes, offers, warp_shapes, warpgroup_shapes, without_objects
from louver.isa.targets import TARGETS, target

if TYPE_CHECKING:
    from support.command_line import Cli


def products(cli: Cli, *arguments: str) -> list[dict[str, object]]:
    result = cli("isa", *arguments, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found["kind"] == "isa" and found["target"] == arguments[1]
    return found["products"]


def test_one_type_of_one_target(cli: Cli) -> None:
    (row,) = [
        each
        for each in products(cli, "--target", "sm_120a", "--sparse", "--dtype", "e4m3")
        if each["unit"] == "mma.sp::ordered_metadata"
    ]
    assert (row["a"], row["b"], row["shapes"]) == ("e4m3", ["e4m3", "e5m2"], ["m16n8k64"])
    assert (row["support"], row["min_ptx"], row["pattern"]) == ("native", "8.7", "2:4")


def test_the_same_type_is_emulated_elsewhere(cli: Cli) -> None:
    rows = products(cli, "--target", "sm_90a", "--dtype", "float8_e4m3fn")
    assert {(row["unit"], row["support"]) for row in rows} == {
        ("wgmma", "native"),
        ("wgmma.sp", "native"),
        ("mma", "emulated"),
        ("mma.sp::ordered_metadata", "emulated"),
    }
    text = cli("isa", "--target", "sm_90a", "--dtype", "f32").output
    assert "tf32, 1:2" in text and "m16n8k8, m16n8k16" in text


@pytest.mark.parametrize("name", TARGETS)
def test_every_form_of_a_target_is_in_its_list(name: str) -> None:
    machine = target(name)
    given = {
        (form.unit, form.a, form.b, form.d, form.shape)
        for form in (*warp_shapes(), *narrow_shapes(), *warpgroup_shapes())
        if machine.provides(form.requires.target)
    }
    rows = offers(machine)
    assert all(row.pattern for row in offers(machine, sparse=True))
    assert given <= {(row.unit, row.a, b, d, k) for row in rows for b in row.b for d in row.d for k in row.shapes}
    assert {(unit, a) for unit, a, *_ in given} == {(row.unit, row.a) for row in rows}


def test_narrow_types_are_listed_with_their_patterns(cli: Cli) -> None:
    rows = products(cli, "--target", "sm_121a", "--dtype", "e2m1")
    assert [(row["unit"].rpartition("::")[2], row["pattern"], row["shapes"]) for row in rows] == [
        ("mxf4nvf4", "4:8 in pairs", ["m16n8k128"]),
        ("mxf4", "4:8 in pairs", ["m16n8k128"]),
        ("mxf8f6f4", "2:4", ["m16n8k64"]),
        ("f8f6f4", "2:4", ["m16n8k64"]),
    ]
    assert {row["unit"].rpartition("::")[2] for row in products(cli, "--target", "sm_120f", "--dtype", "e2m1")} == {
        "mxf8f6f4",
        "f8f6f4",
    }
    dense, sparse = sorted(products(cli, "--target", "sm_86", "--dtype", "s4"), key=lambda row: row["pattern"])
    assert (dense["support"], sparse["support"], sparse["pattern"]) == ("native", "native", "4:8 in pairs")


def test_units_without_objects_are_named(cli: Cli) -> None:
    assert "Louver does not emit tcgen05.sp.kind::f16 yet (f16, bf16)." in cli("isa", "--target", "sm_100a").output
    assert without_objects(target("sm_100f"), "bf16") == {"tcgen05.sp.kind::f16": ("bf16",)}
    assert without_objects(target("sm_90a")) == {}


def test_the_list_of_targets(cli: Cli) -> None:
    found = json.loads(cli("isa", "--json").output)
    assert found["kind"] == "targets" and [each["name"] for each in found["targets"]] == list(TARGETS)
    facts = {each["name"]: each for each in found["targets"]}
    assert [name for name, each in facts.items() if each["measured"]] == ["sm_90a"]
    assert facts["sm_89"]["shared_bytes"] == 99 * 1024 and "e4m3" in facts["sm_89"]["native"]
    assert {"e4m3", "e5m2"} <= set(facts["sm_103a"]["emulated"]) and facts["sm_103a"]["min_ptx"] == "8.8"
    assert "wgmma.sp" in facts["sm_90a"]["units"] and "wgmma.sp" not in facts["sm_120"]["units"]
    text = cli("isa", columns="300").output
    assert "RTX 40, L4" in text and "measured: H200" in text


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (("--target", "sm_75"), "the targets are sm_80, .*, got 'sm_75'"),
        (("--target", "sm_80", "--dtype", "e4m3"), "products of e4m3 is sm_89, got sm_80, which has none"),
        (("--target", "sm_86", "--sparse", "--dtype", "e5m2"), "sparse products of e5m2 is sm_89, got sm_86"),
        (("--target", "sm_120", "--dtype", "e2m1"), "products of e2m1 is sm_120a, got sm_120, which has none"),
        (("--target", "sm_90a", "--dtype", "f64"), "tensor cores multiply f16, .*, got 'f64'"),
        (("--target", "sm_90a", "--dtype", "s32"), "tensor cores multiply f16, .*, got 's32'"),
        (("--sparse",), "got no --target: name one"),
    ],
)
def test_bad_input(cli: Cli, arguments: tuple[str, ...], rule: str) -> None:
    result = cli("isa", *arguments)
    assert result.exit_code == 2 and re.search(rule, result.output), result.output
