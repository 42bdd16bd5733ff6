"""Whole runs of every method over the secure sum, against the same run with sums in the clear."""

from dataclasses import replace

import numpy as np
import pytest

from dcfpca.rpca.gradient.stages import GradientSolver, gradient_method
from dcfpca.rpca.method import Consensus, TensorMessage, Total
from dcfpca.rpca.simulate import simulate
from dcfpca.rpca.stage_list import Method
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.solver import SubspaceSolver
from dcfpca.rpca.synthetic import paper_problem
from dcfpca.secagg.fixed_point import BlockLayout, block_layout, lifted, next_exponents
from dcfpca.secagg.messages import Misfit
from tests.support.runs.secagg import site_names
from tests.support.runs.secure_relay import Relay, opening_of, terms_of

SITES = 4


def secure_run(method: Method, matrices: list, precision: int) -> Consensus:
    sites = dict(zip(site_names(SITES), (method.site(own) for own in matrices), strict=True))
    consensus, relay = method.begin(), Relay(terms_of(SITES, last_round=100, precision=precision)).set_up()
    exponents: dict[BlockLayout, tuple[int, ...]] = {}
    while consensus.outcome is None:
        layout = method.stage(consensus.stage).up
        blocks = block_layout(layout, precision)
        vectors = {name: site.answer(consensus).flat() for name, site in sites.items()}
        now = exponents.get(blocks, blocks.first_exponents)
        opening = opening_of(consensus.round, layout=blocks, exponents=now)
        while misfits := [one for one in relay.answers(opening, vectors) if isinstance(one, Misfit)]:
            opening = replace(opening, misfits=(*opening.misfits, misfits[0]))
        opened = relay.opened(opening, vectors).numbers
        ended = lifted(blocks, now, len(opening.misfits), precision)
        exponents = {blocks: next_exponents(blocks, ended, opened, precision)}
        assert relative(opened, np.sum(list(vectors.values()), axis=0)) < (1e-12 if precision == 64 else 1e-6)
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
        ("gradient", 32, 5e-5),
    ],
)
def test_a_run_over_the_secure_sum_is_the_run_in_the_clear(kind: str, precision: int, tolerance: float) -> None:
    problem = paper_problem(60, 3, 0.05, SITES, seed=4)
    subspace = kind == "subspace"
    method = subspace_method(SubspaceSolver(60, 3, 40, 0.0)) if subspace else gradient_method(GradientSolver(60, 3, 40))
    matrices = problem.sites()
    clear = simulate(method, matrices).consensus
    secure = secure_run(method, matrices, precision)
    assert secure.round == clear.round
    U, V = secure.broadcast.tensor, clear.broadcast.tensor
    assert relative(U @ np.linalg.pinv(U), V @ np.linalg.pinv(V)) < tolerance
