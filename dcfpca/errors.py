"""The errors that people see: one sentence that says what is wrong, and one hint that says what to do."""

from __future__ import annotations


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
