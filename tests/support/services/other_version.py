"""A service as if of another release: `python -m tests.support.services.other_version MODULE VERSION ARGUMENTS`."""

import runpy
import sys

import dcfpca.version

if __name__ == "__main__":
    module, dcfpca.version.__version__ = sys.argv[1:3]
    sys.argv[1:3] = []
    runpy.run_module(module, run_name="__main__", alter_sys=True)
