"""A query over local files is a matrix, and a query that cannot be answered a sentence."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pytest

from dcfpca.errors import BadInput
from participant.data.data_config import DataTable
from participant.data.readers import open_matrix


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "people.csv").write_text("id,height,weight,note\n1,1.5,60,a\n2,1.7,,b\n3,1.9,90,c\n")
    return tmp_path


def test_duckdb_queries_files_beside_the_configuration(folder: Path) -> None:
    query = "SELECT weight, height FROM 'people.csv' WHERE id > 1 ORDER BY id"
    matrix = open_matrix(DataTable(path=folder, query=query), folder / "spool")
    assert matrix.features == ("weight", "height")
    np.testing.assert_array_equal(matrix.columns.read(0, 2), [[np.nan, 90], [1.7, 1.9]])


def test_a_duckdb_database_is_only_read(folder: Path) -> None:
    path = folder / "site.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute("CREATE TABLE t AS SELECT 1.5 AS a, 2 AS b")
    matrix = open_matrix(DataTable(path=path, query="SELECT * FROM t"), folder)
    np.testing.assert_array_equal(matrix.columns.read(0, 1), [[1.5], [2]])
    with pytest.raises(BadInput, match="read-only"):
        open_matrix(DataTable(path=path, query="DELETE FROM t"), folder)


def test_sqlalchemy_reads_any_database(folder: Path) -> None:
    url = f"sqlite:///{folder / 'site.db'}"
    wanted = DataTable(url=url, query="SELECT 1 AS a, NULL AS b UNION ALL SELECT 2.5, 3", features=("b", "a"))
    matrix = open_matrix(wanted, folder)
    np.testing.assert_array_equal(matrix.columns.read(0, 2), [[np.nan, 3], [1, 2.5]])


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"query": "SELECT note FROM 'people.csv'"}, "column note holds text"),
        ({"query": "SELECT nothing FROM 'people.csv'"}, "does not answer"),
        ({"query": "SELEC 1"}, "does not answer"),
        ({"query": "SELECT height FROM 'people.csv' WHERE id > 9"}, "is empty"),
        ({"query": "SELECT 1 AS a, 2 AS a"}, "two features named a"),
        ({"query": "SELECT 'x' AS a", "url": "sqlite://"}, "no number in row 1, column a"),
        ({"query": "SELECT nothing", "url": "sqlite://"}, "does not answer"),
        ({"query": "SELECT 1", "url": "nonsense"}, "url is not usable"),
        ({"query": "SELECT 1", "url": "postgresql://me:geheim@host:po rt/x"}, "url is not usable"),
        ({"query": "SELECT 1", "url": "martian://host/db"}, "url is not usable"),
    ],
)
def test_a_query_without_a_matrix_is_refused(folder: Path, keys: dict[str, str], said: str) -> None:
    with pytest.raises(BadInput, match=said) as caught:
        open_matrix(DataTable(path=folder, **keys), folder / "spool")
    assert caught.value.hint
