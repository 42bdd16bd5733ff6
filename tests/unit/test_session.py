"""A site's session: sessions and a relay joined without network, disk or clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from dcfpca import secagg
from dcfpca.rpca.exchange import FloatArray
from dcfpca.spec import RunSpec
from participant.policy import SiteFacts, SitePolicy
from participant.session import Reaction, Session, actions, events
from participant.session.events import ConsensusHeader, Kind, Ref
from tests.support.secagg import identity_of, verify

SITES = ("a", "b", "c", "d")
HEADER = ConsensusHeader(6, 2, 3, b"c" * 32)


def spec_of(**changes: Any) -> RunSpec:
    return RunSpec.model_validate({"rows": 6, "rank": 2, "aggregation": "secure"} | changes)


def site_of(name: str, **policy: Any) -> SiteFacts:
    return SiteFacts(name, 6, 9, False, False, SitePolicy(**policy))


def session_of(name: str = "a", **policy: Any) -> Session:
    return Session("run-1", site_of(name, **policy), lambda: identity_of(name))


def enrolled(name: str = "a", spec: RunSpec | None = None, **policy: Any) -> Session:
    session = session_of(name, **policy)
    spec = spec or spec_of()
    (answer,) = session.handle(events.Proposed(spec.canonical(), spec.digest())).actions
    assert isinstance(answer, actions.Respond)
    assert answer.accept
    return session


def opened(spec: RunSpec, round: int = 1, attempt: int = 1, seed: bytes = b"s" * 32, **changes: Any) -> events.Opened:
    made = events.Opened(Ref(round, attempt), spec.digest(), SITES, HEADER, seed)
    return replace(made, **changes)


def kinds(reaction: Reaction) -> list[str]:
    return [type(action).__name__ for action in reaction.actions]


def update_of(name: str) -> FloatArray:
    return np.random.default_rng(SITES.index(name)).standard_normal(15)


def computed(name: str = "a", round: int = 1) -> events.Computed:
    return events.Computed(round, HEADER.sha256, update_of(name))


@dataclass
class Cohort:
    """Sessions of all sites in one secure attempt, with the aggregator's half of the secure sum as their relay."""

    spec: RunSpec = field(default_factory=spec_of)
    sessions: dict[str, Session] = field(default_factory=dict)
    said: dict[str, list[events.Event]] = field(default_factory=lambda: {name: [] for name in SITES})
    opened_before: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.sessions = {name: enrolled(name, self.spec) for name in SITES}
        self.context = secagg.Context("run-1", self.spec.digest(), 1, 1, SITES, self.spec.threshold_of(4))

    def tell(self, name: str, event: events.Event) -> tuple[actions.Action, ...]:
        reaction = self.sessions[name].handle(event)
        self.said[name].append(event)
        return reaction.actions

    def open(self) -> None:
        adverts = []
        for name in SITES:
            opening = opened(self.spec, seed=name.encode() * 32, opened_before=self.opened_before)
            compute, advertise = self.tell(name, opening)
            assert isinstance(compute, actions.Compute)
            assert isinstance(advertise, actions.Advertise)
            secagg.accept_advert(self.context, advertise.advert, verify)
            adverts.append(advertise.advert)
        self.book = secagg.close_roster(self.context, adverts)

    def share(self) -> None:
        self.shares: dict[str, tuple[secagg.SealedShare, ...]] = {}
        bounds = {}
        for name in SITES:
            (send,) = self.tell(name, events.RosterRelayed(Ref(1, 1), secagg.roster_for(self.book, name)))
            assert isinstance(send, actions.SendShares)
            self.shares[name] = send.shares
            (bound,) = self.tell(name, computed(name))
            assert isinstance(bound, actions.SendBound)
            bounds[name] = bound.bound.exponent
        self.agreement = secagg.agree(self.book, SITES, bounds)

    def delivery(self, name: str) -> events.MaskWanted:
        sealed = [share for shares in self.shares.values() for share in shares]
        return events.MaskWanted(Ref(1, 1), secagg.delivery_for(self.agreement, name, sealed))

    def submit(self) -> None:
        self.total = np.zeros(15, dtype=np.uint64)
        for name in SITES:
            (submit,) = self.tell(name, self.delivery(name))
            assert submit == actions.Submit(Ref(1, 1))
            self.total += np.frombuffer(self.sessions[name].update_bytes(Ref(1, 1)), dtype="<u8")

    def unmask(self, survivors: Sequence[str] = SITES) -> FloatArray:
        told = secagg.close_survivors(self.book, self.agreement, survivors)
        attested = {}
        for name in SITES:
            (attest,) = self.tell(name, events.SurvivorsAnnounced(Ref(1, 1), told))
            assert isinstance(attest, actions.Attest)
            attested[name] = attest.attestation
        reveals = []
        for name in SITES:
            request = secagg.request_for(self.book, told, name, attested)
            (reveal,) = self.tell(name, events.UnmaskWanted(Ref(1, 1), request))
            assert isinstance(reveal, actions.SendReveal)
            reveals.append(reveal.reveal)
        secagg.remove_masks(self.total, secagg.recover(self.book, self.agreement, told, reveals))
        return secagg.open_sum(self.context, self.agreement, self.total)


