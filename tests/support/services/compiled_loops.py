"""The compiled loops that the daemons of tests need, loaded or compiled in one process for all."""

from __future__ import annotations

from dcfpca.rpca.kernels.compiled_loops import load_loops
from dcfpca.rpca.kernels.refinement_loops import load_refinement_loops
from dcfpca.rpca.refinement.hidden_entries import load_hidden_entry_loops

# The widths of the runs that tests have, and the bound that a site has ready for runs without a rank.
WIDTHS = (1, 2, 3, 4, 10)


def load_compiled_loops() -> None:
    """Have them in this process and in numba's cache, once for all."""
    load_loops(WIDTHS)
    load_hidden_entry_loops()
    load_refinement_loops()
