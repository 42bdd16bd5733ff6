"""`dcfpca-participant approve` and `reject`, and the console: the runs that wait, who approves or declines one."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from dcfpca.errors import BadInput, Refused
from dcfpca.text.console import Json, add_row, moment, say, show, table
from participant.state.approvals import Approval, StandingApproval
from participant.state.store import RunRow, Store

_UNIT_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LONGEST_MS = 366 * _UNIT_MS["d"]
_LONGEST_NAME, _LONGEST_REASON = 100, 300


def approve_run(store: Store, run_id: str, approver: str, expires: str, now_ms: int, like: str = "") -> Approval:
    """Approve a waiting run with the spec it has, until `expires` from now; and later runs `like` it for so long."""
    row, name = _waiting(store, run_id), approver_name(approver)
    approval = Approval(run_id, row.digest, name, now_ms + milliseconds(expires))
    until_ms = now_ms + milliseconds(like, "--like") if like else 0
    store.approvals.give(approval, now_ms)
    if until_ms:
        store.approvals.allow_like(run_id, row.spec, name, until_ms, now_ms)
    return approval


def end_like(store: Store, run_id: str, name: str, now_ms: int) -> None:
    """End the standing approval of runs like this one; Refused if there is none."""
    if not store.approvals.end_like(run_id, approver_name(name), now_ms):
        raise Refused(
            f"no standing approval of runs like {run_id} is in force", "`dcfpca-participant approve` lists them"
        )


def decline_run(store: Store, run_id: str, name: str, reason: str, now_ms: int) -> str:
    """Decline a waiting run; returns the reason, which is all that the operator is told."""
    row, said = _waiting(store, run_id), " ".join(reason.split())
    if not said or len(said) > _LONGEST_REASON or not said.isprintable():
        hint = "add --reason TEXT; the operator reads it"
        raise BadInput(f"a refusal needs a reason of at most {_LONGEST_REASON} characters", hint)
    store.approvals.decline(run_id, row.digest, approver_name(name), said, now_ms)
    return said


def waiting_runs(store: Store, now_ms: int) -> list[RunRow]:
    """The runs that wait for a person; not those whose enrolment has ended, or that were declined."""
    declined = {run_id for run_id, _ in store.approvals.declined()}
    rows = [row for row in store.runs() if row.asks and row.run_id not in declined]
    return [row for row in rows if row.status == "enrolled" or closes_ms(row) > now_ms]


def closes_ms(row: RunRow) -> int:
    """When enrolment in a run ends: nobody tells a site that has not enrolled."""
    return row.proposed_ms + round(1000 * float(json.loads(row.spec).get("enrol_seconds", 30)))


def _waiting(store: Store, run_id: str) -> RunRow:
    row = store.run(run_id)
    if row is None or not row.asks:
        raise Refused(
            f"no run {run_id} waits for approval at this site", "`dcfpca-participant approve` lists those that do"
        )
    return row


def approver_name(text: str) -> str:
    """The approver as the ledger keeps it."""
    name = text.strip()
    if not name:
        raise BadInput("a decision needs the name of the person who makes it", "add --by NAME")
    if len(name) > _LONGEST_NAME or not name.isprintable():
        raise BadInput(f"--by is a name of at most {_LONGEST_NAME} printable characters", "shorten it")
    return name


def milliseconds(text: str, flag: str = "--expires") -> int:
    """A duration such as 7d, 12h or 30m."""
    found = re.fullmatch(r"([1-9][0-9]{0,5})([mhd])", text, re.ASCII)
    length = int(found[1]) * _UNIT_MS[found[2]] if found else 0
    if not 0 < length <= _LONGEST_MS:
        raise BadInput(f"{flag} {text} is not a duration of at most 366 days", "write 7d, 12h or 30m")
    return length


def approval_document(approval: Approval) -> dict[str, Json]:
    """One approval, for scripts."""
    return {
        "by": approval.approver,
        "expires": moment(approval.expires_ms),
        "used": approval.used,
        "spec_sha256": approval.digest.hex(),
    }


def waiting_document(
    rows: Sequence[RunRow], standing: Sequence[Approval], likes: Sequence[StandingApproval] = ()
) -> Json:
    """What `approve --json` prints."""
    return {
        "waiting": [{"run": row.run_id, "spec_sha256": row.digest.hex(), "reasons": list(row.reasons)} for row in rows],
        "approvals": [{"run": one.run_id, **approval_document(one)} for one in standing],
        "standing": [{"like": one.run_id, "by": one.approver, "expires": moment(one.expires_ms)} for one in likes],
    }


def show_waiting(rows: Sequence[RunRow], standing: Sequence[Approval], likes: Sequence[StandingApproval] = ()) -> None:
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
    for like in likes:
        way_out = f"`dcfpca-participant approve --end-like {like.run_id} --by NAME` ends it"
        say(f"in force: runs like {like.run_id} are approved {like.describe()}; {way_out}")
