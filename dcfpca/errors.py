"""The errors that people see: one sentence that says what is wrong, one hint that says what to do."""

from __future__ import annotations


class DcfpcaError(Exception):
    """Base of every error this software raises on purpose. `str()` is the sentence, `hint` the remedy."""

    def __init__(self, sentence: str, hint: str = "") -> None:
        super().__init__(sentence)
        self.hint = hint


class BadInput(DcfpcaError):
    """Data, configuration, spec or command line that cannot be used as it is."""


class BadIdentity(DcfpcaError):
    """A certificate, key or name that does not say who its holder is, or that may not be used."""


class BadMessage(DcfpcaError):
    """A peer sent something that the protocol does not allow at this point."""


class Refused(DcfpcaError):
    """A party declined, by its own policy or role, to do what was asked."""


class Unreachable(DcfpcaError):
    """The other side could not be reached, or did not answer in time."""
