"""The operator's client: connection settings, calls with deadlines, proposals, downloads and exports."""

from dcfpca.wire import require_tls_1_3

require_tls_1_3()
