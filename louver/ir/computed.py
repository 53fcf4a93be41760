"""Names of the arguments of a sparse tensor whose tiles are addressed at run time."""

from __future__ import annotations

VALUES = ".values"
"""The values, until they take the name of the tensor."""

CODES = ".codes"
"""The codes of all groups, 4 bits each."""

COUNT = ".count"
"""The elements of the dense tensor."""

NAN = ".nan"
"""The place of the NaN of the page, in elements behind the first value."""

COLUMNS = ".columns"
"""The length of a row of the dense tensor, if rows are not the sparse axis."""

ROWS = ".rows"
"""The rows of the dense tensor, of all its matrices, if rows are not the sparse axis."""

VIOLATIONS = "violations.flag"
"""The page of violations (`louver.runtime.violations`)."""
