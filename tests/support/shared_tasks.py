"""Tasks for processes that take turns."""

from __future__ import annotations

import os
import time
from pathlib import Path

from louver.measure.workers import Turn


def act(task: str, turn: Turn) -> tuple[str, bool]:
    """The task, done as its first word says."""
    what, _, rest = task.partition(" ")
    match what:
        case "crash":
            os._exit(3)
        case "hang":
            turn()
            time.sleep(60)
        case "last":
            return f"{os.getpid()}", False
        case "print":
            print("noise", flush=True)
        case "variable":
            return os.environ[rest], True
        case "turn":
            turn()
            device = Path(rest)
            # Raises where another process has it.
            device.touch(exist_ok=False)
            time.sleep(0.05)
            device.unlink()
        case _:
            pass
    return f"{os.getpid()}", True
