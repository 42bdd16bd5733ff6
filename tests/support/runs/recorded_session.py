"""An honest site's session of a fixed cohort with what a daemon does around it: saving, computing, sending, dying."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from dcfpca.errors import BadMessage
from dcfpca.rpca.method import FloatArray
from dcfpca.secagg.messages import Advert, Misfit, Opening, SealedShare
from dcfpca.spec import RunSpec
from dcfpca.wire.tensors import digested, message_from
from participant.driver.round_answer import refusal_of
from participant.policy import SiteFacts, SitePolicy
from participant.session import Session, actions, events
from tests.support.hostile.mask_elimination import recorded_masks
from tests.support.runs.secagg import identity_of


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
    """One update that left the site."""

    name: str
    opening: Opening
    context: bytes
    values: bytes
    used: dict[bytes, int]
    numbers: FloatArray


@dataclass(frozen=True, slots=True)
class Disk:
    """What the daemon has saved."""

    cohort: tuple[str, ...] = ()
    record: bytes = b""
    step: events.LocalStep | None = None
    opened: events.Opened | None = None
    over: bool = False


class RecordedSession:
    """`take` gives the session an assignment and returns what leaves; whatever is computed has other numbers."""

    def __init__(self, name: str, spec: RunSpec) -> None:
        self.name, self.spec, self.disk, self._computed = name, spec, Disk(), 0
        self._masked: dict[bytes, tuple[Opening, dict[bytes, int], FloatArray]] = {}
        self.session = self._session()

    def _session(self) -> Session:
        policy = SitePolicy(min_columns=1, min_cohort=2)
        facts = SiteFacts(self.name, self.spec.rows, 1, False, False, policy)
        session = Session("run-1", facts, lambda: identity_of(self.name), finished=self.disk.over)
        session.handle(events.Proposed(self.spec.canonical(), self.spec.digest()))
        return session

    def restart(self) -> list[object]:
        """Die, and come back from the disk; what was interrupted is taken up again."""
        self.session, disk = self._session(), self.disk
        if disk.record:
            self.session.handle(events.Restored(disk.cohort, (disk.record, disk.record)))
        self.session.replay([one for one in (disk.step, disk.opened) if one is not None])
        return list(self._carry_out(self.session.resume(), dies=None))

    def take(self, event: events.Event, dies: str | None = None) -> list[object]:
        """`dies`: the daemon is killed before it saves what follows from this "event", or from its "step"."""
        return list(self._take(event, dies))

    def _take(self, event: events.Event, dies: str | None) -> Iterator[object]:
        try:
            reaction = self.session.handle(event)
        except BadMessage:
            return
        if dies == "event":
            yield from self.restart()
            return
        if reaction.save:
            self._save(event)
        yield from self._carry_out(reaction.actions, dies)

    def _save(self, event: events.Event) -> None:
        if isinstance(event, events.Opened):
            self.disk = replace(self.disk, opened=event)
            return
        run = self.session.secure
        if run is not None:
            self.disk = replace(self.disk, cohort=run.cohort, record=run.record)
        if isinstance(event, events.Ended):
            self.disk = replace(self.disk, opened=None, over=self.session.finished)

    def _carry_out(self, wanted: tuple[actions.Action, ...], dies: str | None) -> Iterator[object]:
        for action in wanted:
            match action:
                case actions.AdvertiseRunKey(advert):
                    yield advert
                case actions.ShareGroupSecret(shares):
                    yield from shares
                case actions.SendMisfit(_, misfit):
                    yield misfit
                case actions.Submit(ref):
                    payload, _, context = self.session.update(ref)
                    opening, used, numbers = self._masked[context]
                    yield Sent(self.name, opening, context, bytes(payload), used, numbers)
                case actions.Compute():
                    yield from self._answer(action, dies)

    def _answer(self, action: actions.Compute, dies: str | None) -> Iterator[object]:
        run = self.session.secure
        assert run is not None
        try:
            admitted = run.admit(
                self.session.open_round(action.round), digested(action.consensus.inline), self.session.step
            )
            step = admitted.step or self._step(action, admitted.bound)
            if dies == "step":
                yield from self.restart()
                return
            with recorded_masks() as used:
                answer = run.answer(admitted, step)
        except BadMessage as error:
            yield from self._take(events.RoundRefused(action.round, refusal_of(error, action.round)), None)
            return
        # Under all lifts of one opening a site masks the same numbers.
        assert answer.message is not None
        self._masked[answer.message.context] = replace(admitted.opening, misfits=()), used, step.vector.copy()
        yield from self._take(answer, dies)

    def _step(self, action: actions.Compute, opening: bytes) -> events.LocalStep:
        """A local step, on the disk before it is masked."""
        assert self.session.secure is not None
        stage = self.session.secure.agreed.method.stage(action.consensus.stage)
        consensus = message_from(stage.down, action.consensus.inline).flat()
        self._computed += 1
        draw = np.random.default_rng([self._computed, *self.name.encode()])
        numbers = draw.standard_normal(stage.up.size)
        step = events.LocalStep(action.round, action.consensus.sha256, numbers, {}, consensus, stage.name, opening)
        self.disk = replace(self.disk, step=step)
        return step


Message = Advert | SealedShare | Misfit | Sent
