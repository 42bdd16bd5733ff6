"""The role-based access table: which role may call which method. A test compares it with the service descriptors.

The aggregator enforces it; the command reads it, to say at once what a certificate cannot be used for.
"""

from __future__ import annotations

from dcfpca.identity import Role

_ROUND = "/dcfpca.v1.RoundService/"
_ADMIN = "/dcfpca.v1.AdminService/"
_PARTICIPANT = frozenset({Role.PARTICIPANT})
_OPERATOR = frozenset({Role.OPERATOR})
_ANYONE = frozenset(Role)

ALLOWED_ROLES: dict[str, frozenset[Role]] = {
    _ROUND + "Subscribe": _PARTICIPANT,
    _ROUND + "Respond": _PARTICIPANT,
    _ROUND + "FetchConsensus": _PARTICIPANT,
    _ROUND + "AdvertiseRunKey": _PARTICIPANT,
    _ROUND + "ShareGroupSecret": _PARTICIPANT,
    _ROUND + "ReportMisfit": _PARTICIPANT,
    _ROUND + "FetchSum": _PARTICIPANT,
    _ROUND + "Complain": _PARTICIPANT,
    _ROUND + "SubmitUpdate": _PARTICIPANT,
    _ROUND + "SubmitWhole": _PARTICIPANT,
    _ROUND + "ResumeUpload": _PARTICIPANT,
    _ROUND + "ExportReconstruction": _PARTICIPANT,
    _ROUND + "FetchRevocationList": _PARTICIPANT,
    _ROUND + "ReportProgress": _PARTICIPANT,
    _ADMIN + "ProposeRun": _OPERATOR,
    _ADMIN + "ListRuns": _OPERATOR,
    _ADMIN + "GetRun": _OPERATOR,
    _ADMIN + "WatchRun": _OPERATOR,
    _ADMIN + "AbortRun": _OPERATOR,
    _ADMIN + "ResumeRun": _OPERATOR,
    _ADMIN + "FinishRun": _OPERATOR,
    _ADMIN + "DeleteRun": _OPERATOR,
    _ADMIN + "ListParticipants": _OPERATOR,
    _ADMIN + "FetchModel": _OPERATOR,
    _ADMIN + "RequestExport": _OPERATOR,
    _ADMIN + "GetExport": _OPERATOR,
    _ADMIN + "FetchReconstruction": _OPERATOR,
    _ADMIN + "FetchAuditLog": frozenset({Role.OPERATOR, Role.PARTICIPANT}),
    _ADMIN + "RevokeParticipant": _OPERATOR,
    _ADMIN + "RestoreParticipant": _OPERATOR,
    "/grpc.health.v1.Health/Check": _ANYONE,
    "/grpc.health.v1.Health/List": _ANYONE,
    "/grpc.health.v1.Health/Watch": _ANYONE,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": _ANYONE,
}


def may_call(role: Role, method: str) -> bool:
    """True if this role may call this method; a method that is not in the table is denied to every role."""
    return role in ALLOWED_ROLES.get(method, frozenset())
