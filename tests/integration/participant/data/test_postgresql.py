"""The site's matrix from a real PostgreSQL server, started for the test from the system's packages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy

from dcfpca.errors import BadInput
from participant.data.data_config import DataTable
from participant.data.readers import open_matrix
from tests.support.services.postgresql import needs_postgresql, postgresql_server

pytestmark = [pytest.mark.slow, needs_postgresql]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgresql_server() as made:
        yield made.url(scheme="postgresql+psycopg")


@pytest.fixture(scope="module")
def values(server: str) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    made = np.random.default_rng(0).standard_normal((9000, 3))
    made[5, 1] = np.nan
    engine = sqlalchemy.create_engine(server)
    with engine.begin() as connection:
        connection.execute(
            sqlalchemy.text("CREATE TABLE vitals (id int, height float8, pulse float8, mass numeric, who text)")
        )
        rows = [{"i": i, "a": a, "b": None if np.isnan(b) else b, "c": c, "d": "x"} for i, (a, b, c) in enumerate(made)]
        connection.execute(sqlalchemy.text("INSERT INTO vitals VALUES (:i, :a, :b, :c, :d)"), rows)
    engine.dispose()
    return made


def test_a_query_gives_the_matrix_of_the_table(server: str, values: np.ndarray, tmp_path: Path) -> None:
    query = "SELECT height, pulse, mass FROM vitals ORDER BY id"
    matrix = open_matrix(DataTable(url=server, query=query), tmp_path)
    assert matrix.features == ("height", "pulse", "mass")
    np.testing.assert_allclose(matrix.columns.read(0, 9000), values.T, rtol=1e-14)
    chosen = open_matrix(DataTable(url=server, query=query, features=("mass", "height")), tmp_path, 1 << 16)
    np.testing.assert_allclose(chosen.columns.read(10, 20), values.T[[2, 0], 10:20], rtol=1e-14)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT height, who FROM vitals ORDER BY id", "no number in row 1, column who"),
        ("SELECT nothing FROM vitals", 'column "nothing" does not exist'),
        ("SELECT height FROM vitals WHERE id < 0", "is empty"),
    ],
)
def test_what_is_no_matrix_is_refused(server: str, values: object, tmp_path: Path, query: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as caught:
        open_matrix(DataTable(url=server, query=query), tmp_path)
    assert "s3cret" not in str(caught.value) + caught.value.hint


def test_a_server_that_is_not_there_is_said(tmp_path: Path) -> None:
    url = "postgresql+psycopg://site:s3cret@127.0.0.1:1/postgres?connect_timeout=2"
    with pytest.raises(BadInput, match="does not answer") as caught:
        open_matrix(DataTable(url=url, query="SELECT 1"), tmp_path)
    assert "s3cret" not in str(caught.value) + caught.value.hint
