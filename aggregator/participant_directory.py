"""The participants of this aggregator: what each said when it last connected, and who is connected now."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from aggregator.change_signal import Signal
from aggregator.store import participants
from aggregator.store.participants import ParticipantRecord
from aggregator.store.thread import StoreThread
from dcfpca.errors import BadInput
from dcfpca.pki.trust import whole_days


class ParticipantDirectory:
    """Everyone who ever connected, by name, and who has a stream of assignments open now: at most one each.

    `changed` fires when a participant connects or disconnects.
    """

    def __init__(self, store: StoreThread) -> None:
        self._store = store
        self.presence_changed: Callable[[str], None] = lambda name: None
        """Called with the name of a participant that connected or disconnected."""
        self.changed = Signal()
        self._open: set[str] = set()
        self.asking: set[str] = set()  # who said, when it last connected, that a person there is asked about every run
        self.records: dict[str, ParticipantRecord] = {}

    async def load(self) -> None:
        """Read the stored records."""
        known = await self._store.do(lambda store: participants.everyone(store.connection))
        self.records = {record.name: record for record in known}

    async def update(self, record: ParticipantRecord) -> None:
        """Store what a participant says when it connects."""
        self.records[record.name] = record
        await self._store.do(lambda store: participants.remember(store.connection, record))

    def enter(self, name: str) -> bool:
        """Register a stream; False when this identity has one already."""
        if name in self._open:
            return False
        self._open.add(name)
        self.presence_changed(name)
        self.changed.fire()
        return True

    def leave(self, name: str) -> None:
        """The stream that was registered has ended: that is when this participant was last seen."""
        self._open.discard(name)
        if (record := self.records.get(name)) is not None:
            self.records[name] = replace(record, last_seen=self._store.now())
        self.presence_changed(name)
        self.changed.fire()

    def is_connected(self, name: str) -> bool:
        """True if this participant has an open stream."""
        return name in self._open

    def connected(self) -> frozenset[str]:
        """Everybody who is connected."""
        return frozenset(self._open)

    def certificate_days(self, name: str) -> int:
        """Days until the certificate that this participant last showed expires."""
        end = datetime.fromtimestamp(self.records[name].not_after, UTC)
        return whole_days(end, datetime.fromtimestamp(self._store.now(), UTC))

    async def rows_of_connected(self, seconds: float) -> int:
        """The row count of most connected participants, waiting this long for the first; raises BadInput on a tie."""
        seen = self.changed.version
        try:
            async with asyncio.timeout(seconds):
                while not (stated := self._stated_rows()):
                    seen = await self.changed.wait(seen)
        except TimeoutError:
            hint = "start a site first (`dcfpca participants list` shows who is there), or state rows in the spec"
            raise BadInput(
                "no participant is connected, and the spec does not say how many features (rows) a run has", hint
            ) from None
        ranked = stated.most_common()
        if len(ranked) > 1 and ranked[0][1] == ranked[1][1]:
            counts = ", ".join(f"{rows} at {count}" for rows, count in ranked)
            said = f"the connected participants do not agree on how many features there are: {counts}"
            raise BadInput(said, "name the features in the spec: `dcfpca init spec`")
        return ranked[0][0]

    def features_of_connected(self, rows: int) -> str:
        """The hex digest of the feature names of most connected participants with this many rows; empty: no names."""
        stated = Counter(one.features for one in self._connected() if one.features and one.rows == rows).most_common()
        if len(stated) > 1 and stated[0][1] == stated[1][1]:
            hint = "name the features in the spec; each site then chooses and orders its own by it"
            raise BadInput("the connected participants do not agree on the names or the order of the features", hint)
        return stated[0][0].hex() if stated else ""

    def _stated_rows(self) -> Counter[int]:
        return Counter(record.rows for record in self._connected() if record.rows)

    def _connected(self) -> list[ParticipantRecord]:
        return [record for record in self.records.values() if record.name in self._open]
