"""How runs and attempts at their rounds are referred to, by the services and by people. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dcfpca.errors import Refused, listed

LATEST = "latest"
_WHOLE = re.compile(r"\d{8}-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True, order=True)
class AttemptRef:
    """One attempt at one round of one run; of the same run, later attempts compare greater."""

    run_id: str
    round: int
    attempt: int

    def __str__(self) -> str:
        return f"round {self.round} attempt {self.attempt}"


def is_whole(text: str) -> bool:
    """Whether the text is a whole identifier, as the aggregator makes them."""
    return _WHOLE.fullmatch(text) is not None


def find_run(text: str, newest_first: Sequence[str]) -> str:
    """The run that `text` means: its identifier, `latest`, or the beginning of it or of its part after the date.

    Refused if several runs match, or if `latest` is asked for and there are none. A text that matches no run is
    returned unchanged.
    """
    if text in newest_first or not text:
        return text
    if text == LATEST:
        if not newest_first:
            raise Refused("there are no runs yet", "start one with `dcfpca run start`")
        return newest_first[0]
    found = [run for run in newest_first if run.startswith(text) or run.partition("-")[2].startswith(text)]
    if len(found) > 1:
        raise Refused(f"{text} is the beginning of {len(found)} runs: {listed(found)}", "give more characters")
    return found[0] if found else text
