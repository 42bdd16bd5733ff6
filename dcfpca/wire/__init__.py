"""What both ends of a connection share: addresses, TLS, sizes, roles, and the messages with their checks.

`require_tls_1_3` allows TLS 1.3 and nothing older for every gRPC connection of this process. gRPC's Python interface
has no setting for the version. It has one for the cipher suites of TLS 1.2 and older, an environment variable that it
reads once, when it is imported. Its TLS library knows suites for pre-shared keys, and uses them only with a key that
nobody can give it from Python. With one of these as the only suite no handshake below TLS 1.3 succeeds; the suites of
TLS 1.3 itself are not affected.
"""

from __future__ import annotations

import os
import sys

from dcfpca.errors import BadInput

VARIABLE = "GRPC_SSL_CIPHER_SUITES"
UNUSABLE_SUITE = "ECDHE-PSK-CHACHA20-POLY1305"


def require_tls_1_3() -> None:
    """Called by each package that makes connections, before it imports gRPC; raises BadInput when that is too late."""
    if os.environ.get(VARIABLE) == UNUSABLE_SUITE:
        return
    if "grpc" in sys.modules:
        hint = f"import dcfpca's services before grpc, or set {VARIABLE}={UNUSABLE_SUITE}"
        raise BadInput("gRPC was loaded before TLS 1.3 could be required of it", hint)
    os.environ[VARIABLE] = UNUSABLE_SUITE
