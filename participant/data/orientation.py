"""Whether the rows of a matrix look like records of persons instead of features, to judge by their number and names.

Every participant receives U, which has one line for each row: if the rows are persons, a score for each of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MANY_TIMES = 10
"""So many times as many rows as columns are doubtful, if their names are, too."""
MOST = 0.9
"""The share of names that must look like identifiers."""

_IDENTIFIER = re.compile(
    r"[a-z]{0,12}[ _.:#/-]?[0-9]{2,}[a-z]?"  # 10023, P0042, patient-17
    r"|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # a UUID
    r"|[^@\s]+@[^@\s]+",  # an e-mail address
    re.ASCII | re.IGNORECASE,
)


def orientation_doubt(rows: int, columns: int, features: Sequence[str]) -> str:
    """One sentence when the orientation looks wrong; empty when it does not, or when the rows have no names."""
    if rows < MANY_TIMES * columns or not features:
        return ""
    named_alike = sum(_IDENTIFIER.fullmatch(name) is not None for name in features)
    if named_alike < MOST * len(features):
        return ""
    return f"the matrix has {rows} rows and only {columns} columns, and its rows are named like records, not features"
