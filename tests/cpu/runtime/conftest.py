from __future__ import annotations

from typing import Any

import pytest

from louver.runtime import driver
from support.fake_driver import FakeDriver, forget


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A FakeDriver in place of the driver; nothing that was cached of another one is seen, or left."""
    forget()
    made = FakeDriver()
    monkeypatch.setattr(driver.importlib, "import_module", lambda name: made)
    yield made
    forget()
