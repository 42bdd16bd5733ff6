"""Loaded before any test: what must be set before NumPy and gRPC are imported."""

import os

from dcfpca.tls_version import require_tls_1_3

require_tls_1_3()

# The matrices of tests are small: a second BLAS thread only spins, in this process and in those that tests start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
