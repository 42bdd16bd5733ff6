from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from dcfpca.cli.demo import command_to_type
from dcfpca.errors import BadInput
from dcfpca.identity import check_name
from dcfpca.scaffold.demo import draw, score, site_names, unequal_counts


@given(st.integers(2, 40), st.integers(0, 500))
def test_columns_are_dealt_out_completely_and_unequally(sites: int, extra: int) -> None:
    columns = 2 * sites + extra
    counts = unequal_counts(columns, sites)
    assert sum(counts) == columns
    assert len(counts) == sites
    assert min(counts) >= 2
    assert extra < 2 * sites or len(set(counts)) > 1


@pytest.mark.parametrize(("columns", "sites"), [(10, 1), (3, 2), (0, 4)])
def test_too_few_sites_or_columns_are_refused_with_what_would_do(columns: int, sites: int) -> None:
    with pytest.raises(BadInput) as caught:
        unequal_counts(columns, sites)
    assert "at least" in caught.value.hint


@pytest.mark.parametrize("count", [2, 26, 27, 150])
def test_site_names_are_distinct_and_may_stand_in_certificates(count: int) -> None:
    names = site_names(count)
    assert len(set(names)) == count
    assert names == sorted(names)
    for name in names:
        check_name(name, "participant")


def written(tmp_path: Path, L: np.ndarray, S: np.ndarray, counts: tuple[int, ...]) -> dict[str, Path]:
    ends, places = np.cumsum(counts), {}
    for index, (count, end) in enumerate(zip(counts, ends, strict=True)):
        places[f"s{index}"] = tmp_path / f"s{index}"
        places[f"s{index}"].mkdir()
        np.save(tmp_path / f"s{index}" / "L.npy", L[:, end - count : end])
        sparse.save_npz(tmp_path / f"s{index}" / "S.npz", sparse.csc_array(S[:, end - count : end]))
    return places


def test_the_truth_itself_scores_zero_with_every_outlier_found(tmp_path: Path) -> None:
    problem = draw(20, 30, 2, 3, seed=1)
    found = score(problem, written(tmp_path, problem.L, problem.S, problem.counts))
    assert (found.error, found.low_rank_error) == (0.0, 0.0)
    assert all(site.found == site.outliers > 0 and site.invented == 0 for site in found.sites)


def test_the_trivial_answer_scores_one(tmp_path: Path) -> None:
    problem = draw(20, 30, 2, 3, seed=1)
    zero = np.zeros_like(problem.L)
    found = score(problem, written(tmp_path, zero, zero, problem.counts))
    assert found.error == pytest.approx(1.0)
    assert found.low_rank_error == pytest.approx(1.0)
    assert all(site.found == 0 for site in found.sites)


def test_a_damaged_site_is_the_one_that_is_shown(tmp_path: Path) -> None:
    problem = draw(20, 30, 2, 3, seed=1)
    wrong = problem.L.copy()
    wrong[:, -1] += 1.0
    found = score(problem, written(tmp_path, wrong, problem.S, problem.counts))
    assert [site.low_rank_error > 0 for site in found.sites] == [False, False, True]


def test_a_command_that_the_shell_would_not_find_is_named_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "dcfpca-participant"
    there.write_text("#!/bin/sh\n")
    there.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command_to_type("dcfpca-participant") == "dcfpca-participant"
    monkeypatch.setenv("PATH", str(tmp_path / "elsewhere"))
    assert Path(command_to_type("dcfpca-participant")).resolve().name == "dcfpca-participant"
    assert "/" in command_to_type("dcfpca-participant")