def test_a_secure_attempt_of_four_sessions_opens_to_the_sum_of_their_updates() -> None:
    cohort = Cohort()
    cohort.open()
    cohort.share()
    cohort.submit()
    expected = sum(update_of(name) for name in SITES)
    np.testing.assert_allclose(cohort.unmask(), expected, rtol=0, atol=1e-15)


def test_a_session_replayed_at_any_point_says_the_same_bytes_again() -> None:
    cohort = Cohort()
    cohort.open()
    cohort.share()
    cohort.submit()
    cohort.unmask()
    for cut in range(1, len(cohort.said["a"])):
        again = enrolled("a", cohort.spec)
        # After a restart the outcome of the local step is known first, whenever it came about in the earlier life.
        past = cohort.said["a"][:cut]
        again.replay(sorted(past, key=lambda event: not isinstance(event, events.Computed)))
        present = cohort.said["a"][cut - 1]
        repeated = again.handle(present)
        assert not repeated.save
        reference = enrolled("a", cohort.spec)
        for event in past[:-1]:
            reference.handle(event)
        expected = [action for action in reference.handle(present).actions if not isinstance(action, actions.Compute)]
        told = {type(action): action for action in repeated.actions}
        for action in expected:
            assert told[type(action)] == action
        if isinstance(present, events.MaskWanted):
            assert again.update_bytes(Ref(1, 1)) == reference.update_bytes(Ref(1, 1))


def test_keys_and_shares_travel_while_the_local_step_computes() -> None:
    cohort = Cohort()
    cohort.open()
    roster = events.RosterRelayed(Ref(1, 1), secagg.roster_for(cohort.book, "a"))
    assert kinds(cohort.sessions["a"].handle(roster)) == ["SendShares"]
    assert kinds(cohort.sessions["a"].handle(computed())) == ["SendBound"]


def test_a_bound_known_before_the_roster_waits_for_it_and_travels_with_the_shares() -> None:
    cohort = Cohort()
    cohort.open()
    assert kinds(cohort.sessions["a"].handle(computed())) == []
    roster = events.RosterRelayed(Ref(1, 1), secagg.roster_for(cohort.book, "a"))
    (send,) = cohort.sessions["a"].handle(roster).actions
    assert isinstance(send, actions.SendShares)
    assert send.bound is not None
    assert actions.kinds_of(send) == (Kind.SHARES, Kind.BOUND)


def test_repeats_are_answered_until_the_answer_is_known_to_have_arrived() -> None:
    cohort = Cohort()
    cohort.open()
    cohort.share()
    session, roster = cohort.sessions["a"], cohort.said["a"][1]
    (send,) = session.handle(roster).actions
    assert isinstance(send, actions.SendShares)
    assert send.bound is not None
    session.handle(events.Acknowledged(Ref(1, 1), Kind.SHARES, events.Fate.ACCEPTED))
    assert kinds(session.handle(roster)) == ["SendBound"]
    session.handle(events.Acknowledged(Ref(1, 1), Kind.BOUND, events.Fate.DUPLICATE))
    assert kinds(session.handle(roster)) == []


def test_another_survivor_set_is_refused_and_changes_nothing() -> None:
    cohort = Cohort()
    cohort.open()
    cohort.share()
    cohort.submit()
    session = cohort.sessions["a"]
    session.handle(events.SurvivorsAnnounced(Ref(1, 1), secagg.Survivors(SITES)))
    (complaint,) = session.handle(events.SurvivorsAnnounced(Ref(1, 1), secagg.Survivors(("a", "b", "c")))).actions
    assert isinstance(complaint, actions.Complain)
    assert complaint.kind == "InconsistentSurvivors"
    assert kinds(session.handle(events.SurvivorsAnnounced(Ref(1, 1), secagg.Survivors(SITES)))) == ["Attest"]


