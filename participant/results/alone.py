"""The result of a site whose run has failed its members: a fit of the site's own columns, by the same method."""

from __future__ import annotations

from collections.abc import Callable

from dcfpca.methods import method_of
from dcfpca.rpca.method import Consensus
from dcfpca.rpca.refinement.closing_plan import VERDICT
from dcfpca.rpca.stage import Site
from dcfpca.rpca.stage_list import Method
from dcfpca.spec import RunSpec
from participant.results.scoring_model import ScoringModel

NOTHING_LEAVES = {"min_cell": 1, "min_carriers": 1, "missing_features": "refuse"}
"""What a spec demands for the sake of other sites. A feature that this one lacks is unobserved."""


def fails_its_sites(judge: ScoringModel | None) -> bool:
    """Whether most sites of the run have said that its model fails them."""
    return judge is not None and bool(judge.plan.verdict[VERDICT.index("failing")] > 0.0)


def fit_alone(spec: RunSpec, site_of: Callable[[Method], Site]) -> tuple[Method, Site, Consensus]:
    """A run of the spec by one site, to its end; raises what `Method.advance` does."""
    from dcfpca.rpca.simulate import exchange  # noqa: PLC0415  loads scipy.sparse, which a daemon need not wait for

    method = method_of(spec.model_copy(update=NOTHING_LEAVES))
    site, consensus = site_of(method), method.begin()
    while consensus.outcome is None:
        consensus = method.advance(consensus, exchange(method, consensus, [site]))
    return method, site, consensus
