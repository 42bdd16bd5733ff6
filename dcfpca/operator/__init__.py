"""The operator's client: connection settings, calls with deadlines, downloads, exports, and status errors."""

from dcfpca.wire import require_tls_1_3

require_tls_1_3()
