"""Measurements that commands and benchmarks share. No imports but those that must come before gRPC."""

from dcfpca.tls_version import require_tls_1_3

require_tls_1_3()
