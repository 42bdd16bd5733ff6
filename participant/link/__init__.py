"""The connection to the aggregator; the only room that knows gRPC."""

from participant.link.calls import Backoff, Link
from participant.link.connection import Connection

__all__ = ["Backoff", "Connection", "Link"]
