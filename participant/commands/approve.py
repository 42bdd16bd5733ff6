"""What `dcfpca-participant approve RUN` does: checks the approver and the expiry, and records them."""

from __future__ import annotations

import re

from dcfpca.errors import BadInput, Refused
from participant.state.approvals import Approval
from participant.state.store import Store

_UNIT_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LONGEST_MS = 366 * _UNIT_MS["d"]
_LONGEST_NAME = 100


def approve_run(store: Store, run_id: str, approver: str, expires: str, now_ms: int) -> Approval:
    """Approve a waiting run with the spec it has, until `expires` from now."""
    row = store.run(run_id)
    if row is None or row.status != "waiting":
        raise Refused(
            f"no run {run_id} waits for approval at this site", "`dcfpca-participant approve` lists those that do"
        )
    approval = Approval(run_id, row.digest, approver_name(approver), now_ms + milliseconds(expires))
    store.approvals.give(approval, now_ms)
    return approval


def approver_name(text: str) -> str:
    """The approver as the ledger keeps it."""
    name = text.strip()
    if not name:
        raise BadInput("an approval names who gives it", "add --by NAME")
    if len(name) > _LONGEST_NAME or not name.isprintable():
        raise BadInput(f"--by is a name of at most {_LONGEST_NAME} printable characters", "shorten it")
    return name


def milliseconds(text: str) -> int:
    """A duration such as 7d, 12h or 30m."""
    found = re.fullmatch(r"([1-9][0-9]{0,5})([mhd])", text, re.ASCII)
    length = int(found[1]) * _UNIT_MS[found[2]] if found else 0
    if not 0 < length <= _LONGEST_MS:
        raise BadInput(f"--expires {text} is not a duration of at most 366 days", "write 7d, 12h or 30m")
    return length
