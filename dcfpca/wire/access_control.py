"""Which role may call which method: RoundService is for participants, AdminService for operators.

The aggregator enforces it. A test states the same independently, method by method.
"""

from __future__ import annotations

from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from dcfpca.identity import Role
from dcfpca.v1 import admin_pb2, rounds_pb2

_SERVICES = {
    rounds_pb2.DESCRIPTOR.services_by_name["RoundService"]: {Role.PARTICIPANT},
    admin_pb2.DESCRIPTOR.services_by_name["AdminService"]: {Role.OPERATOR},
    health_pb2.DESCRIPTOR.services_by_name["Health"]: set(Role),
    reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"]: set(Role),
}
ALLOWED_ROLES = {
    f"/{service.full_name}/{method.name}": frozenset(roles)
    for service, roles in _SERVICES.items()
    for method in service.methods
}
# A participant checks in it what was done in its name; see `aggregator.store.audit` for what it is shown.
ALLOWED_ROLES["/dcfpca.v1.AdminService/FetchAuditLog"] |= {Role.PARTICIPANT}
