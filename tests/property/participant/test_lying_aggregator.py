"""A lying aggregator, with up to three conspirators, against the sessions of honest sites that die and come back.

One level above `tests/property/secagg/test_lying_aggregator.py`: assignments of every kind, in any order and in any
wrong form, to whole sessions with what their daemons save; a daemon may be killed before anything is saved. No site
verifies a sum here, so that nothing but the masks and the rules of a session stand between the liar and an update.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from dcfpca.method_memory import encode_memory
from dcfpca.methods import method_of
from dcfpca.rpca.method import Consensus, TensorMessage
from dcfpca.rpca.simulate import simulate
from dcfpca.rpca.synthetic import Recipe, generate
from dcfpca.run_references import AttemptRef
from dcfpca.secagg import masks as pair_roots
from dcfpca.secagg import messages as context
from dcfpca.secagg import site as secure_site
from dcfpca.secagg.errors import SecureSumRefusal
from dcfpca.secagg.fixed_point import block_layout
from dcfpca.secagg.messages import Advert, Misfit, Opening, Roster, RunTerms, SealedShare
from dcfpca.secagg.site import SecureSite
from dcfpca.spec import RunSpec
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.wire.round_messages import misfit_to_wire, ref_to_wire
from dcfpca.wire.tensors import header_of, message_bytes
from participant import wire_codec
from participant.session import events
from tests.support.hostile.conspirator_roots import ConspiratorRoots
from tests.support.hostile.lying_scripts import play
from tests.support.hostile.mask_elimination import check_one_answer_per_round_and_mask, check_only_whole_sums_are_free
from tests.support.runs.recorded_session import RecordedSession, Sent
from tests.support.runs.secagg import site_names
from tests.support.runs.secure_relay import begin

MEMBERS, MOST_CONSPIRATORS, ROWS = 5, 3, 4
COHORT = site_names(MEMBERS)
SPEC = RunSpec.model_validate(
    {"method": "gradient", "rows": ROWS, "rank": 1, "rounds": 3, "tolerance": 0.0, "closing_rounds": False}
)
METHOD = method_of(SPEC)
TERMS = RunTerms("run-1", SPEC.digest(), COHORT, SPEC.last_round, SPEC.precision)
SCRIPTS = 3000 if os.environ.get("DCFPCA_LONG") else 150

places = st.integers(0, MEMBERS - 1)
deaths = st.sampled_from([None, None, None, None, "event", "step"])
lies = st.fixed_dictionaries(
    {},
    optional={
        "number": st.integers(0, SPEC.last_round + 2),
        "attempt": st.integers(1, 5),
        "consensus": st.sampled_from(["turned", "huge"]),
        "previous_sum": st.sampled_from([b"\x01" * 32, b"\x02" * 32]),
        "exponents": st.sampled_from([1, -3, -60]),
        "left_out": places,
        "misfits": st.integers(1, 4),
        "spec": st.just(bytes(32)),
    },
)


@cache
def honest_chain() -> tuple[Consensus, ...]:
    """The consensus of every round of an honest run over data of the same shape."""
    seen: list[Consensus] = [METHOD.begin()]
    data = generate(Recipe(rows=ROWS, columns=10, rank=1, sparsity=0.0, counts=(5, 5)), 1).sites()
    simulate(METHOD, data, observe=lambda consensus, _: seen.append(consensus))
    return tuple(one for one in seen if one.outcome is None)


def announced(round: int, lie: dict[str, object], misfits: Sequence[Misfit]) -> events.Opened:
    """What the aggregator tells a site of a round, honest but for the lie."""
    chain = honest_chain()
    told = chain[min(round, len(chain) - 1)]
    tensor = told.broadcast.tensor.copy()
    if lie.get("consensus") == "turned":
        tensor[:1] *= 1.0 + 1e-9
    elif lie.get("consensus") == "huge":
        tensor *= 1e200
    payload = message_bytes(TensorMessage(tensor, told.broadcast.scalars))
    number = int(lie.get("number", round))  # type: ignore[call-overload]
    stage = METHOD.stage(told.stage)
    layout = block_layout(stage.up, SPEC.precision)
    raised = tuple(one + int(lie.get("exponents", 0)) for one in layout.first_exponents)  # type: ignore[call-overload]
    kept = misfits[-int(lie["misfits"]) :] if "misfits" in lie else ()  # type: ignore[call-overload]
    attempt = int(lie.get("attempt", 1 + len(kept)))  # type: ignore[call-overload]
    ref = AttemptRef("run-1", number, attempt)
    cohort = tuple(name for place, name in enumerate(COHORT) if place != lie.get("left_out"))
    header = header_of(payload, stage.down, types.DTYPE_FLOAT64)
    opened = pb.RoundOpened(
        ref=ref_to_wire(ref),
        spec_sha256=lie.get("spec", SPEC.digest()),  # type: ignore[arg-type]
        cohort=cohort,
        consensus=header,
        previous_sum=lie.get("previous_sum", bytes([round]) * 32),  # type: ignore[arg-type]
        exponents=raised,
        misfits=[misfit_to_wire(one) for one in kept],
        memory_sha256=hashlib.sha256(encode_memory({})).digest(),
        stage=stage.name,
        inline_consensus=payload,
    )
    return wire_codec.opened_of(opened, "run-1")


class LyingAggregator(RuleBasedStateMachine):
    @initialize(conspirators=st.integers(0, MOST_CONSPIRATORS), properly=st.sampled_from([True, True, True, False]))
    def start(self, conspirators: int, properly: bool) -> None:
        self.honest, self.conspirators = COHORT[: MEMBERS - conspirators], COHORT[MEMBERS - conspirators :]
        self.sites = {name: RecordedSession(name, SPEC) for name in self.honest}
        self.adverts: dict[str, list[Advert]] = {name: [] for name in COHORT}
        for name in self.conspirators:
            self.adverts[name] = [begin(TERMS, name, salt).advert() for salt in ("", "another key")]
        self.rosters: list[Roster] = []
        self.shares: list[SealedShare] = []
        self.misfits: list[Misfit] = []
        self.received: list[Sent] = []
        self.known: set[bytes] = set()
        self.conspiracy = ConspiratorRoots(TERMS.last_round)
        if properly:
            self.set_up_properly()

    def _name(self, place: int) -> str:
        return self.honest[place % len(self.honest)]

    def _tell(self, name: str, event: events.Event, dies: str | None = None) -> None:
        self._hear(name, self.sites[name].take(event, dies))

    def _hear(self, name: str, said: list[object]) -> None:
        for one in said:
            match one:
                case Advert():
                    self.adverts[name] = [*self.adverts[name], one] if one not in self.adverts[name] else [one]
                case SealedShare():
                    self.shares += [one] if one not in self.shares else []
                case Misfit():
                    self.misfits.append(one)
                case Sent():
                    self.received.append(one)
                    self.conspiracy.learn(self.shares)
                    self.known |= {pair_roots.mask_key(root, one.context) for root in self.conspiracy.known}

    @rule(place=places, salt=st.binary(min_size=1, max_size=1), left_out=st.integers(0, 12), dies=deaths)
    def want_a_key(self, place: int, salt: bytes, left_out: int, dies: str | None) -> None:
        cohort = tuple(one for index, one in enumerate(COHORT) if index != left_out)
        entropy = (salt + self._name(place).encode()).ljust(secure_site.ENTROPY_BYTES, b".")
        self._tell(self._name(place), events.KeyWanted(SPEC.digest(), cohort, entropy), dies)

    @rule(place=places, picks=st.lists(st.integers(0, 1), min_size=MEMBERS, max_size=MEMBERS), dies=deaths)
    def show_a_roster(self, place: int, picks: list[int], dies: str | None) -> None:
        if not all(self.adverts.values()):
            return
        roster = Roster(
            tuple(self.adverts[name][pick % len(self.adverts[name])] for name, pick in zip(COHORT, picks, strict=True))
        )
        self.rosters.append(roster)
        self._tell(self._name(place), events.RosterClosed(roster), dies)

    @rule(which=st.integers(0, 20), salt=st.booleans())
    def let_conspirators_share(self, which: int, salt: bool) -> None:
        for name in self.conspirators if self.rosters else ():
            clone = begin(TERMS, name, "another key" if salt else "")
            self._adopt(clone, self.rosters[which % len(self.rosters)])

    def _adopt(self, clone: SecureSite, roster: Roster) -> None:
        try:
            shares = clone.share(roster)
        except SecureSumRefusal:
            return
        self.shares += [share for share in shares if share not in self.shares]
        self.conspiracy.join(clone, roster)

    @rule(place=places, which=st.integers(0, 20), withheld=st.integers(0, 12), dies=deaths)
    def relay_shares(self, place: int, which: int, withheld: int, dies: str | None) -> None:
        if not self.rosters:
            return
        name, roster = self._name(place), self.rosters[which % len(self.rosters)]
        mine = [share for index, share in enumerate(self.shares) if share.receiver == name and index != withheld]
        self._tell(name, events.SharesRelayed(roster, tuple(mine)), dies)

    @rule()
    def set_up_properly(self) -> None:
        everybody = range(len(self.honest))
        for place in everybody:
            self.want_a_key(place, b"k", 99, None)
        for place in everybody:
            self.show_a_roster(place, [0] * MEMBERS, None)
        self.let_conspirators_share(len(self.rosters) - 1, False)
        for place in everybody:
            self.relay_shares(place, len(self.rosters) - 1, 99, None)

    @rule(place=places, round=st.integers(0, SPEC.last_round), lie=lies, dies=deaths)
    def open_a_round(self, place: int, round: int, lie: dict[str, object], dies: str | None) -> None:
        self._tell(self._name(place), announced(round, lie, self.misfits), dies)

    @rule(
        round=st.integers(0, SPEC.last_round),
        lie=lies,
        told=st.lists(st.sampled_from(["true", "lie", "nothing"]), min_size=MEMBERS, max_size=MEMBERS),
    )
    def open_a_round_at_several(self, round: int, lie: dict[str, object], told: list[str]) -> None:
        for name, what in zip(self.honest, told, strict=False):
            if what != "nothing":
                self._tell(name, announced(round, lie if what == "lie" else {}, self.misfits))

    @rule(lie=lies, told=st.lists(st.booleans(), min_size=MEMBERS, max_size=MEMBERS), again=st.booleans())
    def open_the_next_round(self, lie: dict[str, object], told: list[bool], again: bool) -> None:
        """Everybody is told the truth, or some the lie; some are asked a second time, differently."""
        after = 1 + max((one.opening.round for one in self.received), default=-1)
        for name, differently in zip(self.honest, told, strict=False):
            self._tell(name, announced(after, lie if differently else {}, self.misfits))
        for name in self.honest[::2] if again else ():
            self._tell(name, announced(after, lie, self.misfits))

    @rule()
    def open_the_next_round_honestly(self) -> None:
        self.open_the_next_round({}, [False] * MEMBERS, False)

    @rule(place=places)
    def restart(self, place: int) -> None:
        name = self._name(place)
        self._hear(name, self.sites[name].restart())

    @rule(place=places, status=st.sampled_from(["finished", "aborted"]), ends=st.integers(0, 5))
    def end_the_run(self, place: int, status: str, ends: int) -> None:
        if ends == 0:
            consensus = announced(1, {}, ()).consensus
            self._tell(self._name(place), events.Ended(status, "said so", 1, SPEC.digest(), consensus))

    def teardown(self) -> None:
        """What the aggregator has only grows, so that a violation at any step is still one at the end."""
        check_only_whole_sums_are_free(self.received, self.known, self.honest)
        check_one_answer_per_round_and_mask(self.received)
        for name in self.honest:
            rounds = [one.opening.round for one in self.received if one.name == name]
            assert all(before <= after for before, after in pairwise(rounds))
        tallied.append(len(self.received))


tallied: list[int] = []


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_sessions_that_die_and_come_back_open_sums_over_all_honest_sites_only() -> None:
    tallied.clear()
    play(LyingAggregator, SCRIPTS)
    # Scripts in which nobody said anything would prove nothing.
    assert sum(count > MEMBERS for count in tallied) > len(tallied) // 8


def test_the_invariant_fails_if_masks_were_the_same_in_two_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    bound_to_all = context.opening_digest

    def careless(terms: RunTerms, roster: bytes, opening: Opening) -> bytes:
        return bound_to_all(terms, roster, replace(opening, round=0, consensus=bytes(32), previous_sum=bytes(32)))

    monkeypatch.setattr(context, "opening_digest", careless)
    monkeypatch.setattr(pair_roots, "ratchet", lambda root, rounds: root)
    with pytest.raises(AssertionError):
        play(LyingAggregator, 60, derandomize=True)
