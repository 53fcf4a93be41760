"""Optional packages: which extra of Louver brings each, and what an error says without it."""

from __future__ import annotations

from typing import Final

EXTRAS: Final = {
    "torch": "torch",
    "transformers": "models",
    "triton": "triton",
    "matplotlib": "plot",
    "tokenizers": "demo",
    "ray": "ray",
}
"""The extra of pyproject.toml by module."""


def explained(error: ImportError) -> str:
    """The text of an import error: with what to install where the module belongs to an extra. Other names stay as they
    are, because a package of that name may be anyone's.
    """
    module = (error.name or "").partition(".")[0]
    text = str(error)
    if module not in EXTRAS or not text.startswith("No module named"):
        return text
    return f"{module} is not installed: pip install 'louver[{EXTRAS[module]}]'"
