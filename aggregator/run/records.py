"""What participants hand in, as the rules keep it: opaque bytes for the aggregator, checked by the participants."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ConfigDict


class Record:
    """Base of everything that is journaled: plain data, bytes as base64 in JSON."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")


@dataclass(frozen=True, slots=True)
class Consent(Record):
    """A participant's signed answer to the proposal, when it enrolled."""

    private: bool
    signature: bytes
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Keys(Record):
    """Advertised keys of one attempt; `certificate` lets peers verify the signature."""

    sealing_key: bytes
    masking_key: bytes
    commitment: bytes
    binding: bytes
    certificate: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Reveal(Record):
    """Shares that a survivor released: of survivors' self-mask seeds and of dropouts' mask keys."""

    survivor_shares: tuple[tuple[str, bytes], ...]
    dropout_shares: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ExportAnswer(Record):
    """What became of the request for one participant's reconstruction: files that arrived, or a refusal."""

    files: tuple[tuple[str, int, bytes], ...] = ()
    refusal: str = ""
