"""A damaged loop or branch that passes on other values than its regions end with is refused where it is read."""

from __future__ import annotations

import pytest

from louver.frontend.ttir import read_ttir
from louver.ir.refusal import UnsupportedKernelError

TEXT = """module {
  tt.func public @k(%a: i32, %b: i32, %which: i1) attributes {noinline = false} {
    %x = BODY
    tt.return
  }
}
"""

BODIES = {
    "branch": """scf.if %which -> (i32) {
      scf.yield %a : i32
    } else {
      scf.yield ELSE
    }""",
    "loop": """scf.while (%c = %a) : (i32) -> i32 {
      scf.condition(%which) %c : i32
    } do {
    ^bb0(%d: i32):
      scf.yield ELSE
    }""",
}


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("end", ["%a, %b : i32, i32", "%which : i1"])
def test_other_values_at_an_end_are_refused(kind: str, end: str) -> None:
    with pytest.raises(UnsupportedKernelError):
        read_ttir(TEXT.replace("BODY", BODIES[kind].replace("ELSE", end)))


@pytest.mark.parametrize("kind", BODIES)
def test_the_values_that_are_passed_on_are_read(kind: str) -> None:
    read_ttir(TEXT.replace("BODY", BODIES[kind].replace("ELSE", "%b : i32")))
