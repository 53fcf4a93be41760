"""Errors that reject a kernel, with the rule, the text of the operation, and the user's line.

Source locations of IR: the user's line for each operation, and for each line of a module's text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from io import StringIO
from typing import TypeVar, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    CallSiteLoc,
    FileLineColLoc,
    FusedLoc,
    IntAttr,
    ModuleOp,
    NameLoc,
    StringAttr,
    UnknownLoc,
)
from xdsl.ir import Attribute, Operation
from xdsl.printer import Printer

from louver.isa.rule import RuleError

T = TypeVar("T")
R = TypeVar("R")


class UnsupportedKernelError(RuleError):
    """A kernel has an operation that the compiler cannot lower.

    rule: what is allowed.
    operation: the user's line, or the text of the operation.
    location: "file:line:column", or None.
    advice: a change to the kernel that helps.
    others: further errors of the same kernel, which the message names too.
    arguments: the sparse arguments whose accesses it rejects, as far as they are known.
    always: whether it rejects the kernel for any values of its arguments, because the operation is there for all of them.
    """

    def __init__(
        self,
        rule: str,
        operation: str,
        location: str | None,
        advice: str = "",
        others: Sequence[UnsupportedKernelError] = (),
        always: bool = False,
    ) -> None:
        self.rule = rule
        self.advice = advice
        self.operation = operation
        self.location = location
        where = "" if location is None else f" at {location}"
        more = [str(each) for each in others]
        helps = f": {advice}" if advice else ""
        self.others = tuple(others)
        self.always = always or any(each.always for each in others)
        self.arguments: frozenset[str] = frozenset().union(*(each.arguments for each in others))
        super().__init__("\nAlso: ".join([f"{rule}, got{where}: {operation}{helps}", *more]))

    def quoted(self, line: Callable[[str], str | None]) -> UnsupportedKernelError:
        """The same error with the user's lines in place of operations. line: the text at "file:line:column", or None."""
        text = None if self.location is None else line(self.location)
        others = [each.quoted(line) for each in self.others]
        made = UnsupportedKernelError(
            self.rule, text or self.operation, self.location, self.advice, others, self.always
        )
        for note in getattr(self, "__notes__", ()):
            made.add_note(note)
        return made


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a way of compiling does not serve a kernel.

    rule: what is allowed; of an error without an operation, its whole message.
    got: the text of the operation, or of the user's line once it is quoted.
    instead: a change to the kernel that helps.
    line: the user's "file:line:column", or None.
    beside: refusals of the same kernel by other ways, each with the words before it.
    error: what says it. Its traceback leads to the pass that refuses.
    """

    rule: str
    got: str = ""
    instead: str = ""
    line: str | None = None
    beside: tuple[tuple[str, Refusal], ...] = ()
    error: RuleError = field(default_factory=RuleError, compare=False, repr=False)

    @classmethod
    def of(cls, error: RuleError) -> Refusal:
        """The refusal that an error says."""
        if isinstance(error, UnsupportedKernelError):
            return cls(error.rule, error.operation, error.advice, error.location, error=error)
        return cls(str(error), error=error)

    @classmethod
    def because(cls, reason: str) -> Refusal:
        """A refusal for a reason that is no operation's."""
        return cls.of(RuleError(reason))

    def __str__(self) -> str:
        return str(self.error)

    @property
    def arguments(self) -> frozenset[str]:
        """The sparse arguments whose accesses are rejected, as far as they are known."""
        return self.error.arguments if isinstance(self.error, UnsupportedKernelError) else frozenset()

    @property
    def always(self) -> bool:
        """Whether the kernel is rejected for any values of its arguments."""
        return isinstance(self.error, UnsupportedKernelError) and self.error.always

    def quoted(self, line: Callable[[str], str | None]) -> Refusal:
        """The same refusal with the user's lines in place of operations, see `UnsupportedKernelError.quoted`."""
        beside = tuple((words, each.quoted(line)) for words, each in self.beside)
        error = self.error.quoted(line) if isinstance(self.error, UnsupportedKernelError) else self.error
        return replace(Refusal.of(error), beside=beside)

    def told(self) -> RuleError:
        """The error for the user, with a note for each other way that says something else."""
        for words, each in self.beside:
            if str(each) != str(self):
                self.error.add_note(f"{words}: {each}")
        return self.error


