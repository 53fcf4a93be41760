from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(autouse=True)
def needs_torch(torch: Any) -> None:
    """Every test here runs products, of torch's arrays or beside them."""
