"""The connection to the aggregator; the only package of the participant that imports gRPC."""

from participant.link.assignment_stream import Connection
from participant.link.calls import Backoff, Link

__all__ = ["Backoff", "Connection", "Link"]
