"""Source locations of IR: which line of the user's text each operation, and each line of a module's text, comes from."""

from __future__ import annotations

from io import StringIO

from xdsl.dialects.builtin import FileLineColLoc, IntAttr, ModuleOp, StringAttr, UnknownLoc
from xdsl.ir import Operation
from xdsl.printer import Printer

from louver.ir.refusal import source_location


def adopt_places(root: Operation) -> None:
    """Give each operation without a location that of an operation that uses its result, in place. Others have none, as before."""
    for op in root.walk(reverse=True):
        if isinstance(op.location, UnknownLoc):
            users = (use.operation.location for result in op.results for use in result.uses)
            op.location = next((each for each in users if not isinstance(each, UnknownLoc)), op.location)


def number_places(module: ModuleOp, name: str) -> None:
    """Locate each operation, in place, on its own first line of the module's text, a file called `name`."""
    for op, line in _printed(module).first.items():
        op.location = FileLineColLoc(StringAttr(name), IntAttr(line + 1), IntAttr(1))


def text_places(module: ModuleOp) -> list[str | None]:
    """By line of a module's text, "file:line:column" of the operation there; None where it has no location."""
    return list(_printed(module).places.values())


class _Recorder(Printer):
    """A printer that keeps where operations begin. first: the line of each. places: by line, in order once all is printed."""

    def __init__(self) -> None:
        super().__init__(stream=StringIO())
        self.first: dict[Operation, int] = {}
        self.places: dict[int, str | None] = {}

    def print_op(self, op: Operation) -> None:
        """Print an operation."""
        begin = self.first[op] = self._current_line
        super().print_op(op)
        place = source_location(op.location)
        # Operations inside come first: the other lines begin and end their regions.
        for line in range(begin, self._current_line + 1):
            self.places.setdefault(line, place)


def _printed(module: ModuleOp) -> _Recorder:
    recorder = _Recorder()
    recorder.print_op(module)
    recorder.places = dict(sorted(recorder.places.items()))
    return recorder
