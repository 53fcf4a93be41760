"""The key of a kernel has all that its functions reach, however they reach it."""

from __future__ import annotations

import importlib.util
import linecache
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import louver
from louver.runtime.cache import KernelCache
from louver.user import compiled
from louver.user.arguments import canonical, classify
from louver.user.compiled import Wanted, build_record
from louver.user.hints import Hints
from louver.user.reached import is_function, reached, unchanged
from louver.user.source import TritonSource

pytest.importorskip("triton", reason="Triton is not installed: pip install 'louver[triton]'")

HEAD = """
import math
from dataclasses import dataclass
from typing import Any, NamedTuple
import triton
import triton.language as tl

X = tl.constexpr(1)
TYPE = tl.float16

@triton.jit
def deep(a):
    return a * X

@triton.jit
def add(a, b):
    return a + b * X

class Fields(NamedTuple):
    a: Any
    b: Any

@dataclass(frozen=True)
class Record:
    a: Any
    b: Any = 2

class Space:
    LIMIT = tl.constexpr(1)
    call = deep

class Plain:
    def __init__(self):
        self.limit = tl.constexpr(1)

settings = Plain()
"""

BODIES = {
    "read": "a = o * X",
    "called": "a = deep(o)",
    "through another": ("a = through(o)", "@triton.jit\ndef through(a):\n    return deep(a)"),
    "alias": ("a = alias(o)", "alias = deep"),
    "constant": ("a = held(o)", "held = tl.constexpr(deep)"),
    "in a tuple": ("a = held[0](o)", "held = (deep, 1)"),
    "in a list": ("a = held[0](o)", "held = [deep]"),
    "in a dict": ("a = held['f'](o)", "held = {'f': deep}"),
    "by a method of a dict": ("a = held.get('f')(o)", "held = {'f': deep}"),
    "in a set": ("a = held(o)", "held = frozenset({deep})"),
    "in a named tuple": ("a = held.a(o)", "held = Fields(deep, 2)"),
    "whole named tuple": ("a = deep(held)", "held = Fields(deep, 2)"),
    "in a dataclass": ("a = held.a(o)", "held = Record(deep)"),
    "whole dataclass": ("a = other(held)", "held = Record(deep)\n@triton.jit\ndef other(a):\n    return a.a"),
    "nested": ("a = held[0].a[0](o)", "held = [Fields((deep,), 2)]"),
    "class attribute": "a = Space.call(o)",
    "combine": "a = tl.reduce(o, 0, add)",
    "scan": "a = tl.associative_scan(o, 0, add)",
    "default": ("a = other(o)", "@triton.jit\ndef other(a, b=X):\n    return a * b"),
    "default function": ("a = other(o)", "@triton.jit\ndef other(a, b=deep):\n    return b(a)"),
    "keyword default": ("a = other(o)", "@triton.jit\ndef other(a, *, b=X):\n    return a * b"),
    "static condition": "if X == 1:\n        o += 1",
    "before the variable": "X = X + 1",
    "in a loop": "for i in tl.static_range(X):\n        o += i",
    "constexpr function": ("a = o * half(4)", "@triton.constexpr_function\ndef half(a):\n    return a // X.value"),
    "plain function": (
        "a = o * half(4)",
        "def third(a):\n    return a // X.value\n@triton.constexpr_function\ndef half(a):\n    return third(a)",
    ),
    "lambda": (
        "a = o * half(4)",
        "third = lambda a: a // X.value\n@triton.constexpr_function\ndef half(a):\n    return third(a)",
    ),
    "closure": (
        "a = made(o)",
        "def make():\n    inner = deep\n    @triton.jit\n    def made(a):\n        return inner(a)\n    return made\nmade = make()",
    ),
    "itself": (
        "a = one(o)",
        "@triton.jit\ndef one(a):\n    return two(a) * X\n@triton.jit\ndef two(a):\n    return one(a)",
    ),
}


@pytest.fixture
def modules(tmp_path: Path) -> Iterator[Any]:
    """Makes a module of a text; all have the same name, as in another process."""

    def load(text: str) -> ModuleType:
        path = tmp_path / "kernels_of_user.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location("kernels_of_user", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["kernels_of_user"] = module
        sys.dont_write_bytecode, kept = True, sys.dont_write_bytecode
        try:
            spec.loader.exec_module(module)
        finally:
            sys.dont_write_bytecode = kept
        return module

    yield load
    sys.modules.pop("kernels_of_user", None)


def text_of(way: str, before: str = "X = tl.constexpr(1)") -> str:
    linecache.clearcache()
    body = BODIES[way]
    line, more = (body, "") if isinstance(body, str) else body
    return f"{HEAD.replace('X = tl.constexpr(1)', before)}\n{more}\n@triton.jit\ndef kernel(o):\n    {line}\n"


@pytest.mark.parametrize("way", BODIES)
def test_a_changed_global_is_another_key(way: str, modules: Any) -> None:
    module = modules(text_of(way))
    source, first = TritonSource(module.kernel), module.X
    key, reads = source.key, source.reads
    assert source.key == key
    mutable = any(word in way for word in ("list", "dict", "set", "nested"))
    assert unchanged(reads) != mutable
    module.X = type(first)(2)
    changed = source.key
    assert changed != key and not unchanged(reads), way
    module.X = first
    assert source.key == key
    again = modules(text_of(way, "X = tl.constexpr(2)"))
    # A default that Python has evaluated keeps its value in this process.
    assert "default" in way or TritonSource(again.kernel).key == changed
    assert TritonSource(again.kernel).key != key, "another process makes another key"
    assert TritonSource(modules(text_of(way)).kernel).key == key