def unsupported(rule: str, op: Operation, advice: str = "", *, always: bool = False) -> UnsupportedKernelError:
    """The error that rejects `op`. The caller raises it. rule: what is allowed. advice: a change that helps. always: whether the
    kernel has `op` for any values of its arguments.
    """
    return UnsupportedKernelError(rule, _first_line(op), source_location(op.location), advice, always=always)


def together(errors: Sequence[UnsupportedKernelError]) -> UnsupportedKernelError:
    """One error for several errors of a kernel. Of errors with the same line and rule, only the first is kept."""
    distinct: dict[tuple[str, str | None], UnsupportedKernelError] = {}
    for each in errors:
        distinct.setdefault((each.rule, each.location), each)
    first, *others = distinct.values()
    made = UnsupportedKernelError(first.rule, first.operation, first.location, first.advice, others, first.always)
    made.arguments = frozenset().union(*(each.arguments for each in errors))
    return made


def for_each(items: Iterable[T], do: Callable[[T], R]) -> list[R]:
    """The results of `do` for all items. Raises one UnsupportedKernelError for all items that it rejects."""
    made: list[R] = []
    refused: list[UnsupportedKernelError] = []
    for each in items:
        try:
            made.append(do(each))
        except UnsupportedKernelError as error:
            refused.append(error)
    if refused:
        raise together(refused)
    return made


def source_location(location: Attribute) -> str | None:
    """The innermost "file:line:column" of a location; None without one."""
    match location:
        case FileLineColLoc():
            return f"{location.filename.data}:{location.line.data}:{location.column.data}"
        case NameLoc():
            return source_location(location.location)
        case CallSiteLoc():
            return source_location(location.callee)
        case FusedLoc():
            parts = cast("ArrayAttr[Attribute]", location.locations)
            return next((found for part in parts if (found := source_location(part))), None)
        case _:
            return None


_LONGEST = 200
"""The largest number of characters of an operation in a message."""


def _first_line(op: Operation) -> str:
    """The text of an operation without its regions.

    For a function it is only the name, because a signature does not help a user.
    """
    name = op.properties.get("sym_name")
    if isinstance(name, StringAttr):
        return f"{op.name} @{name.data}"
    lines = str(op).splitlines()
    text = lines[0] if len(lines) == 1 else f"{lines[0]} … {lines[-1].strip()}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def adopt_places(root: Operation) -> None:
    """Give an operation without a location the location of an operation that uses its result, in place."""
    for op in root.walk(reverse=True):
        if isinstance(op.location, UnknownLoc):
            users = (use.operation.location for result in op.results for use in result.uses)
            op.location = next((each for each in users if not isinstance(each, UnknownLoc)), op.location)


def number_places(module: ModuleOp, name: str) -> None:
    """Set the location of each operation, in place, to its first line in the module's text. name: the file name."""
    for op, line in _printed(module).first.items():
        op.location = FileLineColLoc(StringAttr(name), IntAttr(line + 1), IntAttr(1))


def text_places(module: ModuleOp) -> list[str | None]:
    """For each line of a module's text, "file:line:column" of the operation there; None without a location."""
    return list(_printed(module).places.values())


class _Recorder(Printer):
    """A printer that records the lines of operations.

    first: the first line of each operation. places: the location of each line.
    """

    def __init__(self) -> None:
        super().__init__(stream=StringIO())
        self.first: dict[Operation, int] = {}
        self.places: dict[int, str | None] = {}

    def print_op(self, op: Operation) -> None:
        """Print an operation."""
        begin = self.first[op] = self._current_line
        super().print_op(op)
        place = source_location(op.location)
        # Inner operations set their lines first. The remaining lines begin and end regions.
        for line in range(begin, self._current_line + 1):
            self.places.setdefault(line, place)


def _printed(module: ModuleOp) -> _Recorder:
    recorder = _Recorder()
    recorder.print_op(module)
    recorder.places = dict(sorted(recorder.places.items()))
    return recorder
