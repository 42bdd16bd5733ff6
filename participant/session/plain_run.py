"""A site's part in a plain run, whose updates the aggregator sees one by one: nothing is masked, and nothing pinned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import BadMessage
from dcfpca.rpca.method import FloatArray
from dcfpca.run_references import AttemptRef
from dcfpca.secagg.errors import OutOfTurn, SecureSumRefusal
from dcfpca.spec import RunSpec
from participant.policy import SiteFacts
from participant.review import check_cohort
from participant.session.actions import Action, Submit
from participant.session.events import Computed, Kind, Opened


class PlainRun:
    """One plain run at one site. Its rounds may be tried again, and go on without members that are away."""

    def __init__(self, spec: RunSpec, site: SiteFacts) -> None:
        self._spec, self._site = spec, site
        self._cohort: tuple[str, ...] = ()

    def check_announced(self, event: Opened, before: Opened | None) -> None:
        """Raise BadMessage when the cohort grew, a round has a second, different consensus, or is beyond the last.

        `before` is the latest announcement of the run.
        """
        if event.ref.round > self._spec.last_round:
            raise BadMessage(f"round {event.ref.round} is beyond the last of the spec, {self._spec.last_round}")
        added = sorted(set(event.cohort) - set(self._cohort))
        if self._cohort and added:
            raise BadMessage(f"the cohort grew after the run began: {', '.join(added)}")
        if before and before.ref.round == event.ref.round and before.consensus.sha256 != event.consensus.sha256:
            raise BadMessage(f"a second, different consensus was announced for round {event.ref.round}")

    def objections(self, event: Opened) -> tuple[str, ...]:
        """Why the site withdraws instead of answering this round; empty when it answers."""
        return check_cohort(self._spec, self._site, event.cohort)

    def attempt(self, event: Opened) -> PlainAttempt:
        """The attempt that this announcement opens."""
        self._cohort = self._cohort or event.cohort
        return PlainAttempt(event)

    def complain(self, error: SecureSumRefusal) -> tuple[Action, ...]:
        """Nothing: a plain run has no complaints."""
        return ()

    def finish(self) -> None:
        """The run is over; a plain one has no secrets to drop."""

    def forget(self) -> None:
        """As `finish`."""


@dataclass(slots=True)
class PlainAttempt:
    """The attempt now open. `vector` is the round's update once it is computed; `done` was acknowledged."""

    opened: Opened
    vector: FloatArray | None = field(default=None, repr=False)
    done: set[Kind] = field(default_factory=set)

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
        return () if self.vector is None or Kind.UPDATE in self.done else (Submit(self.ref),)

    def announced_again(self, event: Opened) -> None:
        """Nothing changes: a plain round is announced to everybody, whether their update was accepted or not."""

    def take(self, computed: Computed) -> bool:
        """Take the update of a local step, which is made read-only; False unless it answers this attempt."""
        told = self.opened
        if (computed.round, computed.consensus_sha256) != (told.ref.round, told.consensus.sha256):
            return False
        computed.vector.flags.writeable = False
        self.vector = computed.vector
        return True

    def update_bytes(self) -> memoryview:
        """The update as little-endian doubles, not copied."""
        if self.vector is None:
            raise OutOfTurn("the local step is not done yet")
        return bytes_of(self.vector.astype("<f8", copy=False))

    def update_seal(self) -> tuple[int, bytes]:
        """Neither tag nor context."""
        return 0, b""


def bytes_of(array: NDArray[Any]) -> memoryview:
    """The array's bytes, not copied."""
    return np.ascontiguousarray(array).view(np.uint8).data