@pytest.mark.parametrize("value", ["True", "1.0", "-1", "'1'", "tl.float16"])
def test_equal_values_of_other_types_are_another_key(value: str, modules: Any) -> None:
    key = TritonSource(modules(text_of("called")).kernel).key
    assert TritonSource(modules(text_of("called", f"X = tl.constexpr({value})")).kernel).key != key


def test_constants_without_a_name_of_their_own_count(modules: Any) -> None:
    """Types, attributes of classes, objects and modules, and functions put in the place of others."""
    more = "\n@triton.jit\ndef kernel(o):\n    a = o.to(TYPE) * Space.LIMIT * settings.limit * math.pi + add(o, o)\n"
    module = modules(HEAD + more)
    source = TritonSource(module.kernel)
    constexpr = type(module.X)
    changes = [
        (module, "TYPE", module.tl.float32),
        (module.Space, "LIMIT", constexpr(2)),
        (module.settings, "limit", constexpr(2)),
        (module, "settings", module.Plain),
        (module.X, "value", 2),
        (module, "add", module.deep),
        (module.add, "noinline", True),
        (module.add.fn, "__defaults__", (1,)),
        (module, "math", module),
    ]
    keys = {source.key}
    for holder, name, value in changes:
        reads, held = source.reads, getattr(holder, name)
        setattr(holder, name, value)
        assert source.key not in keys and not unchanged(reads), name
        keys.add(source.key)
        setattr(holder, name, held)
        assert unchanged(reads) and source.key in keys


def test_a_function_that_is_passed_brings_its_globals(modules: Any) -> None:
    module = modules(text_of("read"))
    values = [module.deep, (module.deep, 1), [module.deep], module.Fields(module.deep, 1), (1, (module.add,))]
    keys = [str(canonical(value)) for value in values]
    reads = [reached(value).reads for value in values]
    module.X = type(module.X)(2)
    for value, key, read in zip(values, keys, reads, strict=True):
        assert str(canonical(value)) != key and not unchanged(read)


def test_named_tuples_are_told_apart_by_their_fields(modules: Any) -> None:
    module = modules(HEAD + "\nclass Turned(NamedTuple):\n    b: Any\n    a: Any\n")
    values = [module.Fields(1, 2), module.Turned(1, 2), (1, 2)]
    assert len({str(canonical(value)) for value in values}) == 3


def test_what_no_function_reads_is_no_part_of_the_key(modules: Any) -> None:
    module = modules(text_of("called") + "    o = a\n")
    source, key = TritonSource(module.kernel), TritonSource(module.kernel).key
    module.settings, module.o, module.a, module.unread = None, 3, 4, 5
    assert source.key == key and unchanged(source.reads)
    module.range = module.deep
    assert source.key == key
    assert is_function(module.deep) and not is_function(module.Plain) and not is_function(len)


CALLS = """
@triton.jit
def kernel(out, F: tl.constexpr):
    tl.store(out + tl.arange(0, 32), F(tl.arange(0, 32).to(tl.float32)))

@triton.jit
def two(out, F: tl.constexpr):
    tl.store(out + tl.arange(0, 32), F[0](F[1](tl.arange(0, 32).to(tl.float32), 1.0)))
"""


def test_an_emulated_call_sees_a_global_that_a_passed_function_reads(modules: Any) -> None:
    module = modules(HEAD + CALLS)
    kernel, two = louver.jit(module.kernel), louver.jit(module.two)
    numbers = np.arange(32, dtype=np.float32)
    for value in (1, 3, 1):
        module.X = type(module.X)(value)
        out = np.full(32, np.nan, np.float32)
        kernel.emulate[(1,)](out, module.deep)
        assert (out == numbers * value).all()
        two.emulate[(1,)](out, (module.deep, module.add))
        assert (out == (numbers + value) * value).all()


def test_a_change_while_a_kernel_is_compiled_is_refused(
    modules: Any, kernels: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = modules(HEAD + CALLS)
    source = TritonSource(module.kernel)
    call = classify(source.parameters, {"out": np.zeros(32, np.float32), "F": module.deep})

    def build(wanted: Wanted) -> Any:
        module.X = type(module.X)(2)
        return build_record(wanted)

    monkeypatch.setattr(compiled, "build_record", build)
    with pytest.raises(RuntimeError, match="kernel is compiled of globals that stay .* call it again"):
        compiled.record_of(Wanted.of(source, Hints(), call, "bulk", "sm_90a"))


REFUSED = """
@triton.jit
def kernel(out, x, K):
    rows, columns = tl.arange(0, 64)[:, None] * (K // 64), tl.arange(0, 64)[None, :] * (K // 32)
    tl.store(out + rows + columns, tl.load(x + rows + columns))
"""


def test_a_refusal_quotes_the_user_s_line(modules: Any) -> None:
    module = modules(HEAD + REFUSED)
    arrays = {"out": np.zeros(4096, np.float32), "x": np.zeros(4096, np.float16), "K": 64}
    said = str(louver.jit(module.kernel).explain(**arrays))
    assert re.search(r"got at .*kernels_of_user.py:\d+:\d+: tl\.store\(out \+ rows", said)
    assert "tt." not in said.splitlines()[0] and "as a constexpr" not in said
