"""Each computing form in a kernel on the emulator gives what `compute` gives: operands, vectors and predicates go through."""

from __future__ import annotations

import numpy as np
import pytest

from louver.emulator import GlobalMemory, run
from louver.isa.instruction import Pure
from support.forms import THREADS, as_memory, empty_outputs, expected_outputs, pure_forms, pure_kernel, random_inputs


@pytest.mark.sampled(7)
@pytest.mark.parametrize("form", list(pure_forms()), ids=lambda form: form.mnemonic)
def test_a_kernel_computes_what_the_form_computes(form: Pure, rng: np.random.Generator) -> None:
    inputs, outputs = random_inputs(form, rng), empty_outputs(form)
    memory = GlobalMemory()
    arrays = {f"in_{i}": as_memory(bits) for i, bits in enumerate(inputs)}
    arguments = {name: memory.add(name, array, writable=False) for name, array in arrays.items()}
    for i, array in enumerate(outputs):
        arguments[f"out_{i}"] = memory.add(f"out_{i}", array, initialised=False)
    run(pure_kernel(form), THREADS // 256, arguments, memory=memory)
    for got, expected in zip(outputs, expected_outputs(form, inputs), strict=True):
        np.testing.assert_array_equal(got, expected)
