"""A notice to the people of the site that a run waits for them, to the address that the site has configured."""

from __future__ import annotations

import urllib.request

PATIENCE = 10.0


def post_notice(url: str, body: bytes) -> None:
    """POST the JSON document; raises OSError if nobody takes it, also where the answer is an error. Blocks."""
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="POST")  # noqa: S310
    with urllib.request.urlopen(request, timeout=PATIENCE):  # noqa: S310  the configuration takes http and https alone
        pass
