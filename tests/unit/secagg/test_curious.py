"""An aggregator that is honest but curious: what it receives says nothing about one site."""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.gradient.settings import GradientSettings
from dcfpca.rpca.gradient.stages import GradientSolver, gradient_method
from dcfpca.rpca.method import Consensus, TensorMessage
from dcfpca.rpca.stage import Site
from dcfpca.rpca.stage_list import Method
from dcfpca.secagg import fixed_point
from dcfpca.secagg.fixed_point import FloatArray
from dcfpca.secagg.messages import Masked
from tests.support.runs.secagg import site_names
from tests.support.runs.secure_relay import Relay, layout_of, opening_of, terms_of

ROWS, RANK, SITES = 60, 4, 5
VICTIM = site_names(SITES)[0]


def masked_by(relay: Relay, round: int, vectors: Mapping[str, FloatArray]) -> dict[str, Masked]:
    """What the aggregator receives in this round."""
    layout = layout_of(len(next(iter(vectors.values()))))
    answers = relay.answers(opening_of(round, layout=layout), vectors)
    return {one.name: one for one in answers if isinstance(one, Masked)}


def decoded(masked: Masked) -> FloatArray:
    """The masked numbers, read as if they had no mask."""
    layout = layout_of(len(masked.values))
    integers = fixed_point.from_ring(masked.values, 64)
    return fixed_point.decode(integers, layout, layout.first_exponents, SITES, 64)


def byte_uniformity(raw: bytes) -> float:
    """The probability that uniform bytes look at least as uneven as these, by chi-square over 256 values."""
    return float(stats.chisquare(np.bincount(np.frombuffer(raw, np.uint8), minlength=256)).pvalue)


def correlation(one: np.ndarray, other: np.ndarray) -> float:
    one, other = one.ravel(), other.ravel()
    return float(abs(one @ other) / (np.linalg.norm(one) * np.linalg.norm(other)))


@pytest.mark.parametrize("precision", [64, 32])
def test_masked_updates_of_a_whole_run_look_uniform_by_chi_square_over_bytes(precision: int) -> None:
    # Updates as far from uniform as can be: all zero, all one, one tiny number, the same at every round.
    vectors = {name: value * np.ones(4096) for name, value in zip(site_names(4), (0.0, 1.0, 1e-9, -1.0), strict=True)}
    relay, received = Relay(terms_of(4, precision=precision)).set_up(), []
    for number in range(4):
        received += [masked.values.tobytes() for masked in masked_by(relay, number, vectors).values()]
    everything = b"".join(received)
    assert byte_uniformity(everything) > 1e-3
    width = precision // 8
    for position in range(width):
        assert byte_uniformity(everything[position::width]) > 1e-3 / width
    pairs = [np.frombuffer(one, np.uint8) ^ np.frombuffer(two, np.uint8) for one, two in pairwise(received)]
    assert byte_uniformity(np.concatenate(pairs).tobytes()) > 1e-3
    layout = layout_of(4096)
    encoded = [fixed_point.encode(one, layout, layout.first_exponents, 4, precision) for one in vectors.values()]
    bare = b"".join(fixed_point.to_ring(integers, precision).tobytes() for integers in encoded)
    assert byte_uniformity(bare) < 1e-100, "the measure sees what is not masked"


def covariance_attack(update: np.ndarray, U: np.ndarray) -> np.ndarray:
    """G (UᵀG)⁺ Gᵀ is Y Yᵀ when the site has no more columns than the rank."""
    return update @ np.linalg.pinv(U.T @ update) @ update.T


def test_the_attack_on_one_update_finds_a_column_in_the_clear_and_nothing_under_the_mask() -> None:
    rng = np.random.default_rng(1)
    U = np.linalg.qr(rng.standard_normal((ROWS, RANK)))[0]
    columns = {name: rng.standard_normal((ROWS, 1)) for name in site_names(SITES)}
    updates = {name: (Y @ (Y.T @ U)) for name, Y in columns.items()}
    relay, vectors = Relay(terms_of(SITES)).set_up(), {name: G.ravel() for name, G in updates.items()}
    masked, total = masked_by(relay, 0, vectors), relay.opened(opening_of(0, layout=layout_of(ROWS * RANK)), vectors)
    secret = columns[VICTIM] @ columns[VICTIM].T

    assert correlation(covariance_attack(updates[VICTIM], U), secret) == pytest.approx(1.0, abs=1e-9)
    seen = decoded(masked[VICTIM]).reshape(ROWS, RANK)
    chance = [correlation(covariance_attack(rng.standard_normal((ROWS, RANK)), U), secret) for _ in range(200)]
    assert correlation(covariance_attack(seen, U), secret) < np.quantile(chance, 0.99)
    assert np.allclose(total.numbers.reshape(ROWS, RANK), sum(updates.values()), atol=1e-12), "while the sum is right"


def row_space_attack(update: np.ndarray, U: np.ndarray) -> np.ndarray:
    """U_i − U has the row space of V_i, so for one column L_i is U v up to its length."""
    return U @ np.linalg.svd(update - U)[2][0]


def test_the_attack_on_algorithm_1_finds_a_one_column_site_in_the_clear_and_nothing_under_the_mask() -> None:
    rng = np.random.default_rng(2)
    settings = GradientSettings(local_iterations=1, learning_rate=0.05, lambda_=0.2, rho=1e-3)
    method = gradient_method(GradientSolver(rows=ROWS, width=RANK, rounds=3, settings=settings))
    sites = {name: method.site(ArrayColumns(rng.standard_normal((ROWS, 1)))) for name in site_names(SITES)}
    opened = _first_round(method, sites)
    updates = {name: site.answer(opened) for name, site in sites.items()}
    vectors = {name: message.flat() for name, message in updates.items()}
    U = opened.broadcast.tensor
    V: np.ndarray = sites[VICTIM].snapshot()["fit/V"]
    secret = U @ V.T

    assert correlation(row_space_attack(updates[VICTIM].tensor, U), secret) > 0.999
    relay = Relay(terms_of(SITES, last_round=40)).set_up()
    received = [decoded(masked_by(relay, number, vectors)[VICTIM]) for number in range(1, 41)]
    tensors = [TensorMessage.unflatten(method.stage("fit").up, vector).tensor for vector in received]
    seen = [correlation(row_space_attack(tensor, U), secret) for tensor in tensors]
    chance = [correlation(row_space_attack(rng.standard_normal((ROWS, RANK)), U), secret) for _ in range(400)]
    assert stats.ks_2samp(seen, chance, alternative="less").pvalue > 1e-3, "guesses are no better than chance"


def _first_round(method: Method, sites: Mapping[str, Site]) -> Consensus:
    from dcfpca.rpca.simulate import exchange  # noqa: PLC0415

    opening = method.begin()
    return method.advance(opening, exchange(method, opening, list(sites.values())))
