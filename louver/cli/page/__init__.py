"""A page with a kernel at every level. It links lines from the user's source down to SASS."""

from louver.cli.page.levels import levels_of
from louver.cli.page.write import page_text

__all__ = ["levels_of", "page_text"]
