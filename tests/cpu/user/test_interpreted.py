"""Host arrays as the memory that a kernel's pointers reach."""

from __future__ import annotations

import numpy as np
import pytest

from louver.formats.dtypes import ELEMENT_TYPES
from louver.runtime.arrays import view
from louver.user.interpreted import flat


@pytest.mark.parametrize("name", [name for name, each in ELEMENT_TYPES.items() if each.numbers == 1])
def test_memory_of_an_array_with_gaps(name: str) -> None:
    element = ELEMENT_TYPES[name]
    whole = np.arange(48).astype(element.numpy).reshape(4, 12)
    memory = flat(view(whole[1:, 2:10]))
    assert memory.dtype == element.numpy
    np.testing.assert_array_equal(memory.astype(np.float64), np.arange(14, 46).astype(element.numpy).astype(np.float64))
    memory[0] = element.numpy.type(3)
    assert whole[1, 2] == element.numpy.type(3)


def test_memory_upside_down_is_refused() -> None:
    with pytest.raises(ValueError, match="a kernel needs arrays without negative strides"):
        flat(view(np.ones((4, 4), np.float32)[::-1]))
