"""Measurements of the services and of the solver; each module is a command."""

from dcfpca.wire import require_tls_1_3

require_tls_1_3()
