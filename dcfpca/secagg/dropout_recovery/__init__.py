"""The first edition: a round goes on without the participants that drop out (see docs/protocol.md)."""
