"""The connection to the aggregator; the only package of the participant that imports gRPC."""

from participant.link.calls import Backoff, Link
from participant.link.connection import Connection

__all__ = ["Backoff", "Connection", "Link"]
