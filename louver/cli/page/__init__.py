"""One page that shows a kernel at every level, its lines linked from the user's source down to SASS."""

from louver.cli.page.levels import levels_of
from louver.cli.page.write import page_text

__all__ = ["levels_of", "page_text"]
