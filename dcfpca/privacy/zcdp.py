"""Accounting in zero-concentrated differential privacy (zCDP).

A Gaussian release of L2 sensitivity Δ and deviation σ is ρ-zCDP with ρ = Δ²/2σ², and ρ adds up over releases, also
where later ones depend on earlier ones. ε at a given δ is converted by Google's dp-accounting.
"""

from __future__ import annotations

import math
from functools import lru_cache
from importlib.util import find_spec

from dcfpca.errors import BadInput

_BISECTIONS = 60
_LEAST_RHO, _MOST_RHO = 1e-12, 1e3
ORDERS = tuple(1.0 + 10.0 ** (k / 60.0) for k in range(-120, 421))
"""Rényi orders that are tried; ε is an upper bound for any choice, and within 1e-3 of the best with these."""


def accountant_is_installed() -> bool:
    """Whether ε can be told here; the library is an extra."""
    return find_spec("dp_accounting") is not None


@lru_cache(maxsize=4096)
def epsilon_of(rho: float, delta: float) -> float:
    """The ε for which ρ-zCDP gives (ε, δ)-differential privacy; 0 for ρ = 0."""
    if rho <= 0.0:
        return 0.0
    try:
        from dp_accounting import dp_event, rdp  # noqa: PLC0415  (slow to load, and an extra)
    except ImportError:
        raise BadInput(
            "differential privacy needs the accountant, which is not installed", "pip install 'dcfpca[privacy]'"
        ) from None
    accountant = rdp.RdpAccountant(ORDERS)
    accountant.compose(dp_event.ZCDpEvent(rho))
    return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=1024)
def rho_of(epsilon: float, delta: float) -> float:
    """The largest ρ, to a relative 1e-9, that gives no more than ε at δ."""
    low, high = _LEAST_RHO, _MOST_RHO
    for _ in range(_BISECTIONS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if epsilon_of(middle, delta) <= epsilon else (low, middle)
    return low
