"""The pause in the collection of cycles ends as it began."""

from __future__ import annotations

import gc

import pytest

from louver.compile.uncollected import uncollected


def test_cycles_are_collected_again_afterwards_also_after_an_error() -> None:
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), uncollected():
        raise KeyError
    assert gc.isenabled()


def test_a_user_who_collects_none_stays_so() -> None:
    gc.disable()
    try:
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
