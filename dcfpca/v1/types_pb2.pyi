from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Dtype(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DTYPE_UNSPECIFIED: _ClassVar[Dtype]
    DTYPE_FLOAT64: _ClassVar[Dtype]
    DTYPE_UINT64: _ClassVar[Dtype]
    DTYPE_UINT32: _ClassVar[Dtype]

class Fate(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FATE_UNSPECIFIED: _ClassVar[Fate]
    FATE_ACCEPTED: _ClassVar[Fate]
    FATE_DUPLICATE: _ClassVar[Fate]
    FATE_REJECTED: _ClassVar[Fate]
    FATE_LATE: _ClassVar[Fate]
DTYPE_UNSPECIFIED: Dtype
DTYPE_FLOAT64: Dtype
DTYPE_UINT64: Dtype
DTYPE_UINT32: Dtype
FATE_UNSPECIFIED: Fate
FATE_ACCEPTED: Fate
FATE_DUPLICATE: Fate
FATE_REJECTED: Fate
FATE_LATE: Fate

class RoundRef(_message.Message):
    __slots__ = ("run_id", "round", "attempt")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    round: int
    attempt: int
    def __init__(self, run_id: _Optional[str] = ..., round: _Optional[int] = ..., attempt: _Optional[int] = ...) -> None: ...

class TensorHeader(_message.Message):
    __slots__ = ("dtype", "rows", "columns", "scalars", "sha256")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    SCALARS_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    dtype: Dtype
    rows: int
    columns: int
    scalars: int
    sha256: bytes
    def __init__(self, dtype: _Optional[_Union[Dtype, str]] = ..., rows: _Optional[int] = ..., columns: _Optional[int] = ..., scalars: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("offset", "data")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class TensorPart(_message.Message):
    __slots__ = ("header", "chunk")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    header: TensorHeader
    chunk: Chunk
    def __init__(self, header: _Optional[_Union[TensorHeader, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("fate", "reason")
    FATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    fate: Fate
    reason: str
    def __init__(self, fate: _Optional[_Union[Fate, str]] = ..., reason: _Optional[str] = ...) -> None: ...
