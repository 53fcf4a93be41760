"""The encoding goes from a marked argument to all that is made of it; conflicts are refused at their line."""

from __future__ import annotations

import re

import pytest

from louver.compile.canonical.count_loops import count_loops
from louver.compile.canonical.propagate_sparsity import propagate_sparsity
from louver.frontend.ttir import read_ttir
from louver.ir.refusal import UnsupportedKernelError
from support.compiled import read_copy
from support.golden import Golden
from support.pass_golden import before, check_pass
from support.triton.cases import CASES, kept
from support.triton.texts import changed

ENCODED = '#tt.sparse<"NV24">'
LINE = r"got at tests/support/triton/kernels.py:\d+:\d+: "


@pytest.mark.parametrize("name", CASES)
def test_the_encoding_reaches_the_dot(name: str) -> None:
    module = read_copy(kept(name))
    count_loops(module)
    propagate_sparsity(module)
    module.verify()
    dots = re.findall(r"tt.dot .*", str(module))
    assert len(dots) == (CASES[name].dots or len(CASES[name].sparse))
    assert all(dot.count(ENCODED) == 1 for dot in dots) and "louver.sparse" not in str(module)


@pytest.mark.parametrize("name", CASES)
def test_without_a_mark_nothing_changes(name: str) -> None:
    module = read_ttir(re.sub(r" \{louver\.sparse\.NV24 = 1 : i32\}", "", kept(name)))
    before = str(module)
    propagate_sparsity(module)
    assert str(module) == before


POINTERS, MADE = "grouped_pointers", "made_descriptors"
CONFLICTS = {
    "an output that is sparse": (
        POINTERS, [(r"%d: !tt.ptr<f16>", "%d: !tt.ptr<f16> {louver.sparse.NV24 = 1 : i32}")],
        r"a sparse tensor cannot be stored to, " + LINE + "tt.store .*: store the result to a dense array",
    ),
    "an output descriptor that is sparse": (
        MADE, [(r"%d: !tt.ptr<f16>", "%d: !tt.ptr<f16> {louver.sparse.NV24 = 1 : i32}")],
        r"a sparse tensor cannot be stored to, " + LINE + "tt.descriptor_store .*: store the result to a dense array",
    ),
    "a size that is sparse": (
        POINTERS, [(r"%M: i32", "%M: i32 {louver.sparse.NV24 = 1 : i32}")], "pointers, descriptors and tensors may be sparse, got i32",
    ),
    "an encoding of other elements": (
        POINTERS, [(r"sparse.NV24", "sparse.NV12")], "is for elements of f32, got f16",
    ),
    "an unknown encoding": (POINTERS, [(r"sparse.NV24", "sparse.NV99")], "a sparse encoding is one of 'NV24', 'NV12' or of vectors, such as '2:4@16', got 'NV99'"),
}  # fmt: skip


@pytest.mark.parametrize("conflict", CONFLICTS)
def test_conflicts(conflict: str) -> None:
    name, changes, message = CONFLICTS[conflict]
    with pytest.raises(UnsupportedKernelError, match=message):
        propagate_sparsity(changed(name, *changes))


KERNEL = """
module {{
  tt.func public @k(%s: !tt.ptr<f16> {{louver.sparse.NV24 = 1 : i32}}, %p: !tt.ptr<f16>, %i: i32, %j: i64, %c: i1) {{
    %z = arith.constant 0 : i32
    %a = tt.make_tensor_ptr %s, [%j, %j], [%j, %j], [%z, %z] : <tensor<64x64xf16>>
    %b = tt.make_tensor_ptr %p, [%j, %j], [%j, %j], [%z, %z] : <tensor<64x64xf16>>
    {body}
    tt.return
  }}
}}
"""

