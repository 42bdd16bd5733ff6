"""The aggregator service."""

from dcfpca.wire import require_tls_1_3

require_tls_1_3()
