from dcfpca.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FetchRevocationListRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FetchRevocationListResponse(_message.Message):
    __slots__ = ("pem",)
    PEM_FIELD_NUMBER: _ClassVar[int]
    pem: bytes
    def __init__(self, pem: _Optional[bytes] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("protocol", "software", "capabilities", "rows", "features_sha256", "seen")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_SHA256_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    software: str
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    rows: int
    features_sha256: bytes
    seen: _containers.RepeatedCompositeFieldContainer[Seen]
    def __init__(self, protocol: _Optional[int] = ..., software: _Optional[str] = ..., capabilities: _Optional[_Iterable[str]] = ..., rows: _Optional[int] = ..., features_sha256: _Optional[bytes] = ..., seen: _Optional[_Iterable[_Union[Seen, _Mapping]]] = ...) -> None: ...

class Seen(_message.Message):
    __slots__ = ("ref", "consensus_sha256", "ticket", "opened", "memory")
    REF_FIELD_NUMBER: _ClassVar[int]
    CONSENSUS_SHA256_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.RoundRef
    consensus_sha256: bytes
    ticket: bytes
    opened: RoundOpened
    memory: bytes
    def __init__(self, ref: _Optional[_Union[_types_pb2.RoundRef, _Mapping]] = ..., consensus_sha256: _Optional[bytes] = ..., ticket: _Optional[bytes] = ..., opened: _Optional[_Union[RoundOpened, _Mapping]] = ..., memory: _Optional[bytes] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("run_id", "key", "deadline_ms", "run_proposed", "round_opened", "run_finished", "export_wanted", "standby", "run_key_wanted", "roster_closed", "group_shares_relayed")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    RUN_PROPOSED_FIELD_NUMBER: _ClassVar[int]
    ROUND_OPENED_FIELD_NUMBER: _ClassVar[int]
    RUN_FINISHED_FIELD_NUMBER: _ClassVar[int]
    EXPORT_WANTED_FIELD_NUMBER: _ClassVar[int]
    STANDBY_FIELD_NUMBER: _ClassVar[int]
    RUN_KEY_WANTED_FIELD_NUMBER: _ClassVar[int]
    ROSTER_CLOSED_FIELD_NUMBER: _ClassVar[int]
    GROUP_SHARES_RELAYED_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    key: str
    deadline_ms: int
    run_proposed: RunProposed
    round_opened: RoundOpened
    run_finished: RunFinished
    export_wanted: ExportWanted
    standby: Standby
    run_key_wanted: RunKeyWanted
    roster_closed: RosterClosed
    group_shares_relayed: GroupSharesRelayed
    def __init__(self, run_id: _Optional[str] = ..., key: _Optional[str] = ..., deadline_ms: _Optional[int] = ..., run_proposed: _Optional[_Union[RunProposed, _Mapping]] = ..., round_opened: _Optional[_Union[RoundOpened, _Mapping]] = ..., run_finished: _Optional[_Union[RunFinished, _Mapping]] = ..., export_wanted: _Optional[_Union[ExportWanted, _Mapping]] = ..., standby: _Optional[_Union[Standby, _Mapping]] = ..., run_key_wanted: _Optional[_Union[RunKeyWanted, _Mapping]] = ..., roster_closed: _Optional[_Union[RosterClosed, _Mapping]] = ..., group_shares_relayed: _Optional[_Union[GroupSharesRelayed, _Mapping]] = ...) -> None: ...

class RunProposed(_message.Message):
    __slots__ = ("spec", "spec_sha256")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    SPEC_SHA256_FIELD_NUMBER: _ClassVar[int]
    spec: bytes
    spec_sha256: bytes
    def __init__(self, spec: _Optional[bytes] = ..., spec_sha256: _Optional[bytes] = ...) -> None: ...

class RoundOpened(_message.Message):
    __slots__ = ("ref", "spec_sha256", "cohort", "consensus", "inline_consensus", "ticket", "previous_sum", "exponents", "misfits", "memory_sha256", "stage", "sum", "inline_sum")
    REF_FIELD_NUMBER: _ClassVar[int]
    SPEC_SHA256_FIELD_NUMBER: _ClassVar[int]
    COHORT_FIELD_NUMBER: _ClassVar[int]
    CONSENSUS_FIELD_NUMBER: _ClassVar[int]
    INLINE_CONSENSUS_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_SUM_FIELD_NUMBER: _ClassVar[int]
    EXPONENTS_FIELD_NUMBER: _ClassVar[int]
    MISFITS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_SHA256_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    INLINE_SUM_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.RoundRef
    spec_sha256: bytes
    cohort: _containers.RepeatedScalarFieldContainer[str]
    consensus: _types_pb2.TensorHeader
    inline_consensus: bytes
    ticket: bytes
    previous_sum: bytes
    exponents: _containers.RepeatedScalarFieldContainer[int]
    misfits: _containers.RepeatedCompositeFieldContainer[Misfit]
    memory_sha256: bytes
    stage: str
    sum: SumHeader
    inline_sum: bytes
    def __init__(self, ref: _Optional[_Union[_types_pb2.RoundRef, _Mapping]] = ..., spec_sha256: _Optional[bytes] = ..., cohort: _Optional[_Iterable[str]] = ..., consensus: _Optional[_Union[_types_pb2.TensorHeader, _Mapping]] = ..., inline_consensus: _Optional[bytes] = ..., ticket: _Optional[bytes] = ..., previous_sum: _Optional[bytes] = ..., exponents: _Optional[_Iterable[int]] = ..., misfits: _Optional[_Iterable[_Union[Misfit, _Mapping]]] = ..., memory_sha256: _Optional[bytes] = ..., stage: _Optional[str] = ..., sum: _Optional[_Union[SumHeader, _Mapping]] = ..., inline_sum: _Optional[bytes] = ...) -> None: ...

class RunKeyWanted(_message.Message):
    __slots__ = ("spec_sha256", "cohort")
    SPEC_SHA256_FIELD_NUMBER: _ClassVar[int]
    COHORT_FIELD_NUMBER: _ClassVar[int]
    spec_sha256: bytes
    cohort: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, spec_sha256: _Optional[bytes] = ..., cohort: _Optional[_Iterable[str]] = ...) -> None: ...

class RunKey(_message.Message):
    __slots__ = ("participant", "key", "commitment", "binding", "certificate", "signature", "kem_key")
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    COMMITMENT_FIELD_NUMBER: _ClassVar[int]
    BINDING_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    KEM_KEY_FIELD_NUMBER: _ClassVar[int]
    participant: str
    key: bytes
    commitment: bytes
    binding: bytes
    certificate: bytes
    signature: bytes
    kem_key: bytes
    def __init__(self, participant: _Optional[str] = ..., key: _Optional[bytes] = ..., commitment: _Optional[bytes] = ..., binding: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., kem_key: _Optional[bytes] = ...) -> None: ...

class RosterClosed(_message.Message):
    __slots__ = ("keys",)
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedCompositeFieldContainer[RunKey]
    def __init__(self, keys: _Optional[_Iterable[_Union[RunKey, _Mapping]]] = ...) -> None: ...

class SealedGroupShare(_message.Message):
    __slots__ = ("sender", "recipient", "ciphertext", "signature")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECIPIENT_FIELD_NUMBER: _ClassVar[int]
    CIPHERTEXT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    sender: str
    recipient: str
    ciphertext: bytes
    signature: bytes
    def __init__(self, sender: _Optional[str] = ..., recipient: _Optional[str] = ..., ciphertext: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class GroupSharesRelayed(_message.Message):
    __slots__ = ("incoming", "keys")
    INCOMING_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    incoming: _containers.RepeatedCompositeFieldContainer[SealedGroupShare]
    keys: _containers.RepeatedCompositeFieldContainer[RunKey]
    def __init__(self, incoming: _Optional[_Iterable[_Union[SealedGroupShare, _Mapping]]] = ..., keys: _Optional[_Iterable[_Union[RunKey, _Mapping]]] = ...) -> None: ...

class Misfit(_message.Message):
    __slots__ = ("participant", "context", "certificate", "signature")
    PARTICIPANT_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    participant: str
    context: bytes
    certificate: bytes
    signature: bytes
    def __init__(self, participant: _Optional[str] = ..., context: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class AdvertiseRunKeyRequest(_message.Message):
    __slots__ = ("run_id", "key")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    key: RunKey
    def __init__(self, run_id: _Optional[str] = ..., key: _Optional[_Union[RunKey, _Mapping]] = ...) -> None: ...

class ShareGroupSecretRequest(_message.Message):
    __slots__ = ("run_id", "shares")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    shares: _containers.RepeatedCompositeFieldContainer[SealedGroupShare]
    def __init__(self, run_id: _Optional[str] = ..., shares: _Optional[_Iterable[_Union[SealedGroupShare, _Mapping]]] = ...) -> None: ...

class ReportMisfitRequest(_message.Message):
    __slots__ = ("ref", "misfit")
    REF_FIELD_NUMBER: _ClassVar[int]
    MISFIT_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.RoundRef
    misfit: Misfit
    def __init__(self, ref: _Optional[_Union[_types_pb2.RoundRef, _Mapping]] = ..., misfit: _Optional[_Union[Misfit, _Mapping]] = ...) -> None: ...

class FetchSumRequest(_message.Message):
    __slots__ = ("run_id", "round", "offset")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    round: int
    offset: int
    def __init__(self, run_id: _Optional[str] = ..., round: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class SumHeader(_message.Message):
    __slots__ = ("tensor", "tag", "opened", "memory", "contributors")
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTORS_FIELD_NUMBER: _ClassVar[int]
    tensor: _types_pb2.TensorHeader
    tag: int
    opened: RoundOpened
    memory: bytes
    contributors: int
    def __init__(self, tensor: _Optional[_Union[_types_pb2.TensorHeader, _Mapping]] = ..., tag: _Optional[int] = ..., opened: _Optional[_Union[RoundOpened, _Mapping]] = ..., memory: _Optional[bytes] = ..., contributors: _Optional[int] = ...) -> None: ...

class SumPart(_message.Message):
    __slots__ = ("header", "chunk")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    header: SumHeader
    chunk: _types_pb2.Chunk
    def __init__(self, header: _Optional[_Union[SumHeader, _Mapping]] = ..., chunk: _Optional[_Union[_types_pb2.Chunk, _Mapping]] = ...) -> None: ...

class ComplainRequest(_message.Message):
    __slots__ = ("run_id", "accused", "error", "sentence", "certificate", "signature")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ACCUSED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    accused: str
    error: str
    sentence: str
    certificate: bytes
    signature: bytes
    def __init__(self, run_id: _Optional[str] = ..., accused: _Optional[str] = ..., error: _Optional[str] = ..., sentence: _Optional[str] = ..., certificate: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class RunFinished(_message.Message):
    __slots__ = ("status", "reason", "round", "spec_sha256", "consensus", "stage")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    SPEC_SHA256_FIELD_NUMBER: _ClassVar[int]
    CONSENSUS_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    status: str
    reason: str
    round: int
    spec_sha256: bytes
    consensus: _types_pb2.TensorHeader
    stage: str
    def __init__(self, status: _Optional[str] = ..., reason: _Optional[str] = ..., round: _Optional[int] = ..., spec_sha256: _Optional[bytes] = ..., consensus: _Optional[_Union[_types_pb2.TensorHeader, _Mapping]] = ..., stage: _Optional[str] = ...) -> None: ...

class ExportWanted(_message.Message):
    __slots__ = ("export_id",)
    EXPORT_ID_FIELD_NUMBER: _ClassVar[int]
    export_id: str
    def __init__(self, export_id: _Optional[str] = ...) -> None: ...

class Standby(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class RespondRequest(_message.Message):
    __slots__ = ("run_id", "spec_sha256", "accept", "reasons", "signature", "private")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_SHA256_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    PRIVATE_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    spec_sha256: bytes
    accept: bool
    reasons: _containers.RepeatedScalarFieldContainer[str]
    signature: bytes
    private: bool
    def __init__(self, run_id: _Optional[str] = ..., spec_sha256: _Optional[bytes] = ..., accept: _Optional[bool] = ..., reasons: _Optional[_Iterable[str]] = ..., signature: _Optional[bytes] = ..., private: _Optional[bool] = ...) -> None: ...

class FetchConsensusRequest(_message.Message):
    __slots__ = ("run_id", "round", "final", "offset")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    round: int
    final: bool
    offset: int
    def __init__(self, run_id: _Optional[str] = ..., round: _Optional[int] = ..., final: _Optional[bool] = ..., offset: _Optional[int] = ...) -> None: ...

class UpdateHeader(_message.Message):
    __slots__ = ("ref", "tensor", "ticket", "tag", "context")
    REF_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.RoundRef
    tensor: _types_pb2.TensorHeader
    ticket: bytes
    tag: int
    context: bytes
    def __init__(self, ref: _Optional[_Union[_types_pb2.RoundRef, _Mapping]] = ..., tensor: _Optional[_Union[_types_pb2.TensorHeader, _Mapping]] = ..., ticket: _Optional[bytes] = ..., tag: _Optional[int] = ..., context: _Optional[bytes] = ...) -> None: ...

class UpdatePart(_message.Message):
    __slots__ = ("header", "chunk")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    header: UpdateHeader
    chunk: _types_pb2.Chunk
    def __init__(self, header: _Optional[_Union[UpdateHeader, _Mapping]] = ..., chunk: _Optional[_Union[_types_pb2.Chunk, _Mapping]] = ...) -> None: ...

class WholeUpdate(_message.Message):
    __slots__ = ("header", "data")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    header: UpdateHeader
    data: bytes
    def __init__(self, header: _Optional[_Union[UpdateHeader, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class ResumeUploadResponse(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class ExportHeader(_message.Message):
    __slots__ = ("run_id", "export_id", "artifact", "size", "sha256")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    EXPORT_ID_FIELD_NUMBER: _ClassVar[int]
    ARTIFACT_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    export_id: str
    artifact: str
    size: int
    sha256: bytes
    def __init__(self, run_id: _Optional[str] = ..., export_id: _Optional[str] = ..., artifact: _Optional[str] = ..., size: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class ExportRefusal(_message.Message):
    __slots__ = ("run_id", "export_id", "reason")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    EXPORT_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    export_id: str
    reason: str
    def __init__(self, run_id: _Optional[str] = ..., export_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ExportPart(_message.Message):
    __slots__ = ("header", "chunk", "refusal")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    header: ExportHeader
    chunk: _types_pb2.Chunk
    refusal: ExportRefusal
    def __init__(self, header: _Optional[_Union[ExportHeader, _Mapping]] = ..., chunk: _Optional[_Union[_types_pb2.Chunk, _Mapping]] = ..., refusal: _Optional[_Union[ExportRefusal, _Mapping]] = ...) -> None: ...

class ReportProgressRequest(_message.Message):
    __slots__ = ("ref", "percent")
    REF_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    ref: _types_pb2.RoundRef
    percent: int
    def __init__(self, ref: _Optional[_Union[_types_pb2.RoundRef, _Mapping]] = ..., percent: _Optional[int] = ...) -> None: ...
