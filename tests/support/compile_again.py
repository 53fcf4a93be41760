"""`python -m support.compile_again SEED FILE/FORM …`: compiles forms, and prints what their launches are told, as JSON.

Operations and values hash by their address. So the order of a set of them differs from run to run, but seldom. Here it is drawn from
the seed.
"""

from __future__ import annotations

import json
import sys

from xdsl.ir import Block, Operation, Region, SSAValue

from louver.library.compiled import Launch, to_json
from louver.measure.forms import Form, bind
from louver.user.arguments import bind as bind_arguments
from louver.user.arguments import classify
from louver.user.compiled import Wanted, compile_wanted
from louver.user.hints import Hints
from louver.user.source import TritonSource
from support.triton.forms.find import forms


def _draw_hashes(seed: int) -> None:
    def drawn(self: object) -> int:
        return hash((id(self), seed))

    for kind in (Operation, SSAValue, Block, Region):
        kind.__hash__ = drawn


def _launch(form: Form) -> object:
    call = form.call(1, form.small)
    arguments, _ = bind(call, sparse=True)
    source = TritonSource(form.kernel)
    given, _ = bind_arguments(source.name, source.parameters, (), arguments)
    wanted = Wanted.of(source, Hints(), classify(source.parameters, given), "bulk", "sm_90a", call.grid)
    return to_json(Launch.of(compile_wanted(wanted).made))


if __name__ == "__main__":
    _draw_hashes(int(sys.argv[1]))
    found = {name: _launch(forms(name.partition("/")[0])[name.partition("/")[2]]) for name in sys.argv[2:]}
    json.dump(found, sys.stdout, indent=1)
