"""What differential privacy means, in sentences for people who decide about data. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dcfpca.errors import BadInput
from dcfpca.privacy.zcdp import rho_of


def meaning(epsilon: float, delta: float, unit: str = "column") -> str:
    """What (ε, δ) promises to one person, or whoever one column is about."""
    whom = "any one person" if unit == "person" else "whoever any one column is about"
    factor = math.exp(epsilon)
    times = f"{factor:.3g}" if factor < 1e6 else f"{factor:.0e}"
    return (
        f"This run has differential privacy with ε = {epsilon:g} and δ = {delta:g}: whatever anybody concludes from"
        f" what it showed the others, they could almost as well have concluded without the data of {whom}. The chance"
        f" of a conclusion changes by a factor of at most e^ε = {times}, apart from a further chance of about "
        f"{delta:g}."
    )


def conspiracy(conspirators: int) -> str:
    """Against whom the promise holds."""
    if conspirators == 0:
        return "It holds as long as no site tells the aggregator the noise that it added."
    if conspirators == 1:
        return "It holds also if one other site tells the aggregator the noise that it added."
    return f"It holds also if {conspirators} other sites tell the aggregator the noise that they added."


def run_line(privacy: Mapping[str, Any]) -> str:
    """What a run spends at every site, in one line, from its ε, δ, ρ and number of conspirators."""
    rho = "" if privacy.get("rho") is None else f" (ρ = {privacy['rho']:.3g})"
    spent = f"ε = {privacy['epsilon']:g} at δ = {privacy['delta']:g}{rho} at every site"
    return f"{spent}, c = {privacy['conspirators']} conspirators tolerated"


def spec_document(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """ε, δ, c and ρ of a spec's keys; None where it asks for no privacy. ρ is None where the accountant is missing."""
    if not (stated := spec.get("privacy")):
        return None
    try:
        rho = rho_of(stated["epsilon"], stated["delta"])
    except BadInput:
        rho = None
    return {key: stated[key] for key in ("epsilon", "delta", "conspirators")} | {"rho": rho}
