"""Makes records again by the commands of `benchmarks/README.md`, one record a GPU at a time.

    python benchmarks/again.py FOLDER h200/mma.json h200/find.json      # each record into FOLDER, its output beside it
    python benchmarks/again.py FOLDER 'h200/new.json=python benchmarks/training.py --out FILE.json'

A record whose row needs two GPUs has all of them, after the others. Nothing is written to `benchmarks/results`: compare,
then copy. The exit code is the number of commands that failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]

ROW: Final = re.compile(r"^\| `([\w/.-]+\.json)` \| `([^`]+)` \| ([^|]+) \|", re.M)


@dataclass(frozen=True)
class Making:
    """A record's name below `results/`, its command as the table has it, and whether it needs several GPUs."""

    record: str
    command: str
    several: bool

    def written_to(self, folder: Path) -> str:
        """The command, with `folder` in place of the results and of `FILE.json`."""
        file = folder / self.record
        command = self.command.replace(f"benchmarks/results/{self.record}", str(file)).replace("FILE.json", str(file))
        command = command.replace("benchmarks/results/", f"{folder}/")
        return command if str(folder) in command else f"{command} --out {file.parent}"


def table() -> dict[str, Making]:
    """The rows of the table "Make a record again", by record."""
    rows = ROW.findall((ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8"))
    return {record: Making(record, command, "two GPUs" in needs) for record, command, needs in rows}


def asked(text: str, known: dict[str, Making]) -> Making:
    """The record that an argument names; raises SystemExit for one that is not in the table."""
    record, equals, command = text.partition("=")
    if equals:
        return Making(record, command, several=False)
    if record not in known:
        raise SystemExit(
            f"benchmarks/README.md has no command for {record!r}: name one of its records, or RECORD=COMMAND"
        )
    return known[record]


def make(making: Making, folder: Path, gpus: str) -> bool:
    """Runs one command on `gpus`, as CUDA_VISIBLE_DEVICES names them; True if it ended well."""
    log = (folder / making.record).with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpus, "PYTHONPATH": paths}
    begun = time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        command = making.written_to(folder)
        code = subprocess.run(command, shell=True, cwd=ROOT, env=environment, stdout=output, stderr=output).returncode
    print(f"{making.record}: exit code {code} after {time.monotonic() - begun:.0f} s on GPU {gpus}; {log}", flush=True)
    return code == 0


def make_all(makings: list[Making], folder: Path, gpus: list[str]) -> int:
    """Runs all commands; returns how many failed."""
    free: Queue[str] = Queue()
    for gpu in gpus:
        free.put(gpu)

    def on_a_free_gpu(making: Making) -> bool:
        gpu = free.get()
        try:
            return make(making, folder, gpu)
        finally:
            free.put(gpu)

    with ThreadPoolExecutor(len(gpus)) as threads:
        ended = list(threads.map(on_a_free_gpu, [making for making in makings if not making.several]))
    ended += [make(making, folder, ",".join(gpus)) for making in makings if making.several]
    return ended.count(False)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where records and outputs go")
    parser.add_argument("records", nargs="+", help="records of benchmarks/README.md, or RECORD=COMMAND")
    parser.add_argument("--gpus", default="0", help="as CUDA_VISIBLE_DEVICES has them: 0,1")
    arguments = parser.parse_args()
    known = table()
    makings = [asked(text, known) for text in arguments.records]
    return make_all(makings, arguments.folder.resolve(), arguments.gpus.split(","))


if __name__ == "__main__":
    sys.exit(main())
