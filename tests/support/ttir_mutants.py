"""Damaged texts of kernels: each is a kept text with one random change."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

NUMBERS = ("0", "-1", "1", "3", "7", "16", "300", "1024", "1048576", "2147483648", "9223372036854775807", "1" * 40)
TYPES = ("i1", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "f8E4M3FN", "index", "!tt.ptr<f16>", "none")
_NUMBER = re.compile(r"(?<![\w%#.])-?\d+(?![\w.])|(?<=<)\d+(?=x)|(?<=x)\d+(?=x)")
_TYPE = re.compile(r"(?<![\w.#])(?:i1|i8|i16|i32|i64|f16|bf16|f32|f64)(?!\w)|(?<=x)(?:i1|i8|i32|f16|bf16|f32)(?=>)")
_VALUE = re.compile(r"%[\w.-]+")
_NAME = re.compile(r"\b(?:arith|tt|scf|math|cf)\.\w+")


def mutants(files: list[Path], count: int, seed: int) -> Iterator[tuple[str, str]]:
    """`count` damaged texts, each with a name that says what was done."""
    draw = random.Random(seed)
    texts = {file.stem: file.read_text(encoding="utf-8") for file in files}
    names = sorted({name for text in texts.values() for name in _NAME.findall(text)})
    for number in range(count):
        stem = draw.choice(sorted(texts))
        how, text = _change(draw, texts[stem], names)
        yield f"{number} {stem}: {how}", text


def _change(draw: random.Random, text: str, names: list[str]) -> tuple[str, str]:
    lines = text.splitlines()
    body = [at for at, line in enumerate(lines) if line.strip() and not line.startswith("#loc")]
    at = draw.choice(body)
    how = draw.choice(
        (
            "delete",
            "double",
            "swap",
            "number",
            "number",
            "number",
            "type",
            "type",
            "value",
            "value",
            "name",
            "cut",
            "letter",
        )
    )
    line = lines[at]
    if how == "delete":
        del lines[at]
    elif how == "double":
        lines.insert(at, line)
    elif how == "swap":
        other = draw.choice(body)
        lines[at], lines[other] = lines[other], line
    elif how == "cut":
        lines = lines[:at]
    elif how == "letter":
        place = draw.randrange(len(line))
        lines[at] = line[:place] + draw.choice("<>(){}[]%#!:,=x0 \"'\\\0é") + line[place + 1 :]
    else:
        pattern, choices = {
            "number": (_NUMBER, NUMBERS),
            "type": (_TYPE, TYPES),
            "value": (_VALUE, tuple(_VALUE.findall(text)) or ("%x",)),
            "name": (_NAME, tuple(names)),
        }[how]
        found = [(row, each) for row in body for each in pattern.finditer(lines[row])]
        if not found:
            return _change(draw, text, names)
        at, each = draw.choice(found)
        new = draw.choice(choices)
        how = f"{how} {each[0]} to {new}"
        lines[at] = lines[at][: each.start()] + new + lines[at][each.end() :]
    return f"{how} in line {at + 1}", "\n".join(lines) + "\n"
