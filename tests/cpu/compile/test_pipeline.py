"""The order in which the families are tried, and what is read how often."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from xdsl.dialects.builtin import ModuleOp

from louver.compile import pipeline
from louver.compile.compiled import CompiledProduct, CompiledTiles
from louver.compile.passes import Pass
from louver.compile.pipeline import EVERY_ONE, Choice, KernelState, Reading, compile_kernel, only
from louver.ir.refusal import UnsupportedKernelError

CHOICE = Choice(lambda nest: pytest.fail("nothing is scheduled here"))  # type: ignore[arg-type, return-value]


@dataclass
class Tried:
    """The tries, as "product 1 b": the family, how many ones are left to the launch, and which. takes: the one that does not refuse."""

    takes: str = ""
    attempts: list[str] = field(default_factory=list)
    names: dict[ModuleOp, str] = field(default_factory=dict)
    read: list[str] = field(default_factory=list)

    def family(self, name: str) -> Pass[KernelState]:
        """A family of one pass."""

        def run(state: KernelState) -> object:
            attempt = f"{name} {self.names[state.module]}"
            self.attempts.append(attempt)
            if attempt != self.takes:
                raise UnsupportedKernelError(f"no {attempt}", "op", None)
            state.made = object.__new__(CompiledProduct if name == "product" else CompiledTiles)
            return attempt

        return Pass(name, run)

    def readings(self, ones: int) -> Iterator[Reading]:
        for which in {0: [""], 1: [" a", " b"], 2: [" ab"], 3: [], EVERY_ONE: [" all"]}[ones]:
            yield lambda which=which: self._read(f"{max(ones, 0)}{which}")

    def _read(self, name: str) -> ModuleOp:
        module = ModuleOp([])
        self.names[module] = name
        self.read.append(name)
        return module


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Tried:
    made = Tried()
    monkeypatch.setattr(pipeline, "PRODUCT", made.family("product"))
    monkeypatch.setattr(pipeline, "TILES", made.family("tiles"))
    return made


ORDER = ["product 0", "product 1 a", "product 1 b", "tiles 0", "tiles 0 all"]
UNALIGNED = ["tiles 0", "tiles 0 all"]
PRODUCTS = [*ORDER[:4], "product 2 ab"]


@pytest.mark.parametrize("taken", ORDER)
def test_a_product_comes_first_and_several_ones_last(tried: Tried, taken: str) -> None:
    tried.takes = taken
    made = compile_kernel(tried.readings, CHOICE)
    assert tried.attempts == ORDER[: ORDER.index(taken) + 1]
    assert made.refusal == ("no product 0, got: op" if taken.startswith("tiles") else None)


@pytest.mark.parametrize("taken", PRODUCTS)
def test_several_ones_are_tried_for_patterns_of_products(tried: Tried, taken: str) -> None:
    tried.takes = taken
    compile_kernel(tried.readings, replace(CHOICE, only_products=True))
    assert tried.attempts == PRODUCTS[: PRODUCTS.index(taken) + 1]


@pytest.mark.parametrize("taken", UNALIGNED)
def test_a_call_that_is_no_product_s_tries_none(tried: Tried, taken: str) -> None:
    tried.takes = taken
    made = compile_kernel(tried.readings, replace(CHOICE, refused="rows that are not aligned"))
    assert tried.attempts == UNALIGNED[: UNALIGNED.index(taken) + 1]
    assert made.refusal == "rows that are not aligned"


def test_what_neither_takes_has_both_reasons(tried: Tried) -> None:
    with pytest.raises(UnsupportedKernelError, match="^no tiles 0, got: op") as caught:
        compile_kernel(tried.readings, CHOICE)
    assert caught.value.__notes__ == ["As a warpgroup product it is refused too: no product 0, got: op"]
    assert tried.attempts == ORDER


def test_fixed_fields_of_a_schedule_rule_tiles_out(tried: Tried) -> None:
    tried.takes = "tiles 0"
    with pytest.raises(UnsupportedKernelError, match="^no product 0, got: op") as caught:
        compile_kernel(tried.readings, replace(CHOICE, fixed=("stages", "store")))
    assert caught.value.__notes__[0].startswith("The hints stages, store are for products: without them")
    assert tried.attempts == ORDER[:3]


def test_each_reading_is_made_once_and_only_when_it_is_wanted(tried: Tried) -> None:
    tried.takes = "tiles 0"
    compile_kernel(tried.readings, CHOICE)
    assert tried.read == ["0", "1 a", "1 b"]
    tried.read.clear()
    compile_kernel(only(lambda: tried._read("0")), CHOICE)
    assert tried.read == ["0"]


def test_what_cannot_be_read_is_the_error(tried: Tried) -> None:
    def refused() -> ModuleOp:
        raise UnsupportedKernelError("tile IR has no such operation", "op", None)

    with pytest.raises(UnsupportedKernelError, match="^tile IR has no such operation, got: op") as caught:
        compile_kernel(only(refused), CHOICE)
    assert not tried.attempts and not hasattr(caught.value, "__notes__")
