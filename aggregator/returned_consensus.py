"""Brings a run whose store was restored from a backup forward to the consensus that its sites hold.

A member that connects shows the attempt it saw last, with the announcement as it came, and when it is asked, with the
bytes of the consensus. The run takes it up when the whole cohort shows the same one: the run's own seal vouches for
round, attempt and consensus, the agreement of all for what else was bound into their masks. One that lies, or holds
another, leaves the run paused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import replace
from typing import Literal

from aggregator.run.backup_recovery import ShownTicket
from aggregator.run.state import Run
from dcfpca.errors import BadMessage
from dcfpca.method_memory import decode_memory
from dcfpca.rpca.method import Consensus
from dcfpca.terms import Terms
from dcfpca.wire.tensors import message_from

Verdict = Literal["agreed", "awaited", "apart"]
"""Whether all members hold the same, may yet turn out to, or do not."""


class ReturnedConsensus:
    """What members have shown since the start, by name; `agreed` is set once all of them have shown the same."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._shown: dict[str, ShownTicket] = {}
        self._asked: set[str] = set()
        self.agreed: Consensus | None = None

    def wants(self, participant: str, shown: ShownTicket) -> bool:
        """Whether to ask this member to connect again with the bytes: once, unless somebody has shown them."""
        if shown.announced is None or participant in self._asked or any(map(_is_whole, (shown, *self._shown.values()))):
            return False
        self._asked.add(participant)
        return True

    def take(self, run: Run, participant: str, shown: ShownTicket, others: Collection[str]) -> Verdict:
        """Take the genuine ticket of a newer attempt; `others` are connected and have shown none, or may have."""
        if participant not in run.cohort or shown.announced is None:
            return "apart"
        before = self._shown.get(participant)
        if before is not None and _is_whole(before) and replace(before, payload=b"", memory=b"") == shown:
            shown = before  # it connects again, and does not bring the bytes a second time
        spare = any(_is_whole(one) for name, one in self._shown.items() if name != participant)
        keeps = _is_whole(shown) and not spare
        self._shown[participant] = shown if keeps else replace(shown, payload=b"", memory=b"")
        if missing := set(run.cohort) - self._shown.keys():
            return "apart" if missing.intersection(others) else "awaited"
        held = list(self._shown.values())
        if len({replace(one, ticket=b"", payload=b"", memory=b"") for one in held}) > 1:
            return "apart"
        self.agreed = next(filter(None, map(self._consensus, held)), None)
        if self.agreed is None:
            return "apart"
        self._shown.clear()
        return "agreed"

    def refused(self) -> tuple[str, ShownTicket] | None:
        """A member that is ahead and what it has shown, where another turns out not to be; None if nobody is."""
        return next(iter(self._shown.items()), None)

    def _consensus(self, shown: ShownTicket) -> Consensus | None:
        """The consensus that came with a ticket, if it did, and with the digests that were announced."""
        if shown.announced is None or not _is_whole(shown):
            return None
        try:
            stage = self._terms.method.stage(shown.announced.stage)
            broadcast = message_from(stage.down, shown.payload)
            return Consensus(shown.ref.round, stage.name, broadcast, decode_memory(shown.memory))
        except BadMessage:
            return None


def _is_whole(shown: ShownTicket) -> bool:
    """Whether the consensus and the memory that were announced came with it."""
    found = hashlib.sha256(shown.payload).digest(), hashlib.sha256(shown.memory).digest()
    return shown.announced is not None and found == (shown.consensus, shown.announced.memory_sha256)
