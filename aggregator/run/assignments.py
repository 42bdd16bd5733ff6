"""What is wanted of each participant now: a function of the run's state and nothing else.

Level, not edge: a stream that reconnects is sent the same assignments again, and the key tells the participant
whether it has done one before. So there is no outbox that could be lost or sent twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aggregator.run import exports
from aggregator.run.phases import candidates
from aggregator.run.records import Keys
from aggregator.run.state import Phase, Round, Run, Status
from dcfpca import secagg
from dcfpca.spec import RunSpec
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1.types_pb2 import RoundRef, TensorHeader

# An assignment that is built only when it has to be sent: its key, its field in the message, and how to make it.
Wanted = tuple[str, str, Callable[[], Any]]


# What is wanted of everybody in the same words.
_ALIKE = frozenset({"run_proposed", "round_opened", "survivors_announced", "run_finished"})

# By which request a phase of a round begins, in the order of the phases.
_REQUESTS = {
    Phase.ADVERTISING: "round_opened",
    Phase.SHARING: "keys_relayed",
    Phase.UPLOADING: "mask_wanted",
    Phase.ATTESTING: "survivors_announced",
    Phase.UNMASKING: "unmask_wanted",
}
_ORDER = tuple(_REQUESTS.items())
_PLACE = {phase: place for place, phase in enumerate(_REQUESTS)}


@dataclass(frozen=True, slots=True)
class Facts:
    """What an assignment needs beside the run's state; the shell looks it up once per stage."""

    spec: RunSpec
    spec_bytes: bytes
    spec_sha256: bytes
    deadline_ms: int = 0
    consensus: TensorHeader | None = None
    inline_consensus: bytes = b""
    ticket: bytes = b""
    book: secagg.Book | None = None
    encoded: dict[str, bytes] = field(default_factory=dict)


def assignments(facts: Facts, run: Run, participant: str) -> list[bytes]:
    """Everything that is wanted of this participant in this run, in the order to do it."""
    return encoded(facts, run, wanted(facts, run, participant))


def encoded(facts: Facts, run: Run, requests: Iterable[Wanted]) -> list[bytes]:
    """Serialized `Assignment` messages: what is the same for everybody, the consensus above all, is encoded once."""
    messages = []
    for key, what, make in requests:
        body = facts.encoded.get(key)
        if body is None:
            message = pb.Assignment(run_id=run.run_id, key=key, deadline_ms=facts.deadline_ms, **{what: make()})
            body = message.SerializeToString()
        if what in _ALIKE:
            facts.encoded[key] = body
        messages.append(body)
    return messages


def wanted(facts: Facts, run: Run, me: str) -> list[Wanted]:
    """What is wanted of this participant now, each under its key, not yet made."""
    if run.status is Status.ENROLLING:
        return _proposal(facts, run, me)
    # A run that ended before it had a cohort is over for those who had enrolled.
    if me not in (run.cohort or run.enrolled) or me in run.refusals:
        return []
    if run.status is Status.RUNNING and run.round is not None:
        return _in_round(facts, run, run.round, me)
    if run.status is Status.PAUSED and run.round is not None:
        return [_standby(run, run.round, f"the run is paused: {run.reason}")]
    return [(f"{run.run_id}/finished", "run_finished", lambda: _finished(facts, run)), *_export(run, me)]


def _proposal(facts: Facts, run: Run, me: str) -> list[Wanted]:
    invited = not facts.spec.participants or me in facts.spec.participants
    if not invited or me in run.enrolled or me in run.refusals:
        return []
    proposed = pb.RunProposed(spec=facts.spec_bytes, spec_sha256=facts.spec_sha256)
    return [(f"{run.run_id}/proposed", "run_proposed", lambda: proposed)]


