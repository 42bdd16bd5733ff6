"""Whole runs of every method over the secure sum, against the same run with sums in the clear."""

import numpy as np
import pytest

from dcfpca.rpca.gradient.method import GradientMethod
from dcfpca.rpca.method import Consensus, Method, TensorMessage, Total
from dcfpca.rpca.simulate import simulate
from dcfpca.rpca.subspace.method import SubspaceMethod
from dcfpca.rpca.synthetic import paper_problem
from tests.support.secagg import Attempt, context_of, site_names

SITES = 4


def secure_run(method: Method, matrices: list, precision: int) -> Consensus:
    sites = dict(zip(site_names(SITES), (method.site(own) for own in matrices), strict=True))
    consensus = method.begin()
    while consensus.outcome is None:
        layout = method.update_layout(consensus.round)
        vectors = {name: site.answer(consensus.round, consensus.broadcast).flat() for name, site in sites.items()}
        attempt = Attempt(context_of(SITES, round=consensus.round, precision=precision), vectors).run_to("reveal")
        opened = attempt.unmask()
        assert relative(opened, sum(vectors.values())) < (1e-14 if precision == 64 else 1e-6)
        total = Total(TensorMessage.unflatten(layout, opened), SITES)
        consensus = method.advance(consensus, total)
    return consensus


def relative(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


@pytest.mark.parametrize(
    ("kind", "precision", "tolerance"),
    [
        ("subspace", 64, 1e-10),
        ("gradient", 64, 1e-10),
        ("subspace", 32, 1e-5),
        ("gradient", 32, 1e-5),
    ],
)
def test_a_run_over_the_secure_sum_is_the_run_in_the_clear(kind: str, precision: int, tolerance: float) -> None:
    problem = paper_problem(60, 3, 0.05, SITES, seed=4)
    make = SubspaceMethod if kind == "subspace" else GradientMethod
    method = make(rows=60, width=3, rounds=40, tolerance=0.0)
    matrices = problem.sites()
    clear = simulate(method, matrices).consensus
    secure = secure_run(method, matrices, precision)
    assert secure.round == clear.round
    U, V = secure.broadcast.tensor, clear.broadcast.tensor
    assert relative(U @ np.linalg.pinv(U), V @ np.linalg.pinv(V)) < tolerance
