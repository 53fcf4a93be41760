"""Instructions with effects, on the hardware: the same kernels and expectations as on the emulator."""

from __future__ import annotations

import numpy as np
import pytest

from louver.ptx.assembler import assemble
from louver.ptx.module import Module
from louver.ptx.printer import print_module
from louver.runtime.memory import DeviceArray
from louver.runtime.module import ArgumentPack, load
from support.effects import cases


@pytest.mark.parametrize("name", cases())
def test_memory_is_left_as_it_must_be(name: str, rng: np.random.Generator) -> None:
    case = cases()[name](rng)
    assembly = assemble(print_module(Module("sm_90a", [case.kernel])))
    kernel = load(
        assembly.cubin,
        case.kernel.name,
        threads=case.kernel.threads,
        cluster=case.kernel.cluster,
        dynamic_shared=case.kernel.dynamic_shared,
    )
    x, y = (DeviceArray.of(array.reshape(-1).view(np.uint8)) for array in (case.x, case.y))
    arguments = ArgumentPack(["u64", "u64"])
    arguments.bind(x.buffer.address, y.buffer.address)
    kernel.launch(case.kernel.cluster, arguments)
    np.testing.assert_array_equal(y.numpy().view(case.y.dtype).reshape(case.y.shape), case.expected)
