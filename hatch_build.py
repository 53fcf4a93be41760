"""Makes the package's long description of the README: an index shows it where no other file of the repository lies."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)\s]+)\)")


def absolute(text: str, repository: str | None) -> str:
    """The Markdown with absolute targets in place of relative ones.

    repository: the address of the repository's page. Without one, a picture goes, and a link becomes its words.
    """

    def replaced(found: re.Match[str]) -> str:
        picture, words, target = found.groups()
        if repository is None:
            return "" if picture else words
        return f"{picture}[{words}]({repository.rstrip('/')}/{'raw' if picture else 'blob'}/HEAD/{target})"

    return _LINK.sub(replaced, text)


class LongDescription(MetadataHookInterface):
    """Hatchling's hook of the name `custom`. It reads the address from `Repository` of `project.urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, repository)}
