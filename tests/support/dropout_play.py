"""A run with `dropouts = "go-on"` as a `LyingAggregator` plays it: honest unless a test changes a message.

An attempt is played step by step, each with the sites that it is played with, so that a test can leave some out, tell
them other things, or ask again later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dcfpca import dropout_recovery_wire, secagg
from dcfpca.rpca.method import FloatArray
from dcfpca.secagg.ring_fixed_point import RingArray
from dcfpca.v1 import rounds_pb2 as pb
from tests.support.lying_aggregator import Heard, LyingAggregator
from tests.support.played_run import PlayedRun


@dataclass
class PlayedAttempt:
    """One attempt, as far as it has come."""

    opened: pb.RoundOpened
    context: secagg.Context
    closed: secagg.ClosedRoster | None = None
    agreement: secagg.Agreement | None = None
    shares: list[secagg.SealedShare] = field(default_factory=list)
    updates: dict[str, RingArray] = field(default_factory=dict)


class DropoutPlay(PlayedRun):
    """One run of the first edition."""

    def __init__(self, liar: LyingAggregator, names: Iterable[str], **spec: Any) -> None:
        super().__init__(liar, names, **{"dropouts": "go-on"} | spec)

    def context(self, opened: pb.RoundOpened) -> secagg.Context:
        """What everything of an attempt is bound to, by what its sites were told."""
        return secagg.Context(
            run=self.run_id,
            spec_digest=self.spec.digest(),
            round=opened.ref.round,
            attempt=opened.ref.attempt,
            cohort=tuple(opened.cohort),
            threshold=self.spec.threshold_of(len(opened.cohort)),
            min_cohort=2,
            precision=self.spec.precision,
            consensus=opened.consensus.sha256,
        )

    def mask(self, opened: pb.RoundOpened, told: Mapping[str, pb.RoundOpened] | None = None) -> PlayedAttempt:
        """Everything up to the masked updates, with those who are told of it; all, unless a test says otherwise."""
        each = told or dict.fromkeys(self.names, opened)
        after, attempt = self.open(each), PlayedAttempt(opened, self.context(opened))
        heard = [self._next("AdvertiseKeys", name, opened, after) for name in each]
        adverts = [dropout_recovery_wire.advert_from_wire(one.request.keys) for one in heard]
        attempt.closed = closed = secagg.close_roster(attempt.context, adverts)
        for name in each:
            self.tell(
                name, keys_relayed=dropout_recovery_wire.roster_to_wire(opened.ref, secagg.roster_for(closed, name))
            )
        bounds = {}
        for name in each:
            request = self._next("ShareKeys", name, opened, after).request
            attempt.shares += dropout_recovery_wire.shares_from_wire(request.shares)
            with_bound = request.HasField("exponent")
            stated = request if with_bound else self._next("StateBound", name, opened, after).request
            bounds[name] = stated.exponent
        attempt.agreement = secagg.agree(closed, list(each), bounds)
        for name in each:
            delivery = secagg.delivery_for(attempt.agreement, name, attempt.shares)
            self.tell(name, mask_wanted=dropout_recovery_wire.delivery_to_wire(opened.ref, delivery))
        kind = secagg.dtype_of(self.spec.precision)
        for name in each:
            sent = self._next("SubmitUpdate", name, opened, after)
            attempt.updates[name] = np.frombuffer(sent.payload, kind).copy()
        return attempt

    def attest(self, attempt: PlayedAttempt, survivors: Iterable[str]) -> dict[str, secagg.Attestation]:
        """Announce these survivors to themselves; their signatures."""
        members = tuple(sorted(survivors))
        after = len(self.liar.heard)
        for name in members:
            told = pb.SurvivorsAnnounced(ref=attempt.opened.ref, survivors=members)
            self.tell(name, survivors_announced=told)
        signed = {name: self._next("AttestSurvivors", name, attempt.opened, after).request for name in members}
        return {name: secagg.Attestation(name, one.signature) for name, one in signed.items()}

    def unmask(self, attempt: PlayedAttempt, attested: Mapping[str, secagg.Attestation]) -> FloatArray:
        """Ask the survivors for their shares, and open the sum of their updates."""
        assert attempt.closed is not None
        assert attempt.agreement is not None
        survivors, after = secagg.Survivors(tuple(sorted(attested))), len(self.liar.heard)
        for name in attested:
            request = secagg.request_for(attempt.closed, survivors, name, attested)
            self.tell(name, unmask_wanted=dropout_recovery_wire.unmask_request_to_wire(attempt.opened.ref, request))
        reveals = [
            dropout_recovery_wire.reveal_from_wire(self._next("Unmask", name, attempt.opened, after).request, name)
            for name in attested
        ]
        masks = secagg.recover(attempt.closed, attempt.agreement, survivors, reveals)
        total: RingArray = np.zeros_like(attempt.updates[survivors.members[0]])
        for name in attested:
            total += attempt.updates[name]
        secagg.remove_masks(total, masks)
        return secagg.open_sum(attempt.context, attempt.agreement, total)

    def play_round(self) -> FloatArray:
        """An honest round with everybody; the run goes on with what follows from its sum."""
        opened = self.announcement()
        attempt = self.mask(opened)
        total = self.unmask(attempt, self.attest(attempt, self.names))
        self.advance(opened.ref.round, total, len(self.names))
        return total

    def _next(self, call: str, name: str, opened: pb.RoundOpened, after: int) -> Heard:
        return self.liar.await_heard(
            lambda one: one.site == name and one.call == call and one.request.ref == opened.ref, after
        )