def _in_round(facts: Facts, run: Run, round: Round, me: str) -> list[Wanted]:
    """The requests of this attempt up to the present phase, so that one who restarts can take up the thread.

    One who has missed a step stands by for the next round.
    """
    if round.phase is Phase.SUMMING:
        # Over in a moment, and what comes then is said then.
        return []
    if me not in candidates(run, round):
        return [_standby(run, round, f"round {round.round} goes on without this participant")]
    upto = _PLACE[round.phase] if round.roster else 0
    attempt = f"{run.run_id}/{round.round}.{round.attempt}"
    return [
        (f"{attempt}/{phase.value}", what, partial(_request, facts, run, round, me, phase))
        for phase, what in _ORDER[: upto + 1]
    ]


def _request(facts: Facts, run: Run, round: Round, me: str, phase: Phase) -> Any:
    ref = RoundRef(run_id=run.run_id, round=round.round, attempt=round.attempt)
    match phase:
        case Phase.ADVERTISING:
            return _opened(facts, run, ref)
        case Phase.SHARING:
            return _keys_relayed(facts, round, ref, me)
        case Phase.UPLOADING:
            return _mask_wanted(round, ref, me)
        case Phase.ATTESTING:
            return pb.SurvivorsAnnounced(ref=ref, survivors=round.survivors)
        case _:
            return _unmask_wanted(facts, round, ref, me)


def _standby(run: Run, round: Round, reason: str) -> Wanted:
    return (f"{run.run_id}/{round.round}.{round.attempt}/standby", "standby", lambda: pb.Standby(reason=reason))


def _opened(facts: Facts, run: Run, ref: RoundRef) -> pb.RoundOpened:
    return pb.RoundOpened(
        ref=ref,
        spec_sha256=facts.spec_sha256,
        cohort=run.cohort,
        consensus=facts.consensus,
        inline_consensus=facts.inline_consensus,
        ticket=facts.ticket,
    )


def _keys_relayed(facts: Facts, round: Round, ref: RoundRef, me: str) -> pb.KeysRelayed:
    assert facts.book is not None
    roster = secagg.roster_for(facts.book, me)
    keys = [_advertised(advert.name, round.keys[advert.name]) for advert in roster.adverts]
    return pb.KeysRelayed(ref=ref, roster=roster.members, keys=keys, root=roster.root, path=roster.path)


def _advertised(name: str, keys: Keys) -> pb.AdvertisedKeys:
    return pb.AdvertisedKeys(
        participant=name,
        sealing_key=keys.sealing_key,
        masking_key=keys.masking_key,
        commitment=keys.commitment,
        binding=keys.binding,
        certificate=keys.certificate,
        signature=keys.signature,
    )


def _mask_wanted(round: Round, ref: RoundRef, me: str) -> pb.MaskWanted:
    incoming = [
        pb.SealedShares(sender=sender, recipient=me, ciphertext=round.shares[sender][me])
        for sender in round.members
        if me in round.shares[sender]
    ]
    return pb.MaskWanted(ref=ref, members=round.members, exponent=round.exponent, incoming=incoming)


def _unmask_wanted(facts: Facts, round: Round, ref: RoundRef, me: str) -> pb.UnmaskWanted:
    assert facts.book is not None
    given = {name: secagg.Attestation(name, signature) for name, signature in round.attestations.items()}
    request = secagg.request_for(facts.book, secagg.Survivors(round.survivors), me, given)
    attested = [pb.Attestation(participant=one.name, signature=one.signature) for one in request.attestations]
    return pb.UnmaskWanted(ref=ref, survivors=round.survivors, attestations=attested)


def _finished(facts: Facts, run: Run) -> pb.RunFinished:
    return pb.RunFinished(
        status=run.status.value,
        reason=run.reason,
        round=run.round.round if run.round else 0,
        spec_sha256=facts.spec_sha256,
        consensus=facts.consensus if run.status is Status.FINISHED else None,
    )


def _export(run: Run, me: str) -> list[Wanted]:
    if run.export is None or exports.is_answered(run.export, me):
        return []
    wanted = pb.ExportWanted(export_id=run.export.export_id)
    return [(f"{run.run_id}/export/{run.export.export_id}", "export_wanted", lambda: wanted)]
