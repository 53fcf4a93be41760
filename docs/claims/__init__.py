"""Five documents that Louver was built after, and a verdict on each of their statements, with what shows it.

Nothing in `louver/` imports this package. `docs/claims_tables.py` runs it and writes `louver/cli/commands/claims.json`,
from which the pages and `louver claims` read.
"""

from __future__ import annotations
