"""One attempt at one round at a site: which message is due, given what the aggregator has sent so far.

A message that does not fit raises an error and changes nothing. A repeat of one that was accepted gives the same answer
again, byte for byte, unless the aggregator has acknowledged that answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.attempt_ref import AttemptRef
from dcfpca.errors import BadMessage
from dcfpca.methods import method_of
from dcfpca.rpca.method import FloatArray, Stage
from dcfpca.secagg import Context, ParticipantSide, SigningIdentity, Survivors, dtype_of
from dcfpca.secagg.errors import CohortTooSmall, OutOfTurn
from dcfpca.secagg.ring_fixed_point import MIN_EXPONENT
from dcfpca.secagg_block_layout import COUNT_EXPONENT
from dcfpca.spec import RunSpec
from participant.policy import SiteFacts, check_roster
from participant.session.actions import Action, Advertise, Attest, SendBound, SendReveal, SendShares, Submit
from participant.session.events import (
    Kind,
    MaskWanted,
    Opened,
    RosterRelayed,
    SecureStep,
    SurvivorsAnnounced,
    UnmaskWanted,
)


@dataclass(slots=True)
class Attempt:
    """The attempt now open. `side` is None in a plain run; `vector` is the round's update once it is computed.

    `done` are the kinds of message that were acknowledged, `heard` the steps of the secure sum that were accepted.
    """

    opened: Opened
    site: SiteFacts
    side: ParticipantSide | None
    precision: int
    vector: FloatArray | None = field(default=None, repr=False)
    done: set[Kind] = field(default_factory=set)
    heard: set[type[SecureStep]] = field(default_factory=set)

    @property
    def ref(self) -> AttemptRef:
        """Which attempt."""
        return self.opened.ref

    @property
    def is_answered(self) -> bool:
        """Whether nothing has to be computed any more."""
        return self.vector is not None

    def start(self) -> tuple[Action, ...]:
        """What is due when the attempt is opened or announced again."""
        if self.side is None:
            return self._submit() if self.vector is not None else ()
        advert = () if Kind.KEYS in self.done or self.heard else (Advertise(self.ref, self.side.advertise()),)
        return (*advert, *(self._bound() if RosterRelayed in self.heard else ()))

    def computed(self, vector: FloatArray) -> tuple[Action, ...]:
        """Take the update of the local step, which is made read-only, and return what is due now."""
        vector.flags.writeable = False
        self.vector = vector
        if self.side is None:
            return self._submit()
        return self._bound() if RosterRelayed in self.heard else ()

    def hear(self, event: SecureStep) -> tuple[Action, ...]:
        """Take a step of the secure sum; raises BadMessage when it may not be answered."""
        if self.side is None:
            raise BadMessage("a step of a secure sum was asked for in a plain run")
        actions = self._answer(self.side, event)
        self.heard.add(type(event))
        return actions

    def update_bytes(self) -> memoryview:
        """The bytes of the update, not copied: little-endian doubles, or masked residues. Slow for large tensors."""
        if self.vector is None:
            raise OutOfTurn("the local step is not done yet")
        if self.side is None:
            return bytes_of(self.vector.astype("<f8", copy=False))
        return bytes_of(self.side.mask(self.vector).astype(dtype_of(self.precision), copy=False))

    def _answer(self, side: ParticipantSide, event: SecureStep) -> tuple[Action, ...]:
        match event:
            case RosterRelayed():
                self._check_roster(event)
                shares = side.share(event.roster)
                bound = self._bound()
                if Kind.SHARES in self.done:
                    return bound
                return (SendShares(self.ref, shares, bound[0].bound if bound else None),)
            case MaskWanted():
                side.agree(event.delivery)
                return self._submit()
            case SurvivorsAnnounced():
                attestation = side.attest(event.survivors)
                return () if Kind.ATTESTATION in self.done else (Attest(self.ref, attestation),)
            case UnmaskWanted():
                reveal = side.reveal(event.request)
                return () if Kind.REVEAL in self.done else (SendReveal(self.ref, reveal),)

    def _check_roster(self, event: RosterRelayed) -> None:
        roster = event.roster
        relayed = [advert.name for advert in roster.adverts]
        if reason := check_roster(self.site, roster.members, relayed, self.opened.cohort):
            raise CohortTooSmall(reason)

    def _bound(self) -> tuple[SendBound, ...]:
        if self.side is None or self.vector is None:
            return ()
        bound = self.side.state_bound(self.vector)
        return () if Kind.BOUND in self.done else (SendBound(self.ref, bound),)

    def _submit(self) -> tuple[Action, ...]:
        return () if Kind.UPDATE in self.done else (Submit(self.ref),)


def bytes_of(array: NDArray[Any]) -> memoryview:
    """The array's bytes, not copied."""
    return np.ascontiguousarray(array).view(np.uint8).data


def begin(spec: RunSpec, site: SiteFacts, identity: SigningIdentity, opened: Opened) -> Attempt:
    """The attempt that this announcement opens; in a secure run all its secrets derive from the seed."""
    if spec.aggregation == "plain":
        return Attempt(opened, site, None, spec.precision)
    context = Context(
        run=opened.ref.run_id,
        spec_digest=opened.digest,
        round=opened.ref.round,
        attempt=opened.ref.attempt,
        cohort=opened.cohort,
        threshold=spec.threshold_of(len(opened.cohort)),
        min_cohort=site.policy.min_cohort,
        precision=spec.precision,
        consensus=opened.consensus.sha256,
    )
    before = Survivors(opened.opened_before) if opened.opened_before else None
    least = least_bound(spec, opened.ref.round, opened.consensus.stage)
    side = ParticipantSide(context, identity, opened.seed, opened_before=before, least_bound=least)
    return Attempt(opened, site, side, spec.precision)


def least_bound(spec: RunSpec, round: int, stage: Stage) -> int:
    """The smallest exponent that a site states, so that its bound says nothing about the size of ordinary numbers.

    Counts are exact below the exponent that a fixed cohort begins with; the tensors of `subspace` have units of order
    one. Elsewhere numbers have the unit of the data, and a floor could cost all their digits.
    """
    layout = method_of(spec).update_layout(round, stage)
    if layout.columns and not layout.scalars:
        return COUNT_EXPONENT[spec.precision]
    return 0 if layout.columns and spec.method == "subspace" else MIN_EXPONENT
