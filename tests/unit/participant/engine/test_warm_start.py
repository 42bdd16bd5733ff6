"""A run that starts from an earlier subspace gets to the same answer in fewer rounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aggregator.proposal import check_warm_start
from dcfpca.errors import BadInput
from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import split
from dcfpca.rpca.initial_basis import opening_basis, opening_factor
from dcfpca.rpca.method import Consensus, FloatArray
from dcfpca.rpca.simulate import collect, exchange
from dcfpca.rpca.stage_list import Method
from dcfpca.spec import RunSpec, parse_spec


def problem(columns: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """L and M of 60 rows, rank 3, 5 % gross errors; the subspace is the same whatever the seed."""
    U = np.random.default_rng(0).standard_normal((60, 3))
    rng = np.random.default_rng(seed)
    L = U @ rng.standard_normal((3, columns))
    S = np.where(rng.random(L.shape) < 0.05, rng.choice([-30.0, 30.0], L.shape), 0.0)
    return L, L + S


def solve(method: Method, M: FloatArray, warm: FloatArray | None = None) -> tuple[int, FloatArray, FloatArray]:
    sites = [method.site(own) for own in split(M, (M.shape[1] // 2, M.shape[1] - M.shape[1] // 2))]
    consensus: Consensus = method.begin()
    if warm is not None:
        consensus = replace(consensus, memory={"warm": warm})
    while consensus.outcome is None:
        consensus = method.advance(consensus, exchange(method, consensus, sites))
    L = np.concatenate([collect(site, consensus).L for site in sites], axis=1)
    return consensus.round, L, method.model(consensus)["U"]


def spec(**keys: object) -> RunSpec:
    return parse_spec({"rows": 60, "rounds": 200, **keys})


@pytest.mark.parametrize("rank", [{"rank": 3}, {"max_rank": 6}])
def test_a_warm_subspace_run_needs_fewer_rounds(rank: dict[str, int]) -> None:
    method = method_of(spec(**rank))
    _, M = problem(120, seed=1)
    _, _, U = solve(method, M)
    L, grown = problem(150, seed=2)
    cold_rounds, _, _ = solve(method, grown)
    warm_rounds, found, _ = solve(method, grown, U)
    assert warm_rounds < cold_rounds
    np.testing.assert_allclose(found, L, atol=1e-6)


def harder(columns: int, seed: int, errors: str, noise: float, drift: float) -> tuple[FloatArray, FloatArray]:
    """L and M of 100 rows, rank 5, 15 % errors and noise; `drift` is how far the subspace moved from where it was."""
    U = np.random.default_rng(0).standard_normal((100, 5)) + drift * np.random.default_rng(77).standard_normal((100, 5))
    rng = np.random.default_rng(seed)
    L = U @ rng.standard_normal((5, columns))
    hit = rng.random(L.shape) < 0.15
    size = {
        "impulse": rng.choice([-30.0, 30.0], L.shape),
        "uniform": rng.uniform(-30.0, 30.0, L.shape),
        "as small as L": np.sqrt(5) * rng.standard_normal(L.shape),
    }[errors]
    return L, L + np.where(hit, size, 0.0) + noise * rng.standard_normal(L.shape)


@pytest.mark.slow
@pytest.mark.parametrize("errors", ["impulse", "uniform", "as small as L"])
@pytest.mark.parametrize(("noise", "drift"), [(0.0, 0.0), (0.0, 0.05), (0.01, 0.0), (0.01, 0.05)])
def test_a_warm_fit_needs_fewer_rounds_and_is_as_exact_as_a_cold_one(errors: str, noise: float, drift: float) -> None:
    """Where the subspace has moved by a twentieth, and the data are exact, a cold fit may be there as soon."""
    method = method_of(parse_spec({"rows": 100, "max_rank": 10, "rounds": 200, "closing_rounds": False}))
    _, _, U = solve(method, harder(150, 1, errors, noise, 0.0)[1])
    L, grown = harder(200, 2, errors, noise, drift)
    cold_rounds, cold, _ = solve(method, grown)
    warm_rounds, warm, _ = solve(method, grown, U)
    assert warm_rounds <= cold_rounds if drift and not noise else warm_rounds < cold_rounds
    assert np.linalg.norm(warm - L) <= 1.05 * np.linalg.norm(cold - L) + 1e-9 * np.linalg.norm(L)


def test_a_subspace_of_other_data_is_left_behind() -> None:
    """A warm start is where a run begins, and no promise that it is right."""
    method = method_of(spec(max_rank=6))
    L, M = problem(150, seed=2)
    other = np.linalg.qr(np.random.default_rng(5).standard_normal((60, 3)))[0]
    _, found, _ = solve(method, M, other)
    np.testing.assert_allclose(found, L, atol=1e-6)


def test_the_first_round_of_a_warm_run_measures_and_leaves_the_subspace_where_it_is() -> None:
    method, (_, M) = method_of(spec(max_rank=6)), problem(120, seed=1)
    _, _, U = solve(method, M)
    sites = [method.site(own) for own in split(M, (60, 60))]
    consensus = replace(method.begin(), memory={"warm": U})
    for _ in range(2):
        consensus = method.advance(consensus, exchange(method, consensus, sites))
    assert consensus.progress.noise < 1e-3, "data that the subspace explains leaves next to nothing"
    after = method.model(consensus)["U"]
    np.testing.assert_allclose(after @ (after.T @ U), U, atol=1e-9)


def test_a_gradient_run_begins_at_the_earlier_subspace() -> None:
    method = method_of(spec(method="gradient", rank=3))
    sites = [method.site(own) for own in split(problem(40, seed=1)[1], (20, 20))]
    U = np.random.default_rng(0).standard_normal((60, 3))
    opening = replace(method.begin(), memory={"warm": U})
    np.testing.assert_array_equal(method.advance(opening, exchange(method, opening, sites)).broadcast.tensor, U)


def test_the_opening_basis_keeps_the_earlier_subspace_and_fills_up_at_random() -> None:
    U = np.linalg.qr(np.random.default_rng(3).standard_normal((20, 2)))[0]
    basis = opening_basis(20, 5, seed=4, memory={"warm": U})
    np.testing.assert_allclose(basis.T @ basis, np.eye(5), atol=1e-12)
    np.testing.assert_allclose(basis @ (basis.T @ U), U, atol=1e-12)
    assert opening_basis(20, 1, seed=4, memory={"warm": U}).shape == (20, 1)


def test_an_orthonormal_start_gets_strengths_and_another_keeps_its_own() -> None:
    U = np.linalg.qr(np.random.default_rng(3).standard_normal((20, 2)))[0]
    np.testing.assert_allclose(np.linalg.norm(opening_factor(20, 2, 0, 4.0, {"warm": U}), axis=0), np.sqrt(80.0))
    np.testing.assert_array_equal(opening_factor(20, 2, 0, 4.0, {"warm": 5 * U}), 5 * U)


def test_a_warm_start_from_other_rows_is_refused() -> None:
    wanted = spec(rank=2, warm_start="20260101-abcd")
    with pytest.raises(BadInput, match="50 features and this one 60"):
        check_warm_start(wanted, spec(rank=2).model_copy(update={"rows": 50}))
    names = {"features_sha256": "1" * 64}
    with pytest.raises(BadInput, match="other features"):
        check_warm_start(wanted.model_copy(update=names), spec(rank=2, features_sha256="2" * 64))
    check_warm_start(wanted, spec(rank=3, **names))
