"""What a site does in a run, decided without I/O, clock or entropy: see `session.Session`."""

from participant.session.actions import Reaction
from participant.session.enrolment import Consent
from participant.session.session import Session, is_fixed_cohort

__all__ = ["Consent", "Reaction", "Session", "is_fixed_cohort"]
