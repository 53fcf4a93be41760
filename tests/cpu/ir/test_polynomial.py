"""Polynomials and sizes: arithmetic, texts and values against Python's integers at random points."""

from __future__ import annotations

import numpy as np
import pytest

from louver.ir.polynomial import ONE, Extreme, Polynomial, divide, multiply, with_grid
from support.sizes import size

NAMES = ("M", "x.stride.0", "programs z", "min", "größe", "up'")


def _divided(whole: int, by: int) -> int:
    """As a kernel does it."""
    return int(whole / by) if by else whole


def _random(rng: np.random.Generator, depth: int, at: dict[str, int]) -> tuple[Polynomial, int]:
    """A size and its value."""
    if depth == 0 or rng.integers(4) == 0:
        if rng.integers(2):
            number = int(rng.integers(-9, 10))
            return Polynomial.number(number), number
        name = NAMES[int(rng.integers(len(NAMES)))]
        return Polynomial.atom(name), at[name]
    (one, a), (other, b) = (_random(rng, depth - 1, at) for _ in range(2))
    match int(rng.integers(6)):
        case 0:
            return one + other, a + b
        case 1:
            return one - other, a - b
        case 2:
            return one * other, a * b
        case 3 if b:
            return one // other, _divided(a, b)
        case 4:
            return Extreme("min", one, other).made(one, other), min(a, b)
        case _:
            return Extreme("max", one, other).made(one, other), max(a, b)


def test_sizes_are_computed_as_kernels_do(rng: np.random.Generator) -> None:
    for _ in range(2000):
        at = {name: int(rng.integers(-40, 41)) or 1 for name in NAMES}
        found, value = _random(rng, 4, at)
        assert found.value(at) == value, found
        assert size(str(found)) == found
        assert found.over(Polynomial.atom) == found
        assert found.leaves <= set(NAMES)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (size("M") * 2, "2*M"),
        (size("M") * size("K"), "K*M"),
        (size("K") // 2, "K/2"),
        (size("M") * 3 // 2, "3*M/2"),
        (size("programs x") * 64 // 2, "32*programs x"),
        ((size("K") + 63) // 64 * 64, "64*((K + 63)/64)"),
        (size("K").ceil(64) - 1, "(K + 63)/64 - 1"),
        (size("64*K").ceil(64), "K"),
        (size("a*b") // size("b"), "a"),
        (size("a") // size("2*b"), "a/(2*b)"),
        (-size("a") // 2, "(-a)/2"),
        (size("128 - M"), "-M + 128"),
        (size("min(M, 128) + max(0, K - 1)"), "max(0, K - 1) + min(M, 128)"),
        (size("min(6, 4) - 10/4/2"), "3"),
    ],
)
def test_texts_of_sizes(made: Polynomial, text: str) -> None:
    assert str(made) == text and repr(made) == text and size(text) == made


@pytest.mark.parametrize("text", ["", "M +", "2**M", "min(M)", "min(M, K", "(M", "M)", "M K", "< M K", "/ M 2"])
def test_what_is_no_size_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"a size is made of numbers, names, \+ - \* / min max and brackets, got"):
        size(text)


def test_quotients_are_rounded_towards_0_and_nothing_divides_by_0() -> None:
    assert size("(M - 60)/16").value({"M": 23}) == -2
    assert size("stride/K").value({"stride": 80, "K": 0}) == 80


def test_a_remainder_is_nearer_to_0_than_its_divisor() -> None:
    x = Polynomial.atom("x")
    rest = 3 * (x - x // 4 * 4)
    assert rest // 10 == Polynomial.number(0)
    assert rest // 9 != Polynomial.number(0) and (rest + 1) // 10 != Polynomial.number(0)


def test_names_of_sizes() -> None:
    assert size("x.shape.0").name == "x.shape.0"
    assert [size(text).name for text in ("2*M", "M + 1", "M*M", "4", "M/2")] == [None] * 5
    assert with_grid({"M": 3}, (2,)) == {"M": 3, "programs x": 2, "programs y": 1, "programs z": 1}
    with pytest.raises(KeyError, match="programs y"):
        size("2*programs y").value({"M": 3})


def test_equal_polynomials_are_equal_however_they_were_made() -> None:
    a, b, two = Polynomial.atom("a"), Polynomial.atom("b"), Polynomial.number(2)
    assert (a + b) * (a + b) == a * a + two * a * b + b * b
    assert hash((a + b) * two) == hash(2 * b + a + a)
    assert not a - a and (a - a).constant == 0
    assert two.constant == 2 and (a + two).constant is None
    assert (a * b + two).atoms == {"a", "b"} and (1 + a + 1).coefficient(ONE) == 2


def test_leaves_become_other_polynomials() -> None:
    found = size("2*(a + b)/3 + min(a, 4)")
    doubled = found.over(lambda atom: Polynomial.atom(atom) * 2)
    assert doubled == size("(4*a + 4*b)/3 + min(2*a, 4)")
    assert found.over(lambda atom: None if atom == "b" else Polynomial.atom(atom)) is None


def test_monomials_divide() -> None:
    ((ab, _),) = Polynomial.atom("a") * Polynomial.atom("b")
    ((a, _),) = Polynomial.atom("a")
    ((b, _),) = Polynomial.atom("b")
    assert divide(ab, a) == b and divide(ab, ONE) == ab and divide(a, a) == ONE
    assert divide(a, b) is None and multiply(a, b) == ab
