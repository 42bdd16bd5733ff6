"""What a site does in a run, decided without I/O: see `run.Session`."""

from participant.session.run import Consent, Reaction, Session

__all__ = ["Consent", "Reaction", "Session"]