def test_a_round_that_was_opened_is_not_opened_again_for_other_survivors() -> None:
    first = Cohort()
    first.open()
    first.share()
    first.submit()
    assert first.sessions["a"].opened_for(1) == ()
    first.unmask()
    assert first.sessions["a"].opened_for(1) == SITES
    assert first.sessions["a"].opened_for(2) == ()
    second = Cohort(opened_before=SITES)
    second.open()
    second.share()
    second.submit()
    fewer = secagg.Survivors(("a", "b", "c"))
    (complaint,) = second.sessions["a"].handle(events.SurvivorsAnnounced(Ref(1, 1), fewer)).actions
    assert isinstance(complaint, actions.Complain)
    assert complaint.kind == "DifferencedSum"
    same = secagg.Survivors(SITES)
    assert kinds(second.sessions["a"].handle(events.SurvivorsAnnounced(Ref(1, 1), same))) == ["Attest"]


def test_a_sum_over_fewer_survivors_than_the_policy_demands_is_not_signed() -> None:
    cohort = Cohort()
    cohort.open()
    cohort.share()
    cohort.submit()
    (complaint,) = (
        cohort.sessions["a"].handle(events.SurvivorsAnnounced(Ref(1, 1), secagg.Survivors(("a", "b")))).actions
    )
    assert isinstance(complaint, actions.Complain)


def test_the_spec_cannot_be_changed_after_consent() -> None:
    session, other = enrolled(), spec_of(rounds=7)
    (complaint,) = session.handle(events.Proposed(other.canonical(), other.digest())).actions
    assert isinstance(complaint, actions.Complain)
    assert "changed" in complaint.sentence
    (complaint,) = session.handle(opened(other)).actions
    assert isinstance(complaint, actions.Complain)
    assert "another spec" in complaint.sentence
    assert kinds(session.handle(opened(spec_of()))) == ["Compute", "Advertise"]


def test_a_spec_that_does_not_match_its_digest_is_not_answered() -> None:
    (complaint,) = session_of().handle(events.Proposed(spec_of().canonical(), b"x" * 32)).actions
    assert isinstance(complaint, actions.Complain)


def test_a_round_before_consent_is_not_answered() -> None:
    assert kinds(session_of().handle(opened(spec_of()))) == ["Complain"]


def test_a_refusal_gives_its_reasons_and_stands() -> None:
    session = session_of(max_rank=1)
    proposal = events.Proposed(spec_of().canonical(), spec_of().digest())
    first = session.handle(proposal)
    (answer,) = first.actions
    assert isinstance(answer, actions.Respond)
    assert not answer.accept
    assert first.save
    assert session.handle(proposal).actions == first.actions


def test_approval_is_awaited_and_then_given_once() -> None:
    session = session_of(manual_approval=True)
    waiting = session.handle(events.Proposed(spec_of().canonical(), spec_of().digest()))
    assert kinds(waiting) == ["AwaitApproval"]
    assert waiting.save
    assert kinds(session.handle(opened(spec_of()))) == ["Complain"]
    assert kinds(session.handle(events.Approved())) == ["Respond"]
    assert kinds(session.handle(events.Approved())) == []


def test_a_cohort_smaller_than_the_policy_makes_the_site_withdraw_and_stay_out() -> None:
    session = enrolled()
    for _ in range(2):
        (answer,) = session.handle(opened(spec_of(), cohort=("a", "b"))).actions
        assert isinstance(answer, actions.Respond)
        assert not answer.accept
        assert "2 participants" in answer.reasons[0]
    assert kinds(session.handle(opened(spec_of(), round=2))) == ["Respond"]


def test_a_cohort_that_grows_is_refused() -> None:
    session = enrolled()
    session.handle(opened(spec_of()))
    (complaint,) = session.handle(opened(spec_of(), round=2, cohort=(*SITES, "mallory"))).actions
    assert isinstance(complaint, actions.Complain)
    assert "mallory" in complaint.sentence


def test_a_second_consensus_for_one_round_is_refused() -> None:
    session = enrolled()
    session.handle(opened(spec_of()))
    other = replace(HEADER, sha256=b"d" * 32)
    assert kinds(session.handle(opened(spec_of(), attempt=2, consensus=other))) == ["Complain"]


def test_a_new_attempt_uses_the_same_update_and_new_keys() -> None:
    session = enrolled()
    _, first = session.handle(opened(spec_of())).actions
    session.handle(computed())
    (second,) = session.handle(opened(spec_of(), attempt=2, seed=b"t" * 32)).actions
    assert isinstance(first, actions.Advertise)
    assert isinstance(second, actions.Advertise)
    assert first.advert.mask_key != second.advert.mask_key


def test_a_repeated_opening_keeps_the_first_seed() -> None:
    session = enrolled()
    _, first = session.handle(opened(spec_of(), seed=b"s" * 32)).actions
    again = session.handle(opened(spec_of(), seed=b"t" * 32))
    assert again.actions == (first,)
    assert not again.save


