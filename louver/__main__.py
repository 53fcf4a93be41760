"""`python -m louver` is the command line."""

from __future__ import annotations

from louver.cli import main

main()
