"""A real browser without a window: Chromium, spoken to by its DevTools protocol through a pair of pipes."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")

TIMEOUT = 60
"""Seconds that an answer may take."""


def find_chromium() -> str | None:
    """A Chromium on the PATH, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@dataclass
class Browser:
    """One page. problems: what it has logged as an error, and exceptions that nothing caught. requests: what it has asked for."""

    read: int
    write: int
    attached: str = ""
    number: int = 0
    buffer: bytes = b""
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    loaded: bool = False

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a call. Raises RuntimeError for an error, TimeoutError for none in time."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.attached:
            message["sessionId"] = self.attached
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + TIMEOUT
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read], [], [], max(0, end - time.monotonic()))
            part = os.read(self.read, 1 << 20) if ready else b""
            if not part:
                raise TimeoutError("the browser is silent")
            self.buffer += part
        text, _, self.buffer = self.buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.problems.append(json.dumps(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.problems.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Page.loadEventFired":
                self.loaded = True
            case _:
                pass
        return message

    def open(self, page: Path, *, dark: bool = False) -> None:
        """Load a file, to its end."""
        self.loaded = False
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", features=scheme)
        self.send("Page.navigate", url=page.resolve().as_uri())
        while not self.loaded:
            self._receive()

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Press the mouse on the first element that a selector finds, once it is in sight."""
        x, y = self._place(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def hover(self, selector: str) -> None:
        """Move the mouse there."""
        x, y = self._place(selector)
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str) -> None:
        """Press a key, such as "Enter" or "]"."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, **(text if kind == "keyDown" else {}))

    def _place(self, selector: str) -> tuple[float, float]:
        box = self.evaluate(
            f"(() => {{ const node = document.querySelector({json.dumps(selector)}); node.scrollIntoView({{block: 'center'}});"
            " const box = node.getBoundingClientRect(); return [box.x + Math.min(40, box.width / 2), box.y + box.height / 2]; })()"
        )
        return box[0], box[1]

    def picture(self, path: Path) -> None:
        """Write what the window shows as PNG."""
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))


_START = """
import fcntl, os, sys
for given, wanted in [(fcntl.fcntl(int(each), fcntl.F_DUPFD, 10), 3 + at) for at, each in enumerate(sys.argv[1:3])]:
    os.dup2(given, wanted)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Chromium reads commands from file 3 and answers on file 4."""

WIDTH, HEIGHT = 1440, 900


@contextmanager
def browser() -> Generator[Browser]:
    """A new browser with an empty page. Raises FileNotFoundError without Chromium."""
    chromium = find_chromium()
    if chromium is None:
        raise FileNotFoundError(f"a browser is one of {', '.join(NAMES)} on the PATH, got none")
    commands, answers = os.pipe(), os.pipe()
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
    line = [sys.executable, "-c", _START, str(commands[0]), str(answers[1]), chromium, *options]
    process = subprocess.Popen(
        [*line, f"--window-size={WIDTH},{HEIGHT}", "about:blank"],
        pass_fds=(commands[0], answers[1]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(commands[0])
    os.close(answers[1])
    try:
        found = Browser(answers[0], commands[1])
        target = found.send("Target.createTarget", url="about:blank")["targetId"]
        found.attached = found.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            found.send(f"{domain}.enable")
        found.send("Emulation.setDeviceMetricsOverride", width=WIDTH, height=HEIGHT, deviceScaleFactor=1, mobile=False)
        yield found
    finally:
        process.terminate()
        process.wait()
        os.close(answers[0])
        os.close(commands[1])
