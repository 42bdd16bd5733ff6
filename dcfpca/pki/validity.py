"""Days that a certificate is still valid, as every list, check, page and metric counts them. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

SOON_DAYS = 14
"""A certificate with fewer days left should be renewed."""


def whole_days(until: datetime, now: datetime) -> int:
    """Days until then, to the nearest: one issued for 90 days shows 90. Negative once it has expired."""
    left = (until - now) / timedelta(days=1)
    return round(left) if left >= 0 else min(round(left), -1)
