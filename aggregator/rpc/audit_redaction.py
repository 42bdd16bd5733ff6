"""Redacts the audit log for a participant: entries that do not concern it are reduced to their place in the chain."""

from __future__ import annotations

import json
from collections.abc import Callable

from dcfpca.identity import Identity, Role
from dcfpca.v1.admin_pb2 import AuditEntry
from dcfpca.wire.audit_chain import withheld


def shown_to(reader: Identity, entry: AuditEntry, invited: Callable[[str], bool]) -> AuditEntry:
    """The entry as this reader gets it: whole, or with nothing but its place in the chain.

    Operators read everything. `invited` tells whether the reader may take part in a run.
    """
    return entry if reader.role is Role.OPERATOR or _concerns(reader, entry, invited) else withheld(entry)


def _concerns(reader: Identity, entry: AuditEntry, invited: Callable[[str], bool]) -> bool:
    actor = Identity.parse(entry.actor)
    if actor == reader:
        return True
    if actor.role is Role.PARTICIPANT or _names_another(reader, entry):
        return False
    return not entry.run_id or invited(entry.run_id)


def _names_another(reader: Identity, entry: AuditEntry) -> bool:
    """True if an operator's act was about another participant: revoked, restored, or its export fetched."""
    detail = json.loads(entry.detail)
    about = {detail[key] for key in ("participant", "name") if key in detail}
    return bool(about - {reader.name})
