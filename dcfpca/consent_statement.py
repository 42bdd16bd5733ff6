"""The statement that a site signs when it enrols in a run or refuses it; neither side can deny it later."""

from __future__ import annotations

import json
from collections.abc import Sequence

LABEL = "dcfpca/v1/consent"


def consent_bytes(
    run_id: str, spec_sha256: bytes, participant: str, *, accept: bool, private: bool, reasons: Sequence[str]
) -> bytes:
    """The canonical bytes of an answer to a proposal, bound to the run, the spec and the participant."""
    answer = {
        "label": LABEL,
        "run": run_id,
        "spec": spec_sha256.hex(),
        "participant": participant,
        "accept": accept,
        "private": private,
        "reasons": list(reasons),
    }
    return json.dumps(answer, sort_keys=True, separators=(",", ":")).encode()
