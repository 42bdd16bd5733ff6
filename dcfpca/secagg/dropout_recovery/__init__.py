"""The dropout-recovery protocol (v1): a round goes on without participants that drop out (see docs/protocol.md)."""
