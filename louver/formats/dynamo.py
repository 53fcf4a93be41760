"""Louver and torch.compile: compiled code breaks its graph at Louver's functions, and calls them as they are.

Two marks make a function opaque, and neither imports PyTorch. Dynamo reads an attribute before it traces into a call; its
messages quote the reason. A call that it leaves in place would still be compiled, from the function's own frame on. So
the code of each function has the strategy to skip its frame and all frames below, from when Dynamo is imported.
"""

from __future__ import annotations

import copy
import functools
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, TypeVar, cast

REASON: Final = "Louver launches kernels that are no PyTorch operators: the call stays between two graphs"

_DYNAMO: Final = "torch._dynamo.eval_frame"

T = TypeVar("T")


def opaque(marked: T) -> T:
    """Make a function, or all functions of a class, opaque to Dynamo. The object itself is returned."""
    for function in _functions_of(marked):
        function._torchdynamo_disable = True
        function._torchdynamo_disable_msg = REASON
        if _DYNAMO in sys.modules:
            _skip(function.__code__)
        else:
            _waiting().codes.append(function.__code__)
    about = getattr(marked, "__dataclass_params__", None)
    if about is not None:
        # Dynamo takes frozen dataclasses apart, and would make another object of traced fields.
        about = copy.copy(about)
        about.frozen = False
        cast("Any", marked).__dataclass_params__ = about
    return marked


def _functions_of(marked: Any) -> Iterator[Any]:
    parts = list(vars(marked).values()) if isinstance(marked, type) else [marked]
    for part in parts:
        function = getattr(part, "fget", None) or getattr(part, "__func__", part)
        if isinstance(function, FunctionType):
            yield function


class _AfterDynamo(MetaPathFinder):
    """Skips code when Dynamo has been imported. Python has no other notice of an import. codes: to be skipped."""

    def __init__(self) -> None:
        self.codes: list[CodeType] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's own spec for Dynamo, None for any other module."""
        if fullname != _DYNAMO:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        loader: Any = None if spec is None else spec.loader
        if loader is not None:
            execute = loader.exec_module

            def execute_and_skip(module: ModuleType) -> None:
                execute(module)
                for code in self.codes:
                    _skip(code)

            loader.exec_module = execute_and_skip
        return spec


@functools.cache
def _waiting() -> _AfterDynamo:
    finder = _AfterDynamo()
    sys.meta_path.insert(0, finder)
    return finder


def _skip(code: CodeType) -> None:
    """Leave frames of this code, and all frames below them, to Python."""
    native: Any = sys.modules["torch._C"]
    frames = native._dynamo.eval_frame
    if hasattr(frames, "set_code_exec_strategy"):
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(code, frames._FrameExecStrategy(skip, skip))
    else:
        # Before PyTorch 2.7 only the frame itself can be skipped.
        frames.skip_code(code)
