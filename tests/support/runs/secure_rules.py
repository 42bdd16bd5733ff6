"""A run with a fixed cohort for the tests of the rules: real sides of the members, and what they would send."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from aggregator.run import events, secure_sum
from aggregator.run.attempts import Reply
from aggregator.run.secure_sum import context_of, full_roster, terms_of
from aggregator.run.state import Attempt, SecureSum, opening_of
from aggregator.sums import encoded_consensus
from dcfpca.secagg.aggregator import shares_for
from dcfpca.secagg.messages import NO_SUM, Misfit
from dcfpca.secagg.site import SecureSite
from dcfpca.wire.receipt import Fate
from tests.support.runs.rules import NAMES, Machine, spec_of
from tests.support.runs.secagg import identity_of, verify


class WaitingRun(Machine):
    """A machine whose members hold real keys."""

    def __init__(self, **keys: Any) -> None:
        super().__init__(spec_of(aggregation="secure", **keys))
        self.run = replace(self.run, spec_sha256=self.spec.digest())
        self.sides: dict[str, SecureSite] = {}
        self.digest = encoded_consensus(self.terms.method.begin()).digest
        self.enrol(*NAMES)

    @property
    def fixed(self) -> SecureSum:
        assert self.run.secure is not None
        return self.run.secure

    @property
    def attempt(self) -> Attempt:
        assert self.run.attempt is not None
        return self.run.attempt

    def begin(self, name: str) -> SecureSite:
        """The member's side, made once."""
        if name not in self.sides:
            entropy = name.encode().ljust(64, b".")
            self.sides[name] = SecureSite.begin(terms_of(self.spec, self.run), identity_of(name), entropy)
        return self.sides[name]

    def post(self, kind: type[Any], who: str, **fields: Any) -> Reply:
        """A message checked as at the service's door, then given to the rules."""
        event = kind(at=self.at, participant=who, **fields)
        if isinstance(event, events.RunKeyAdvertised | events.GroupSecretShared):
            secure_sum.check_set_up(self.spec, self.run, event, verify)
        return self.say(kind, who, **fields)

    def advertise(self, *names: str) -> WaitingRun:
        for name in names or NAMES:
            reply = self.post(events.RunKeyAdvertised, name, run_key=self.begin(name).advert())
            assert reply.fate is Fate.ACCEPTED, reply
        return self

    def share(self, *names: str) -> WaitingRun:
        for name in names or NAMES:
            shares = sorted(self.sides[name].share(full_roster(self.fixed)), key=lambda share: share.receiver)
            reply = self.post(events.GroupSecretShared, name, shares=tuple(shares))
            assert reply.fate is Fate.ACCEPTED, reply
        return self

    def set_up(self) -> WaitingRun:
        """Round 0 is open, and everybody has completed its set-up."""
        self.advertise().share()
        roster = full_roster(self.fixed)
        sealed = [share for shares in self.fixed.shares.values() for share in shares]
        for name, side in self.sides.items():
            side.complete(roster, shares_for(name, sealed))
        return self

    def update(self, *names: str, tag: int = 7) -> WaitingRun:
        for name in names or NAMES:
            reply = self.say(events.UpdateReceived, name, sha256=name.encode().ljust(32), size=8, tag=tag)
            assert reply.fate is Fate.ACCEPTED, reply
        return self

    def summed(self, outcome: str = "") -> WaitingRun:
        """The sum of the open round is formed, and the next round opens."""
        ref = self.attempt.ref
        exponents = self.terms.blocks["fit"].first_exponents
        digest = b"s" * 31 + bytes([ref.round])
        fields = {"outcome": outcome, "sum_digest": digest, "exponents": exponents, "stage": "fit"}
        self.tell(events.ConsensusReached, ref=ref, **fields)
        return self

    def rounds(self, until: int) -> WaitingRun:
        """On to this round, everybody answering."""
        while self.attempt.ref.round < until:
            self.update().summed()
        return self

    def misfit(self, name: str) -> Misfit:
        """What this member signs when its update does not fit."""
        identity = identity_of(name)
        unsigned = Misfit(name, context_of(self.terms, self.run, self.digest), identity.certificate, b"")
        return replace(unsigned, signature=identity.sign(unsigned.statement()))

    def report_misfit(self, name: str) -> Reply:
        misfit = self.misfit(name)
        secure_sum.check_misfit(self.terms, self.run, self.digest, misfit, verify)
        return self.say(events.MisfitReported, name, misfit=misfit)

    def opened_with(self) -> tuple[bytes, int]:
        """The previous sum and the number of lifts that the open round is bound to."""
        opening = opening_of(self.terms, self.run, self.digest)
        return opening.previous_sum, len(opening.misfits)


__all__ = ["NO_SUM", "WaitingRun"]
