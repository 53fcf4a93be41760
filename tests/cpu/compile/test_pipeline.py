"""The order in which the families are tried, and what is read how often."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from xdsl.dialects.builtin import ModuleOp

from louver.analysis.sizes_of_one import Ones
from louver.compile import pipeline
from louver.compile.compiled import CompiledProduct, CompiledTiles
from louver.compile.kernel_state import KernelState
from louver.compile.passes import Pass
from louver.compile.pipeline import Choice, PlannedTiles, Readings, compile_kernel, compile_tiles, plan_again
from louver.ir.context import parse_ir
from louver.ir.refusal import UnsupportedKernelError
from support.compiled import read_copy
from support.triton.cases import kept
from support.work import calls

CHOICE = Choice(lambda nest: pytest.fail("nothing is scheduled here"))  # type: ignore[arg-type, return-value]


@dataclass
class Tried:
    """The tries, as "product b": the family, and the ones that are left to the launch. takes: the one that does not refuse. always:
    whether the others refuse the kernel for any sizes.
    """

    takes: str = ""
    always: bool = False
    attempts: list[str] = field(default_factory=list)
    names: dict[ModuleOp, str] = field(default_factory=dict)
    read: list[str] = field(default_factory=list)
    ones: Ones = Ones(("b",), ("c",))  # noqa: RUF009

    def family(self, name: str) -> Pass[KernelState]:
        """A family of one pass."""

        def run(state: KernelState) -> object:
            attempt = f"{name} {self.names[state.module]}"
            self.attempts.append(attempt)
            if attempt != self.takes:
                raise UnsupportedKernelError(f"no {attempt}", "op", None, always=self.always)
            state.made = object.__new__(CompiledProduct if name == "product" else CompiledTiles)
            return attempt

        return Pass(name, run)

    @property
    def readings(self) -> Readings:
        return Readings(lambda passed: self._read(" ".join(passed) or "plain"), tuple("abc"))

    def _read(self, name: str) -> ModuleOp:
        module = parse_ir("tt.func public @k() { tt.return }")
        self.names[module] = name
        self.read.append(name)
        return module


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Tried:
    made = Tried()
    monkeypatch.setattr(pipeline.Ones, "of", lambda function, ones: made.ones)
    monkeypatch.setattr(pipeline, "PRODUCT", made.family("product"))
    monkeypatch.setattr(pipeline, "TILES", made.family("tiles"))
    return made


ORDER = ["product plain", "product b", "tiles plain", "tiles a b c", "product b c"]
"""The ways of a kernel with integers of 1, of which b is a size and c the pitch of a matrix of one column."""

UNALIGNED = ["tiles plain", "tiles a b c"]


@pytest.mark.parametrize("taken", ORDER)
def test_a_product_comes_first_and_pitches_of_one_last(tried: Tried, taken: str) -> None:
    tried.takes = taken
    made = compile_kernel(tried.readings, CHOICE)
    assert tried.attempts == ORDER[: ORDER.index(taken) + 1]
    assert made.refusal == ("no product plain, got: op" if taken.startswith("tiles") else None)


@pytest.mark.parametrize("taken", UNALIGNED)
def test_a_call_that_is_no_product_s_tries_none(tried: Tried, taken: str) -> None:
    tried.takes = taken
    made = compile_kernel(tried.readings, replace(CHOICE, refused="rows that are not aligned"))
    assert tried.attempts == UNALIGNED[: UNALIGNED.index(taken) + 1]
    assert made.refusal == "rows that are not aligned"


def test_what_neither_takes_has_both_reasons(tried: Tried) -> None:
    with pytest.raises(UnsupportedKernelError, match="^no tiles plain, got: op") as caught:
        compile_kernel(tried.readings, CHOICE)
    assert caught.value.__notes__ == ["As a warpgroup product it is refused too: no product plain, got: op"]
    assert tried.attempts == ORDER


def test_fixed_fields_of_a_schedule_rule_tiles_out(tried: Tried) -> None:
    tried.takes = "tiles plain"
    with pytest.raises(UnsupportedKernelError, match="^no product plain, got: op") as caught:
        compile_kernel(tried.readings, replace(CHOICE, fixed=("stages", "store")))
    assert caught.value.__notes__[0].startswith("The hints stages, store are for products: without them")
    assert tried.attempts == [each for each in ORDER if each.startswith("product")]


def test_each_reading_is_made_once_and_only_when_it_is_wanted(tried: Tried) -> None:
    """However many integers are 1, a kernel is read four times at most."""
    tried.takes = ORDER[-1]
    compile_kernel(tried.readings, CHOICE)
    assert tried.read == ["plain", "a b c", "b", "b c"]
    for ones, read in ((Ones((), ("c",)), ["plain", "a b c"]), (Ones(("b",), ()), ["plain", "a b c", "b"])):
        tried.read.clear()
        tried.ones, tried.takes = ones, "tiles plain"
        compile_kernel(tried.readings, CHOICE)
        assert tried.read == read
    tried.read.clear()
    compile_kernel(replace(tried.readings, ones=()), CHOICE)
    assert tried.read == ["plain"]


def test_a_kernel_whose_ones_hide_nothing_is_a_product_at_once_or_not_at_all(tried: Tried) -> None:
    tried.ones = Ones((), ())
    with pytest.raises(UnsupportedKernelError, match="^no tiles plain, got: op"):
        compile_kernel(tried.readings, CHOICE)
    assert tried.attempts == ["product plain", *UNALIGNED]


@pytest.mark.parametrize("taken", UNALIGNED)
def test_a_product_that_is_refused_for_any_sizes_is_tried_once(tried: Tried, taken: str) -> None:
    tried.takes, tried.always = taken, True
    compile_kernel(tried.readings, CHOICE)
    assert tried.attempts == ["product plain", *UNALIGNED[: UNALIGNED.index(taken) + 1]]
    assert tried.read == [each.partition(" ")[2] for each in UNALIGNED[: UNALIGNED.index(taken) + 1]]


def test_what_cannot_be_read_is_the_error(tried: Tried) -> None:
    def refused(passed: tuple[str, ...]) -> ModuleOp:
        raise UnsupportedKernelError("tile IR has no such operation", "op", None)

    with pytest.raises(UnsupportedKernelError, match="^tile IR has no such operation, got: op") as caught:
        compile_kernel(Readings(refused, ("a",)), CHOICE)
    assert not tried.attempts and not hasattr(caught.value, "__notes__")


@pytest.mark.parametrize("name", ["weight_pointers", "grouped_pointers"])
@pytest.mark.parametrize("changes", [{"warps": 8}, {"warps": 4, "registers": 128}, {"warps": 4, "ahead": False}])
def test_other_warps_begin_behind_the_passes_that_depend_on_none(name: str, changes: dict[str, int]) -> None:
    made = compile_tiles(read_copy(kept(name)), warps=4, ctas=2)
    assert isinstance(made.described, KernelState)
    before, again, whole = str(made.described.module), list[CompiledTiles](), list[CompiledTiles]()
    resumed = calls(lambda: again.append(plan_again(made, **changes).lowered()))  # type: ignore[arg-type]
    anew = calls(lambda: whole.append(compile_tiles(made.tile, ctas=2, **changes)))
    assert again[0].ptx == whole[0].ptx and again[0].options == whole[0].options
    assert again[0].checked == whole[0].checked and again[0].signature == whole[0].signature
    assert str(made.described.module) == before and resumed < 0.9 * anew


@pytest.mark.parametrize("name", ["weight_pointers", "grouped_pointers"])
def test_a_plan_tells_its_shared_memory_without_being_lowered(name: str) -> None:
    made = compile_tiles(read_copy(kept(name)), warps=4, ctas=2)
    plans = list[PlannedTiles]()
    planned = calls(lambda: plans.append(plan_again(made, warps=4, registers=128)))
    whole = calls(lambda: plan_again(made, warps=4, registers=128).lowered())
    lowered = plans[0].lowered()
    assert (
        plans[0].dynamic_shared == lowered.kernel.dynamic_shared and plans[0].ctas_by_shared == lowered.ctas_by_shared
    )
    assert lowered.ptx == plans[0].lowered().ptx and planned < 0.5 * whole
