"""The errors that people see: one sentence that says what is wrong, and one hint that says what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


class DcfpcaError(Exception):
    """Base of every error that this software raises on purpose. `str()` is the sentence, `hint` the remedy."""

    def __init__(self, sentence: str, hint: str = "") -> None:
        super().__init__(sentence)
        self.hint = hint


class BadInput(DcfpcaError):
    """Data, configuration, spec or command line that cannot be used as it is. Commands exit with 2."""


class UnusableState(BadInput):
    """A store or state directory that is damaged, in use or not writable. Commands exit with 1: it is not misuse."""


class BadIdentity(DcfpcaError):
    """A certificate, key or name that does not establish an identity, or whose identity may not be used here."""


class BadMessage(DcfpcaError):
    """A peer sent something that the protocol does not allow at this point."""


class Refused(DcfpcaError):
    """A party declined, by its own policy or role, to do what was asked."""


class Unreachable(DcfpcaError):
    """The other side could not be reached, or did not answer in time."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean X?`, or an empty text if no known name is close; upper and lower case count as equal."""
    by_lower = {one.lower(): one for one in known}
    close = get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.6)
    return f"did you mean {by_lower[close[0]]}?" if close else ""


def listed(names: Sequence[str], most: int = 8) -> str:
    """The names, separated by commas; of many only the first, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
