"""The stored JSON layout of events and run states, kept stable while classes and fields are renamed.

An attempt is stored as `round` and `attempt` without its run, an advert and a reveal without the name of their sender
and in the words of the wire; the row or the enclosing entry tells the rest. Values are JSON, bytes already in base64.
"""

from __future__ import annotations

from typing import Any

Fields = dict[str, Any]

_ADVERT = {
    "seal_key": "sealing_key",
    "mask_key": "masking_key",
    "commitment": "commitment",
    "binding": "binding",
    "certificate": "certificate",
    "signature": "signature",
}
_REVEAL = {"seed_shares": "survivor_shares", "key_shares": "dropout_shares"}


def event_to_stored(fields: Fields) -> Fields:
    """The stored JSON of an event."""
    fields = _without_ref(fields)
    if "advert" in fields:
        fields["keys"] = _advert_to_stored(fields.pop("advert"))
    if "reveal" in fields:
        fields["reveal"] = _reveal_to_stored(fields["reveal"])
    return fields


def event_from_stored(stored: Fields, run_id: str) -> Fields:
    """The event of this run in its stored JSON."""
    fields = _with_ref(stored, run_id) if "attempt" in stored else dict(stored)
    if "keys" in fields:
        fields["advert"] = _advert_from_stored(fields.pop("keys"), fields["participant"])
    if "reveal" in fields:
        fields["reveal"] = _reveal_from_stored(fields["reveal"], fields["participant"])
    return fields


def run_to_stored(fields: Fields) -> Fields:
    """The stored JSON of a run's state."""
    fields = {name: value for name, value in fields.items() if name != "spec_sha256"}
    attempt = fields.pop("attempt")
    fields["round"] = _attempt_to_stored(attempt) if attempt else None
    return fields


def run_from_stored(stored: Fields) -> Fields:
    """The run's state in its stored JSON; `spec_sha256` is left out."""
    fields = dict(stored)
    attempt = fields.pop("round", None)
    fields["attempt"] = _attempt_from_stored(attempt, fields["run_id"]) if attempt else None
    return fields


def _attempt_to_stored(fields: Fields) -> Fields:
    fields = _without_ref(fields)
    fields["keys"] = {name: _advert_to_stored(one) for name, one in fields.pop("adverts").items()}
    fields["reveals"] = {name: _reveal_to_stored(one) for name, one in fields["reveals"].items()}
    return fields


def _attempt_from_stored(stored: Fields, run_id: str) -> Fields:
    fields = _with_ref(stored, run_id)
    fields["adverts"] = {name: _advert_from_stored(one, name) for name, one in fields.pop("keys", {}).items()}
    fields["reveals"] = {name: _reveal_from_stored(one, name) for name, one in fields.get("reveals", {}).items()}
    return fields


def _without_ref(fields: Fields) -> Fields:
    fields = dict(fields)
    ref = fields.pop("ref", None)
    return fields | {"round": ref["round"], "attempt": ref["attempt"]} if ref else fields


def _with_ref(stored: Fields, run_id: str) -> Fields:
    fields = dict(stored)
    return fields | {"ref": {"run_id": run_id, "round": fields.pop("round"), "attempt": fields.pop("attempt")}}


def _advert_to_stored(advert: Fields) -> Fields:
    return {stored: advert[name] for name, stored in _ADVERT.items()}


def _advert_from_stored(stored: Fields, sender: str) -> Fields:
    return {"name": sender} | {name: stored[there] for name, there in _ADVERT.items()}


def _reveal_to_stored(reveal: Fields) -> Fields:
    return {there: [[share["owner"], share["value"]] for share in reveal[name]] for name, there in _REVEAL.items()}


def _reveal_from_stored(stored: Fields, sender: str) -> Fields:
    shares = {
        name: [{"owner": owner, "value": value} for owner, value in stored[there]] for name, there in _REVEAL.items()
    }
    return {"name": sender} | shares
