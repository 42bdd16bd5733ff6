"""The participant daemon."""

from dcfpca.wire.tls_version import require_tls_1_3

require_tls_1_3()
