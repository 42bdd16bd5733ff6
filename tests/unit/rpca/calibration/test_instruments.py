from __future__ import annotations

import numpy as np

from dcfpca.rpca.calibration.instruments import InstrumentScan, scan_block
from dcfpca.rpca.method import FloatArray, Instrument


def scanned(M: FloatArray, z: FloatArray, block: int = 1000) -> tuple[Instrument, ...]:
    scan = InstrumentScan(len(M))
    for start in range(0, M.shape[1], block):
        here = slice(start, start + block)
        scan.add(start, scan_block(M[:, here], z[:, here], np.ones(len(M))))
    return scan.found()


def noise(seed: int = 0, rows: int = 10, columns: int = 150) -> FloatArray:
    return np.random.default_rng(seed).normal(size=(rows, columns))


def test_a_value_that_repeats_is_one_line_also_across_blocks_and_gaps() -> None:
    M = noise()
    M[3, 40:70] = 1.5
    M[3, 50] = np.nan
    for block in (7, 1000):
        assert scanned(M, noise(1), block) == (Instrument(3, "stuck", 40, 69, 29, 1.5),)


def test_a_feature_that_drifts_is_one_line_with_its_size() -> None:
    z = noise()
    z[4] += np.linspace(0.0, 6.0, 150)
    (found,) = scanned(noise(1), z)
    assert (found.feature, found.kind, found.first, found.last) == (4, "drift", 0, 149)
    assert abs(found.amount - 6.0) < 1.5


def test_noise_of_any_seed_names_no_instrument() -> None:
    assert not any(scanned(noise(seed), noise(1000 + seed)) for seed in range(200))


def test_features_of_few_values_sorted_tables_and_constants_are_not_stuck() -> None:
    rng = np.random.default_rng(0)
    coins = (rng.random((20, 300)) < 0.3).astype(np.float64)
    towns = np.repeat(rng.normal(size=(20, 30)), 10, axis=1)
    constant = np.zeros((20, 300))
    for M in (coins, towns, constant):
        assert scanned(M, noise(1, 20, 300)) == ()
