"""Several columns of one person: who they are, and that together they move a private sum like one column."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from dcfpca.errors import BadInput
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import FloatArray, TensorMessage
from dcfpca.rpca.private.schedule import PrivateSchedule
from dcfpca.rpca.private.site import PrivateFit, PrivatePlan
from dcfpca.rpca.private.whole_numbers import GRID_BITS
from participant.data.data_config import DataTable
from participant.data.facts import MatrixParts
from participant.data.matrix import Matrix, keep_samples
from participant.data.readers import open_matrix

ROWS, RANK = 6, 2
SCHEDULE = PrivateSchedule(rounds=3, rho=0.1)
PERSONS = ("ann", "bob", "ann", "cem", "bob", "ann")


def table(path: Path, text: str, **keys: object) -> Matrix:
    path.write_text(text)
    return open_matrix(DataTable(path=path, **keys))


def test_a_column_of_a_table_says_whose_each_sample_is(tmp_path: Path) -> None:
    lines = "".join(f"v{k},{who},{k},{k}.5\n" for k, who in enumerate(PERSONS))
    matrix = table(tmp_path / "d.csv", "visit,patient,a,b\n" + lines, id_column="visit", person_column="patient")
    assert matrix.persons == PERSONS
    assert matrix.features == ("a", "b")
    assert matrix.ids == tuple(f"v{k}" for k in range(6))


def test_numbers_of_persons_in_a_parquet_file_are_read_as_names(tmp_path: Path) -> None:
    columns = {"patient": [7, 7, 9], "a": [1.0, 2.0, 3.0], "b": [1.0, 2.0, 3.0]}
    parquet.write_table(pa.table(columns), tmp_path / "d.parquet")
    matrix = open_matrix(DataTable(path=tmp_path / "d.parquet", person_column="patient"))
    assert matrix.persons == ("7", "7", "9")
    assert matrix.columns.shape == (2, 3)


def test_a_file_says_it_for_formats_without_names(tmp_path: Path) -> None:
    np.save(tmp_path / "M.npy", np.ones((ROWS, 6)))
    (tmp_path / "persons.txt").write_text("\n".join(PERSONS) + "\n")
    matrix = open_matrix(DataTable(path=tmp_path / "M.npy", persons=tmp_path / "persons.txt"))
    assert matrix.persons == PERSONS


@pytest.mark.parametrize(("lines", "words"), [("ann\nbob\n", "2 lines for the 6"), ("ann\n" * 5 + " \n", "sample 6")])
def test_persons_that_are_not_said_are_named_by_place_alone(tmp_path: Path, lines: str, words: str) -> None:
    np.save(tmp_path / "M.npy", np.ones((ROWS, 6)))
    (tmp_path / "persons.txt").write_text(lines)
    with pytest.raises(BadInput, match=words) as told:
        open_matrix(DataTable(path=tmp_path / "M.npy", persons=tmp_path / "persons.txt"))
    assert "ann" not in str(told.value)


def test_a_column_of_persons_that_cannot_be_there_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "M.npy", np.ones((ROWS, 6)))
    with pytest.raises(BadInput, match="person_column is set"):
        open_matrix(DataTable(path=tmp_path / "M.npy", person_column="patient"))
    with pytest.raises(BadInput, match="no column who"):
        table(tmp_path / "d.csv", "a,b\n1,2\n", orientation="samples-in-rows", person_column="who")


def test_each_person_has_the_first_of_its_columns_in_the_sums_and_left_out_samples_take_their_person_along() -> None:
    matrix = Matrix(ArrayColumns(np.arange(6.0)[None, :]), persons=PERSONS)
    fitted = MatrixParts(matrix, has_missing=False).one_per_person((), "here")
    assert fitted.columns.read(0, 3).tolist() == [[0.0, 1.0, 3.0]]
    later = keep_samples(matrix, np.array([1, 2, 3, 5]))
    assert later.persons == ("bob", "ann", "cem", "ann")
    again = MatrixParts(later, has_missing=False).one_per_person((), "here")
    assert again.columns.read(0, 3).tolist() == [[1.0, 2.0, 3.0]]


def on_grid(M: FloatArray, persons: list[int], round: int, broadcast: TensorMessage) -> FloatArray:
    matrix = Matrix(ArrayColumns(M), persons=tuple(map(str, persons)))
    columns = MatrixParts(matrix, has_missing=False).one_per_person((), "here").columns if persons else matrix.columns
    site = PrivateFit(columns, RANK)
    answer = (site.answer(PrivatePlan.of(broadcast)) if round else site.opening()).flat()
    return np.ldexp(np.rint(np.ldexp(answer, GRID_BITS)), -GRID_BITS)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 4), max_size=12),
    st.lists(st.integers(0, 12), min_size=1, max_size=6),
    st.sampled_from([1e-9, 1.0, 1e9, np.nan]),
    st.sampled_from([0, 1]),
)
def test_a_person_with_any_number_of_columns_moves_a_sum_by_no_more_than_one_column_may(
    others: list[int], places: list[int], scale: float, round: int
) -> None:
    rng = np.random.default_rng(len(others))
    rest, theirs = rng.standard_normal((ROWS, len(others))), scale * rng.standard_normal((ROWS, len(places)))
    more, whose = rest, list(others)
    for number, place in enumerate(places):
        at = min(place, more.shape[1])
        more = np.insert(more, at, theirs[:, number], axis=1)
        whose.insert(at, 99)
    U = np.linalg.qr(rng.standard_normal((ROWS, 4)))[0]
    plan = PrivatePlan(U, 0.7, 10.0, RANK, 0.1, np.ones(RANK)).broadcast()
    told = plan if round else TensorMessage(np.zeros((0, 0)), np.zeros(0))
    moved = np.linalg.norm(on_grid(more, whose, round, told) - on_grid(rest, others, round, told))
    assert moved <= SCHEDULE.sensitivity(round)
