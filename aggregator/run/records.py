"""Answers of participants that a run keeps, and the base of everything that is journaled."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ConfigDict


class Record:
    """Base of journaled data classes: bytes become base64 in JSON."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")


@dataclass(frozen=True, slots=True)
class Consent(Record):
    """A participant's signed answer to the proposal, when it enrolled."""

    private: bool
    signature: bytes
    fingerprint: str


@dataclass(frozen=True, slots=True)
class ExportAnswer(Record):
    """One participant's answer to an export request: (artifact, size, SHA-256) of each file received, or a refusal."""

    files: tuple[tuple[str, int, bytes], ...] = ()
    refusal: str = ""
