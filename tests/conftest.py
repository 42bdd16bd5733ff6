"""Loaded before any test: gRPC must not be imported before TLS 1.3 is required of it."""

from dcfpca.tls_version import require_tls_1_3

require_tls_1_3()
