"""The proof from source that layers get one input, and forwards in which they do not."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from support.torch_weights import close

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:louver computes by the reference path")

from louver.torch.blocks import JoinedBlock  # noqa: E402
from support.attention import Attention, apart, joined, model, shaped, tokens  # noqa: E402

functional = torch.nn.functional

KEPT: list[Any] = []


def written(x: Any) -> None:
    x.add_(1)


def doubled(q: Any) -> Any:
    KEPT[-1].mul_(2)
    return q


class Writes(Attention):
    """Blocks that write to their input, or bind its name anew, between the calls of q, k and v."""


class InPlace(Writes):
    def forward(self, x: Any, mask: Any = None) -> Any:
        q = shaped(self.q(x))
        x.add_(1)
        return self.attend(x, q, shaped(self.k(x)), shaped(self.v(x)))


class Alias(Writes):
    def forward(self, x: Any, mask: Any = None) -> Any:
        alias = x.view(-1)
        q = shaped(self.q(x))
        scale = alias.mul_(2).sum() * 0 + 1
        k = shaped(self.k(x)).mul(scale)
        return self.attend(x, q, k, shaped(self.v(x)))


class Stored(Writes):
    def forward(self, x: Any, mask: Any = None) -> Any:
        q = shaped(self.q(x))
        x[..., 0] = 3
        return self.attend(x, q, shaped(self.k(x)), shaped(self.v(x)))


class Helper(Writes):
    def forward(self, x: Any, mask: Any = None) -> Any:
        q = shaped(self.q(x))
        written(x)
        k, _ = shaped(self.k(x)), written(x)
        return self.attend(x, q, k, shaped(self.v(x)))


class Kept(Writes):
    def forward(self, x: Any, mask: Any = None) -> Any:
        KEPT.append(x)
        q = doubled(shaped(self.q(x)))
        k = doubled(shaped(self.k(x)))
        return self.attend(x, q, k, shaped(self.v(x)))


class Out(Writes):
    def forward(self, x: Any, mask: Any = None) -> Any:
        q = shaped(self.q(x))
        y = torch.mul(q, 2, out=x.view(q.shape))
        return self.attend(x, q + y * 0, shaped(self.k(x)), shaped(self.v(x)))


class Relu(Writes):
    def forward(self, x: Any, mask: Any = None) -> Any:
        q = shaped(self.q(x))
        y = functional.relu(x, True)
        return self.attend(y, q, shaped(self.k(x)), shaped(self.v(x)))


class Array(Writes):
    def forward(self, x: Any, mask: Any = None) -> Any:
        q, wide = shaped(self.q(x)), x.detach().view(torch.int16)
        _ = wide.numpy().sort()
        return self.attend(x, q, shaped(self.k(x)), shaped(self.v(x)))


class Augmented(Writes):
    def forward(self, x: Any, mask: Any = None) -> Any:
        q = shaped(self.q(x))
        x += 1
        return self.attend(x, q, shaped(self.k(x)), shaped(self.v(x)))


class Rebound(Writes):
    def forward(self, x: Any, mask: Any = None) -> Any:
        q = shaped(self.q(x))
        x = x + 1
        k = shaped(self.k(x))
        x = x * 2
        return self.attend(x, q, k, shaped(self.v(x)))


class Scattered(Writes):
    def forward(self, x: Any, mask: Any = None) -> Any:
        q = shaped(self.q(x))
        for x in (x + 1, x + 2):  # noqa: B007, B020
            pass
        return self.attend(x, q, shaped(self.k(x)) if mask is None else q, shaped(self.v(x)))


class Swapped(Writes):
    def forward(self, x: Any, mask: Any = None) -> Any:
        (q, x), k = (shaped(self.q(x)), x * 3), shaped(self.k(x))
        return self.attend(x, q, k, shaped(self.v(x)))


WRITES = (InPlace, Alias, Stored, Helper, Kept, Out, Relu, Array, Augmented, Rebound, Scattered, Swapped)


@pytest.mark.parametrize("kind", WRITES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_writes_to_the_input_between_the_calls(kind: Any, mode: Any) -> None:
    made = model(kind())
    with mode():
        expected = made(tokens())
        joined(made)
        close(torch, made(tokens()), expected, 0.03)
        assert torch.equal(made(tokens()), apart(made)(tokens()))
    if kind is not Swapped:
        groups = made[0].plan.groups if isinstance(made[0], JoinedBlock) else ()
        assert not any("q" in names for names in groups), groups


def test_a_reason_once_for_each_block() -> None:
    made = model(InPlace(), Rebound(), Attention())
    report = joined(made)
    said = [row.name for row in report if "not joined" in row.reason]
    assert said == ["0.q"]
    assert report["0.q"].reason.endswith("; not joined: 'x.add_(1)' may write to the input")
    assert report["0.k"].reason.endswith("one product with v")
    assert "not" not in report["2.o"].reason.removeprefix("it keeps 2:4; swapped without timing")


class Cross(Attention):
    """Keys and values of another input, if there is one."""

    def forward(self, x: Any, mask: Any = None, other: Any = None) -> Any:
        source = x if other is None else other
        return self.attend(x, shaped(self.q(x)), shaped(self.k(source)), shaped(self.v(source)))


def test_another_input_for_keys_and_values() -> None:
    made = model(Cross())[0]
    other = tokens() * 2 - 1
    expected = made(tokens()), made(tokens(), other=other)
    joined(made)
    assert made.plan.groups == (("k", "v"),)
    for mine, wanted in zip((made(tokens()), made(tokens(), other=other)), expected, strict=True):
        close(torch, mine, wanted, 0.03)


class Branches(Attention):
    def forward(self, x: Any, mask: Any = None) -> Any:
        if mask is None:
            q, k, v = self.q(x), self.k(x), self.v(x)
        else:
            v, k = self.v(x), self.k(x)
            q = self.q(x).mul(mask)
        return self.attend(x, shaped(q), shaped(k), shaped(v))


class Conditional(Attention):
    def forward(self, x: Any, mask: Any = None) -> Any:
        q, k = self.q(x), self.k(x) if mask is None else self.v(x)
        v = self.v(x) if mask is None else k
        return self.attend(x, shaped(q), shaped(k), shaped(v))


def test_branches() -> None:
    for kind, groups in ((Branches, (("k", "q", "v"),)), (Conditional, None)):
        made = model(kind())[0]
        x = tokens()
        expected = made(x), made(x, torch.tensor(0.5).bfloat16())
        joined(made)
        assert (made.plan.groups if isinstance(made, JoinedBlock) else None) == groups
        for mine, wanted in zip((made(x), made(x, torch.tensor(0.5).bfloat16())), expected, strict=True):
            close(torch, mine, wanted, 0.03)


def noted(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        KEPT.append("noted")
        return function(*arguments, **named)

    return wrapper


class Decorated(Attention):
    scale = 0.5

    @noted
    @torch.no_grad()
    def forward(self, x: Any, mask: Any = None, *, factor: float = 2.0) -> Any:
        """A text
        of two lines.
        """
        q, k, v = shaped(self.q(x)) * self.scale, shaped(self.k(x)), shaped(self.v(x))
        return self.__scaled(super().attend(x, q, k, v), factor)

    def __scaled(self, y: Any, factor: float) -> Any:
        return y * factor


class Inherited(Decorated):
    scale = 0.25


def test_decorators_defaults_and_inherited_forwards() -> None:
    made = model(Decorated(), Inherited())
    x = tokens()
    expected = made(x), made[0](x, factor=3.0)
    joined(made)
    assert all(isinstance(block, JoinedBlock) for block in made)
    KEPT.clear()
    for mine, wanted in zip((made(x), made[0](x, factor=3.0)), expected, strict=True):
        close(torch, mine, wanted, 0.03)
    assert KEPT == ["noted"] * 3 and not made(x).requires_grad


def held(function: Any) -> Any:
    class Caller:
        def __init__(self) -> None:
            self.function = function

    caller = Caller()

    @functools.wraps(function)
    def wrapper(*arguments: Any) -> Any:
        return caller.function(*arguments)

    return wrapper


def test_forwards_that_are_not_understood() -> None:
    class Held(Attention):
        forward = held(Attention.forward)

    space: dict[str, Any] = {"Attention": Attention, "shaped": shaped}
    text = (
        "class Text(Attention):\n def forward(self, x):\n"
        "  return self.attend(x, shaped(self.q(x)), shaped(self.k(x)), shaped(self.v(x)))\n"
    )
    exec(text, space)
    replaced = Attention()
    replaced.forward = functools.partial(Attention.forward, replaced)
    changed = type("Changed", (Attention,), {})
    changed.forward = Attention.attend
    changed.forward.__code__ = Attention.attend.__code__
    x = tokens()
    for block, reason in (
        (Held(), "not joined: a decorator of its forward cannot be put around another function"),
        (space["Text"](), "not joined: the source of Text.forward cannot be read (OSError)"),
        (replaced, "not joined: the block's forward was replaced"),
    ):
        made = model(block)
        expected = made(x)
        said = [row.reason for row in joined(made) if "not joined" in row.reason]
        assert len(said) == 1 and said[0].endswith(reason), said
        close(torch, made(x), expected, 0.03)


def test_source_that_is_not_the_code_that_runs() -> None:
    class Mine(Attention):
        def forward(self, x: Any, mask: Any = None) -> Any:
            return self.attend(x, shaped(self.q(x)), shaped(self.k(x)), shaped(self.v(x)))

    class Other(Attention):
        def forward(self, x: Any, mask: Any = None) -> Any:
            return self.attend(x, shaped(self.q(x)), shaped(self.k(x)), shaped(self.v(x)) * 3)

    line = Mine.forward.__code__.co_firstlineno
    Mine.forward.__code__ = Other.forward.__code__.replace(co_firstlineno=line)
    made = model(Mine())
    expected = made(tokens())
    said = joined(made)["0.o"].reason
    assert said.endswith("Mine.forward is not the code that runs"), said
    close(torch, made(tokens()), expected, 0.03)


def test_a_forward_that_is_replaced_afterwards() -> None:
    class Mine(Attention):
        def forward(self, x: Any, mask: Any = None) -> Any:
            return self.attend(x, shaped(self.q(x)), shaped(self.k(x)), shaped(self.v(x)))

    made = model(Mine())
    joined(made)
    x = tokens()
    expected = made(x)
    before = Mine.forward
    Mine.forward = lambda self, x: 2 * before(self, x)
    close(torch, made(x), 2 * expected, 0.03)
