"""Source locations of IR: the user's line for each operation, and for each line of a module's text."""

from __future__ import annotations

from io import StringIO

from xdsl.dialects.builtin import FileLineColLoc, IntAttr, ModuleOp, StringAttr, UnknownLoc
from xdsl.ir import Operation
from xdsl.printer import Printer

from louver.ir.refusal import source_location


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