def test_late_assignments_of_earlier_attempts_are_ignored() -> None:
    session = enrolled()
    session.handle(opened(spec_of(), round=2))
    assert session.handle(opened(spec_of(), round=1)) == Reaction()
    assert session.handle(events.SurvivorsAnnounced(Ref(1, 1), secagg.Survivors(SITES))) == Reaction()
    assert session.ref == Ref(2, 1)


def test_a_step_of_an_attempt_that_was_never_opened_here_is_sat_out() -> None:
    session = enrolled()
    session.handle(opened(spec_of()))
    assert kinds(session.handle(events.SurvivorsAnnounced(Ref(2, 1), secagg.Survivors(SITES)))) == ["Complain"]


def test_a_step_that_ends_after_its_round_is_followed_by_the_present_round() -> None:
    spec = spec_of(aggregation="plain")
    session = enrolled(spec=spec, allow_plain=True)
    assert kinds(session.handle(opened(spec))) == ["Compute"]
    assert kinds(session.handle(opened(spec, round=2))) == []
    (following,) = session.handle(computed(round=1)).actions
    assert following == actions.Compute(2, HEADER)
    assert session.handle(computed(round=2)).actions == (actions.Submit(Ref(2, 1)),)


def test_a_plain_update_is_sent_as_computed_and_again_in_the_next_attempt() -> None:
    spec = spec_of(aggregation="plain")
    session = enrolled(spec=spec, allow_plain=True)
    session.handle(opened(spec))
    session.handle(computed())
    sent = session.update_bytes(Ref(1, 1))
    assert sent == update_of("a").tobytes()
    assert session.handle(opened(spec, attempt=2)).actions == (actions.Submit(Ref(1, 2)),)
    assert session.update_bytes(Ref(1, 2)) == sent


def test_a_failed_step_sits_the_round_out_and_is_tried_again_when_asked_again() -> None:
    session = enrolled()
    session.handle(opened(spec_of()))
    assert kinds(session.handle(events.ComputeFailed(1, "no memory"))) == ["Complain"]
    assert "Compute" in kinds(session.handle(opened(spec_of())))


def test_after_a_restart_the_local_step_under_way_is_taken_up_again() -> None:
    session = enrolled()
    session.replay([opened(spec_of())])
    assert session.resume() == (actions.Compute(1, HEADER),)


def test_a_secure_step_in_a_plain_run_is_refused() -> None:
    spec = spec_of(aggregation="plain")
    session = enrolled(spec=spec, allow_plain=True)
    session.handle(opened(spec))
    assert kinds(session.handle(events.SurvivorsAnnounced(Ref(1, 1), secagg.Survivors(SITES)))) == ["Complain"]


def ended(status: str = "finished") -> events.Ended:
    return events.Ended(status, "converged", 9, spec_of().digest(), HEADER)


def test_a_finished_run_is_written_once() -> None:
    session = enrolled()
    assert session.handle(ended()).actions == (actions.Finish(9, "converged", HEADER),)
    assert session.handle(events.ResultsWritten("converged")).save
    assert session.handle(ended()) == Reaction()
    # Only an aggregator that was set back to before the end asks: it is told that this site will not go along.
    (told,) = session.handle(opened(spec_of(), round=10)).actions
    assert isinstance(told, actions.Respond)
    assert not told.accept
    assert session.handle(events.TurnedDown("late")) == Reaction()


@pytest.mark.parametrize("status", ["aborted", "failed"])
def test_a_run_without_result_is_forgotten(status: str) -> None:
    session = enrolled()
    reaction = session.handle(ended(status))
    assert kinds(reaction) == ["Forget"]
    assert reaction.save


def test_an_end_under_another_spec_writes_nothing() -> None:
    session = enrolled()
    assert kinds(session.handle(replace(ended(), digest=b"x" * 32))) == ["Complain"]


@pytest.mark.parametrize(
    ("policy", "export", "kind"),
    [
        ({"allow_export": True}, True, "Export"),
        ({"allow_export": True}, False, "RefuseExport"),
        ({"allow_export": True, "private": True}, True, "RefuseExport"),
        ({}, True, "RefuseExport"),
    ],
)
def test_an_export_is_decided_by_the_site_alone(policy: dict[str, bool], export: bool, kind: str) -> None:
    session = enrolled(spec=spec_of(export=export), **policy)
    assert kinds(session.handle(events.ExportWanted("e1"))) == [kind]


def test_an_export_of_a_run_that_was_refused_is_refused() -> None:
    session = session_of(max_rank=1, allow_export=True)
    session.handle(events.Proposed(spec_of(export=True).canonical(), spec_of(export=True).digest()))
    assert kinds(session.handle(events.ExportWanted("e1"))) == ["RefuseExport"]