BODIES = {
    "%x = scf.for %k = %z to %i step %i iter_args(%t = %a) -> (!tt.ptr<tensor<64x64xf16>>) : i32 {\n"
    "      scf.yield %b : !tt.ptr<tensor<64x64xf16>>\n    }": (
        'a value that a loop or branch passes on must have one encoding; t is #tt.sparse<"NV24"> and dense'
    ),
    "%x = scf.for %k = %z to %i step %i iter_args(%t = %b) -> (!tt.ptr<tensor<64x64xf16>>) : i32 {\n"
    "      scf.yield %a : !tt.ptr<tensor<64x64xf16>>\n    }": (
        'a value that a loop or branch passes on must have one encoding; t is #tt.sparse<"NV24"> and dense'
    ),
    "%x = scf.if %c -> (!tt.ptr<tensor<64x64xf16>>) {\n      scf.yield %a : !tt.ptr<tensor<64x64xf16>>\n    } else {\n"
    "      scf.yield %b : !tt.ptr<tensor<64x64xf16>>\n    }": (
        'a value that a loop or branch passes on must have one encoding; a value is #tt.sparse<"NV24"> and dense'
    ),
    "%x = scf.if %c -> (!tt.ptr<f16>) {\n      scf.yield %s : !tt.ptr<f16>\n    } else {\n      scf.yield %p : !tt.ptr<f16>\n    }": (
        'a value that a loop or branch passes on must have one encoding; s is #tt.sparse<"NV24"> and dense'
    ),
    "%x = arith.select %c, %s, %p : !tt.ptr<f16>": (
        "a sparse tile is of one argument, which no condition chooses, got: %x = arith.select"
    ),
}


@pytest.mark.parametrize("body", BODIES)
def test_values_that_meet(body: str) -> None:
    with pytest.raises(UnsupportedKernelError, match=re.escape(BODIES[body])):
        propagate_sparsity(read_ttir(KERNEL.format(body=body)))


LOADED = "%t = tt.load %a : !tt.ptr<tensor<64x64xf16>>\n    "
DENSE = "%o = tt.load %b : !tt.ptr<tensor<64x64xf16>>\n    "
DECOMPRESSED = {
    LOADED + "%x = arith.addf %t, %t : tensor<64x64xf16>": ("arith.addf %t_1, %t_1",),
    LOADED + DENSE + "%x = scf.for %k = %z to %i step %i iter_args(%u = %t) -> (tensor<64x64xf16>) : i32 {\n"
    "      scf.yield %o : tensor<64x64xf16>\n    }": ("iter_args(%u = %t_1) -> (tensor<64x64xf16>)",),
    LOADED + DENSE + "%x = scf.if %c -> (tensor<64x64xf16>) {\n      scf.yield %t : tensor<64x64xf16>\n    } else {\n"
    "      scf.yield %o : tensor<64x64xf16>\n    }": ("scf.yield %t_1 : tensor<64x64xf16>",),
    LOADED + "%l = arith.constant dense<0.0> : tensor<64x64xf32>\n    %x = tt.dot %t, %t, %l : tensor<64x64xf16> * "
    "tensor<64x64xf16> -> tensor<64x64xf32>": ("tt.dot %t, %t_1, %l",),
    LOADED + "%x = tt.reshape %t : tensor<64x64xf16> -> tensor<4096xf16>": ("tt.reshape %t_1 : tensor<64x64xf16>",),
}


@pytest.mark.parametrize("body", DECOMPRESSED)
def test_what_takes_numbers_takes_the_dense_tile(body: str) -> None:
    module = read_ttir(KERNEL.format(body=body))
    propagate_sparsity(module)
    module.verify()
    assert str(module).count("%t_1 = tt.decompress %t") == 1
    for text in DECOMPRESSED[body]:
        assert text in str(module)


def test_branches_that_agree_pass_the_encoding_on() -> None:
    body = (
        "%x = scf.if %c -> (!tt.ptr<tensor<64x64xf16>>) {\n      scf.yield %a : !tt.ptr<tensor<64x64xf16>>\n    } else {\n"
        "      scf.yield %a : !tt.ptr<tensor<64x64xf16>>\n    }\n    %t = tt.load %x : !tt.ptr<tensor<64x64xf16>>\n"
        "    %u = tt.trans %t {order = array<i32: 1, 0>} : tensor<64x64xf16> -> tensor<64x64xf16>"
    )
    module = read_ttir(KERNEL.format(body=body))
    propagate_sparsity(module)
    module.verify()
    assert f"%u = tt.trans %t {{order = array<i32: 1, 0>}} : tensor<64x64xf16, {ENCODED}>" in str(module)


def test_before_and_after(golden: Golden) -> None:
    check_pass(golden, "propagate-sparsity", before("propagate-sparsity", "given_descriptors"))
