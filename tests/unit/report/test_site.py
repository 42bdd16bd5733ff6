"""The report at a site: who stands out and in what, against a known construction, and what it says of it."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dcfpca.errors import BadInput
from dcfpca.report.sample_cards import noise_text, rounded
from dcfpca.report.site import site_report
from participant.commands.results import LARGEST_PICTURE, TiledPictures, build_report, measure_result
from participant.config import Config
from tests.support.inputs.site_report import NAMES, manifest, site_with


@pytest.fixture
def known(tmp_path: Path) -> tuple[Config, np.ndarray, np.ndarray, np.ndarray]:
    """Noise of 0.1 in every feature but the last, where it is 100; errors in samples 29, 7 and 3."""
    random = np.random.default_rng(3)
    L = np.outer(random.normal(size=20), random.normal(size=30))
    S = np.zeros((20, 30))
    S[:6, 7], S[2, 29], S[19, 3] = -9.0, 50.0, 700.0
    noise = np.where(np.arange(20) == 19, 100.0, 0.1)[:, None]
    M = L + S + noise * random.normal(size=L.shape)
    M[0, 0] = np.nan
    return site_with(tmp_path, M, L, S, 'feature_names = "names.txt"'), M, L, S


Known = tuple[Config, np.ndarray, np.ndarray, np.ndarray]


def test_samples_are_ranked_in_noise_and_not_in_raw_units(known: Known) -> None:
    config, M, L, _ = known
    odd = measure_result(config, manifest()).odd
    assert [one.sample for one in odd] == ["sample 29", "sample 7", "sample 3"]
    assert odd[0].rows == (2,)
    assert set(odd[1].rows) == set(range(6))
    np.testing.assert_array_equal(odd[2].observed, M[:, 3])
    np.testing.assert_array_equal(odd[2].expected, L[:, 3])
    assert abs(odd[2].z[19]) < 20 < abs(odd[0].z[2])


def test_a_flagged_entry_has_the_figures_that_the_run_wrote(known: Known) -> None:
    config, M, L, _ = known
    head = "id,feature,observed,expected,deviation,z,exceeded_by,values,consortium_z,unusual_for,flag,cause,corrected"
    line = f"29,{NAMES[2]},{M[2, 29]:.6g},1.25,0,77.5,5,600,77.5,all sites,high,,nan"
    (config.results.dir / "r1" / "outliers.csv").write_text(f"{head}\n{line}\n")
    first = next(one for one in measure_result(config, manifest()).odd if one.sample == "sample 29")
    assert (first.expected[2], first.z[2], first.exceeded_by[2]) == (1.25, 77.5, 5.0)
    assert first.expected[3] == L[3, 29]


def test_flags_and_gaps_are_counted_by_feature(known: Known) -> None:
    config, M, _, S = known
    found = measure_result(config, manifest())
    np.testing.assert_array_equal(found.features.flags, (S != 0).sum(axis=1))
    np.testing.assert_array_equal(found.features.missing_share, np.isnan(M).mean(axis=1))
    assert (found.outliers, found.missing) == (int(np.count_nonzero(S)), 1)


def test_the_report_says_where_the_final_subspace_was_not_checked(known: Known) -> None:
    config, *_ = known
    assert "could not check" not in build_report(config, manifest())
    assert "could not check" not in build_report(config, manifest(consensus_verified=True))
    assert "could not check" in build_report(config, manifest(consensus_verified=False))


def test_the_report_names_sample_measurement_found_and_expected(known: Known) -> None:
    config, M, L, _ = known
    html = build_report(config, manifest())
    assert "<h3>sample 29</h3>" in html
    assert f"<b>lab c</b>: {M[2, 29]:.4g}, expected {rounded(L[2, 29])}" in html
    assert html.index("The answer can be trusted") < html.index("Who stands out")
    assert "nothing in this file has left it" in html
    assert "<b>spring" not in html


def test_the_feature_that_makes_most_of_all_flags_is_named_before_the_list(known: Known) -> None:
    config, *_ = known
    found = measure_result(config, manifest())
    assert found.aside == ""
    html = site_report(manifest(), replace(found, aside="30 of 31 findings are of lab c alone."), "now")
    assert html.index("Who stands out") < html.index("30 of 31 findings are of lab c alone.") < html.index("sample 29")


def test_an_answer_that_is_not_sound_is_read_with_care(known: Known) -> None:
    config, *_ = known
    doubt = {"sound": False, "sentence": "Not to be trusted as it is.", "reasons": ["x"]}
    assert "Read with care" in build_report(config, manifest(verdict=doubt))


def test_an_answer_that_no_check_has_shown_is_not_called_one_to_be_trusted(known: Known) -> None:
    config, *_ = known
    unchecked = {"sound": True, "checked": False, "sentence": "Rank 2.", "reasons": []}
    html = build_report(config, manifest(verdict=unchecked))
    assert "its flags were not checked" in html
    assert "can be trusted" not in html


def test_the_page_runs_its_own_script_and_no_other(known: Known) -> None:
    config, *_ = known
    html = build_report(config, manifest())
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html
    assert not re.search(r"https?://", html)


def test_a_spec_that_names_a_part_of_the_features_is_reported_with_them(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    M = random.normal(size=(13, 40))
    part = [NAMES[k] for k in (4, 2, 9)]
    S = np.zeros((3, 40))
    S[1, 5] = 8.0
    config = site_with(tmp_path, M, M[[4, 2, 9]] - S, S, 'feature_names = "names.txt"')
    found = measure_result(config, manifest(spec={"features": part}))
    assert (found.rows, tuple(found.features.names)) == (3, tuple(part))
    assert found.odd[0].observed[1] == M[2, 5]


def test_features_in_an_order_are_a_profile_and_pixels_an_image(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    L = np.outer(random.normal(size=12), random.normal(size=30))
    S = np.zeros_like(L)
    S[3, 4] = 20.0
    config = site_with(tmp_path, L + S, L, S)
    assert measure_result(config, manifest()).drawing == "profile"
    html = build_report(config, manifest(), "3x4")
    assert "found at sample 4" in html
    assert "<b>pixel 0, 3</b>: " in html
    with pytest.raises(BadInput, match="--image 5x5 is not the shape"):
        measure_result(config, manifest(), "5x5")
    (tmp_path / "other").mkdir()
    named = site_with(tmp_path / "other", L + S, L, S, 'feature_names = "names.txt"')
    assert measure_result(named, manifest()).drawing == "bars"


def test_large_matrices_are_shown_by_the_mean_of_their_tiles_and_the_largest_deviation() -> None:
    rows, columns = 2 * LARGEST_PICTURE, 3 * LARGEST_PICTURE
    data = np.random.default_rng(5).normal(size=(rows, columns))
    off = np.zeros_like(data)
    off[1, 4], off[0, 3] = -7.0, 2.0
    data[4:6, 0:3] = np.nan
    made = TiledPictures(rows, columns)
    for start in range(0, columns, 250):
        made.add(start, data[:, start : start + 250], off[:, start : start + 250])
    found = made.pictures()
    tiles = data.reshape(LARGEST_PICTURE, 2, LARGEST_PICTURE, 3)
    np.testing.assert_allclose(found.data, tiles.mean(axis=(1, 3)))
    assert found.deviation[0, 1] == -7.0
    assert np.isnan(found.data[2, 0])
    assert (found.missing[2, 0], found.missing.sum()) == (1.0, 1.0)


def test_data_that_is_not_the_runs_own_is_told(tmp_path: Path) -> None:
    config = site_with(tmp_path, np.ones((4, 6)), np.ones((4, 5)), np.zeros((4, 5)))
    with pytest.raises(BadInput, match="the data is 4 × 6 and the result 4 × 5"):
        measure_result(config, manifest())


def test_a_run_of_rank_zero_without_flags_says_so(tmp_path: Path) -> None:
    L = np.ones((4, 25))
    config = site_with(tmp_path, L + 0.1 * np.random.default_rng(0).normal(size=L.shape), L, np.zeros_like(L))
    np.save(tmp_path / "results" / "r1" / "U.npy", np.zeros((4, 0)))
    np.save(tmp_path / "results" / "r1" / "V.npy", np.zeros((25, 0)))
    html = site_report(manifest(), measure_result(config, manifest()), "now")
    assert "No sample stands out, and no entry is flagged" in html
    assert "no pattern that all sites share predicts the measurements" in html
    assert "expected from those they vary with" not in html
    related = replace(measure_result(config, manifest()), related=True)
    assert "expected from those they vary with" in site_report(manifest(), related, "now")


def test_noise_beyond_counting_is_not_spelled_out() -> None:
    assert noise_text(-4.7) == "-4.7 noise"
    assert noise_text(1e12) == "+over 1000 noise"


def test_the_report_of_a_private_run_says_what_was_spent_and_others_do_not(tmp_path: Path) -> None:
    L = np.ones((4, 25))
    config = site_with(tmp_path, L + 0.1 * np.random.default_rng(0).normal(size=L.shape), L, np.zeros_like(L))
    found = measure_result(config, manifest())
    assert "What privacy was spent" not in site_report(manifest(), found, "now")
    told = site_report(manifest() | {"privacy": {"sentence": "It has ε = 1 & c < 2."}}, found, "now")
    assert "<h2>What privacy was spent</h2>\n<p>It has ε = 1 &amp; c &lt; 2.</p>" in told


def test_a_run_without_a_null_claims_no_rate_of_false_alarms(known: Known) -> None:
    config, *_ = known
    unjudged = build_report(config, manifest())
    assert "How many flags are ordinary entries is not known" in unjudged
    assert "not flagged as a whole" not in unjudged
    assert "a flag is many times that" not in unjudged
    half = np.full(30, 0.5)
    np.savez(config.results.dir / "r1" / "scores.npz", p_value=half, largest_z=half, distance=half)
    judged = build_report(config, manifest())
    assert "is not known" not in judged
    assert "a flag is many times that" in judged
