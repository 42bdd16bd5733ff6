"""What a site does in a run, decided without I/O, clock or entropy: see `session.Session`."""

from participant.session.actions import Consent, Reaction
from participant.session.enrolment import History
from participant.session.session import Session

__all__ = ["Consent", "History", "Reaction", "Session"]
