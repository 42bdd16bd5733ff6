from dcfpca.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProposeRunRequest(_message.Message):
    __slots__ = ("spec", "request_id")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    spec: bytes
    request_id: str
    def __init__(self, spec: _Optional[bytes] = ..., request_id: _Optional[str] = ...) -> None: ...

class ListRunsRequest(_message.Message):
    __slots__ = ("limit",)
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    limit: int
    def __init__(self, limit: _Optional[int] = ...) -> None: ...

class ListRunsResponse(_message.Message):
    __slots__ = ("runs",)
    RUNS_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[RunView]
    def __init__(self, runs: _Optional[_Iterable[_Union[RunView, _Mapping]]] = ...) -> None: ...

class GetRunRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class WatchRunRequest(_message.Message):
    __slots__ = ("run_id", "after_round")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_ROUND_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    after_round: int
    def __init__(self, run_id: _Optional[str] = ..., after_round: _Optional[int] = ...) -> None: ...

class AbortRunRequest(_message.Message):
    __slots__ = ("run_id", "reason")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    reason: str
    def __init__(self, run_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ResumeRunRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class FinishRunRequest(_message.Message):
    __slots__ = ("run_id", "reason")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    reason: str
    def __init__(self, run_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class DeleteRunRequest(_message.Message):
    __slots__ = ("run_id", "reason")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    reason: str
    def __init__(self, run_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class DeleteRunResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("participant", "what", "reasons")
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    participant: str
    what: str
    reasons: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, participant: _Optional[str] = ..., what: _Optional[str] = ..., reasons: _Optional[_Iterable[str]] = ...) -> None: ...

class RoundView(_message.Message):
    __slots__ = ("round", "attempt", "seconds", "change", "rank", "noise", "threshold", "bytes_received", "bytes_sent", "survivors", "dropouts", "singular_values", "stage", "awaited_seconds")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    NOISE_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    BYTES_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    BYTES_SENT_FIELD_NUMBER: _ClassVar[int]
    SURVIVORS_FIELD_NUMBER: _ClassVar[int]
    DROPOUTS_FIELD_NUMBER: _ClassVar[int]
    SINGULAR_VALUES_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    AWAITED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    round: int
    attempt: int
    seconds: float
    change: float
    rank: int
    noise: float
    threshold: float
    bytes_received: int
    bytes_sent: int
    survivors: _containers.RepeatedScalarFieldContainer[str]
    dropouts: _containers.RepeatedScalarFieldContainer[str]
    singular_values: _containers.RepeatedScalarFieldContainer[float]
    stage: str
    awaited_seconds: float
    def __init__(self, round: _Optional[int] = ..., attempt: _Optional[int] = ..., seconds: _Optional[float] = ..., change: _Optional[float] = ..., rank: _Optional[int] = ..., noise: _Optional[float] = ..., threshold: _Optional[float] = ..., bytes_received: _Optional[int] = ..., bytes_sent: _Optional[int] = ..., survivors: _Optional[_Iterable[str]] = ..., dropouts: _Optional[_Iterable[str]] = ..., singular_values: _Optional[_Iterable[float]] = ..., stage: _Optional[str] = ..., awaited_seconds: _Optional[float] = ...) -> None: ...

class EnrolledView(_message.Message):
    __slots__ = ("participant", "private", "signature", "fingerprint")
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    PRIVATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    participant: str
    private: bool
    signature: bytes
    fingerprint: str
    def __init__(self, participant: _Optional[str] = ..., private: _Optional[bool] = ..., signature: _Optional[bytes] = ..., fingerprint: _Optional[str] = ...) -> None: ...

class RunView(_message.Message):
    __slots__ = ("run_id", "status", "reason", "spec", "spec_sha256", "created_ms", "ended_ms", "round", "attempt", "phase", "enrolled", "refusals", "awaited", "rounds", "percent", "operator", "waiting", "complaints", "verdict", "rank_curve", "round_limit", "deadline_ms", "at_deadline", "rounds_held")
    class PercentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    SPEC_SHA256_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    ENROLLED_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    AWAITED_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    COMPLAINTS_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    RANK_CURVE_FIELD_NUMBER: _ClassVar[int]
    ROUND_LIMIT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    AT_DEADLINE_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_HELD_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    status: str
    reason: str
    spec: bytes
    spec_sha256: bytes
    created_ms: int
    ended_ms: int
    round: int
    attempt: int
    phase: str
    enrolled: _containers.RepeatedCompositeFieldContainer[EnrolledView]
    refusals: _containers.RepeatedCompositeFieldContainer[Refusal]
    awaited: _containers.RepeatedScalarFieldContainer[str]
    rounds: _containers.RepeatedCompositeFieldContainer[RoundView]
    percent: _containers.ScalarMap[str, int]
    operator: str
    waiting: _containers.RepeatedCompositeFieldContainer[WaitingView]
    complaints: _containers.RepeatedCompositeFieldContainer[ComplaintView]
    verdict: VerdictView
    rank_curve: _containers.RepeatedCompositeFieldContainer[RankErrorView]
    round_limit: int
    deadline_ms: int
    at_deadline: str
    rounds_held: int
    def __init__(self, run_id: _Optional[str] = ..., status: _Optional[str] = ..., reason: _Optional[str] = ..., spec: _Optional[bytes] = ..., spec_sha256: _Optional[bytes] = ..., created_ms: _Optional[int] = ..., ended_ms: _Optional[int] = ..., round: _Optional[int] = ..., attempt: _Optional[int] = ..., phase: _Optional[str] = ..., enrolled: _Optional[_Iterable[_Union[EnrolledView, _Mapping]]] = ..., refusals: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ..., awaited: _Optional[_Iterable[str]] = ..., rounds: _Optional[_Iterable[_Union[RoundView, _Mapping]]] = ..., percent: _Optional[_Mapping[str, int]] = ..., operator: _Optional[str] = ..., waiting: _Optional[_Iterable[_Union[WaitingView, _Mapping]]] = ..., complaints: _Optional[_Iterable[_Union[ComplaintView, _Mapping]]] = ..., verdict: _Optional[_Union[VerdictView, _Mapping]] = ..., rank_curve: _Optional[_Iterable[_Union[RankErrorView, _Mapping]]] = ..., round_limit: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., at_deadline: _Optional[str] = ..., rounds_held: _Optional[int] = ...) -> None: ...

class VerdictView(_message.Message):
    __slots__ = ("sound", "sentence", "reasons", "advice", "notes")
    SOUND_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    ADVICE_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    sound: bool
    sentence: str
    reasons: _containers.RepeatedScalarFieldContainer[str]
    advice: str
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, sound: _Optional[bool] = ..., sentence: _Optional[str] = ..., reasons: _Optional[_Iterable[str]] = ..., advice: _Optional[str] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class RankErrorView(_message.Message):
    __slots__ = ("rank", "error", "standard_error")
    RANK_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    STANDARD_ERROR_FIELD_NUMBER: _ClassVar[int]
    rank: int
    error: float
    standard_error: float
    def __init__(self, rank: _Optional[int] = ..., error: _Optional[float] = ..., standard_error: _Optional[float] = ...) -> None: ...

class WaitingView(_message.Message):
    __slots__ = ("participant", "since_ms", "connected", "said")
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    SAID_FIELD_NUMBER: _ClassVar[int]
    participant: str
    since_ms: int
    connected: bool
    said: str
    def __init__(self, participant: _Optional[str] = ..., since_ms: _Optional[int] = ..., connected: _Optional[bool] = ..., said: _Optional[str] = ...) -> None: ...

class ComplaintView(_message.Message):
    __slots__ = ("participant", "accused", "error", "sentence", "at_ms")
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    ACCUSED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    participant: str
    accused: str
    error: str
    sentence: str
    at_ms: int
    def __init__(self, participant: _Optional[str] = ..., accused: _Optional[str] = ..., error: _Optional[str] = ..., sentence: _Optional[str] = ..., at_ms: _Optional[int] = ...) -> None: ...

class ListParticipantsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListParticipantsResponse(_message.Message):
    __slots__ = ("participants",)
    PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
    participants: _containers.RepeatedCompositeFieldContainer[ParticipantView]
    def __init__(self, participants: _Optional[_Iterable[_Union[ParticipantView, _Mapping]]] = ...) -> None: ...

class ParticipantView(_message.Message):
    __slots__ = ("name", "state", "software", "last_seen_ms", "certificate_days", "fingerprint", "rows", "runs", "asks")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_MS_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_DAYS_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    ASKS_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: str
    software: str
    last_seen_ms: int
    certificate_days: int
    fingerprint: str
    rows: int
    runs: _containers.RepeatedScalarFieldContainer[str]
    asks: bool
    def __init__(self, name: _Optional[str] = ..., state: _Optional[str] = ..., software: _Optional[str] = ..., last_seen_ms: _Optional[int] = ..., certificate_days: _Optional[int] = ..., fingerprint: _Optional[str] = ..., rows: _Optional[int] = ..., runs: _Optional[_Iterable[str]] = ..., asks: _Optional[bool] = ...) -> None: ...

class FetchModelRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class RequestExportRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class GetExportRequest(_message.Message):
    __slots__ = ("run_id", "wait_ms")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    wait_ms: int
    def __init__(self, run_id: _Optional[str] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class ExportedFile(_message.Message):
    __slots__ = ("participant", "artifact", "size", "sha256")
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    ARTIFACT_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    participant: str
    artifact: str
    size: int
    sha256: bytes
    def __init__(self, participant: _Optional[str] = ..., artifact: _Optional[str] = ..., size: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class ExportView(_message.Message):
    __slots__ = ("run_id", "export_id", "files", "refusals", "awaited")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    EXPORT_ID_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    AWAITED_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    export_id: str
    files: _containers.RepeatedCompositeFieldContainer[ExportedFile]
    refusals: _containers.RepeatedCompositeFieldContainer[Refusal]
    awaited: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, run_id: _Optional[str] = ..., export_id: _Optional[str] = ..., files: _Optional[_Iterable[_Union[ExportedFile, _Mapping]]] = ..., refusals: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ..., awaited: _Optional[_Iterable[str]] = ...) -> None: ...

class FetchReconstructionRequest(_message.Message):
    __slots__ = ("run_id", "participant", "artifact", "offset")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    ARTIFACT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    participant: str
    artifact: str
    offset: int
    def __init__(self, run_id: _Optional[str] = ..., participant: _Optional[str] = ..., artifact: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class FetchAuditLogRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class AuditEntry(_message.Message):
    __slots__ = ("sequence", "at_ms", "actor", "action", "run_id", "detail", "previous", "hash", "signature", "certificate")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    at_ms: int
    actor: str
    action: str
    run_id: str
    detail: str
    previous: bytes
    hash: bytes
    signature: bytes
    certificate: bytes
    def __init__(self, sequence: _Optional[int] = ..., at_ms: _Optional[int] = ..., actor: _Optional[str] = ..., action: _Optional[str] = ..., run_id: _Optional[str] = ..., detail: _Optional[str] = ..., previous: _Optional[bytes] = ..., hash: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., certificate: _Optional[bytes] = ...) -> None: ...

class RevokeParticipantRequest(_message.Message):
    __slots__ = ("name", "fingerprint", "reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    fingerprint: str
    reason: str
    def __init__(self, name: _Optional[str] = ..., fingerprint: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class RevokeParticipantResponse(_message.Message):
    __slots__ = ("fingerprints", "streams_cut")
    FINGERPRINTS_FIELD_NUMBER: _ClassVar[int]
    STREAMS_CUT_FIELD_NUMBER: _ClassVar[int]
    fingerprints: _containers.RepeatedScalarFieldContainer[str]
    streams_cut: int
    def __init__(self, fingerprints: _Optional[_Iterable[str]] = ..., streams_cut: _Optional[int] = ...) -> None: ...

class RestoreParticipantRequest(_message.Message):
    __slots__ = ("name", "reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    reason: str
    def __init__(self, name: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class RestoreParticipantResponse(_message.Message):
    __slots__ = ("marks",)
    MARKS_FIELD_NUMBER: _ClassVar[int]
    marks: int
    def __init__(self, marks: _Optional[int] = ...) -> None: ...
