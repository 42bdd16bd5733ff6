"""What `dcfpca-participant approve` prints: runs that wait, and approvals that are in force."""

from __future__ import annotations

from collections.abc import Sequence

from dcfpca.text.console import Json, add_row, moment, say, show, table
from participant.state.approvals import Approval
from participant.state.store import RunRow


def approval_document(approval: Approval) -> dict[str, Json]:
    """One approval, for scripts."""
    return {
        "by": approval.approver,
        "expires": moment(approval.expires_ms),
        "used": approval.used,
        "spec_sha256": approval.digest.hex(),
    }


def waiting_document(rows: Sequence[RunRow], standing: Sequence[Approval]) -> Json:
    """What `approve --json` prints."""
    return {
        "waiting": [{"run": row.run_id, "spec_sha256": row.digest.hex(), "reasons": list(row.reasons)} for row in rows],
        "approvals": [{"run": one.run_id, **approval_document(one)} for one in standing],
    }


def show_waiting(rows: Sequence[RunRow], standing: Sequence[Approval]) -> None:
    """What `approve` prints."""
    if rows:
        made = table("run", "proposed", "spec")
        for row in rows:
            add_row(made, row.run_id, moment(row.proposed_ms), row.spec.decode())
        show(made)
        for row in rows:
            for reason in row.reasons:
                say(f"run {row.run_id} waits because {reason}")
    else:
        say("no run waits for approval")
    for one in standing:
        say(f"in force: run {one.run_id} is approved {one.describe()}")
