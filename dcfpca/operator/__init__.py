"""The operator's client: connection settings, calls with deadlines, downloads, and statuses as sentences."""

from dcfpca.tls_version import require_tls_1_3

require_tls_1_3()
