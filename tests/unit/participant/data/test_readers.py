"""Every format gives the same matrix, and every malformed file one sentence that names the file and the place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
import zarr
from pyarrow import csv, feather, ipc, parquet

from dcfpca.errors import BadInput
from participant.data.data_config import DataTable
from participant.data.facts import measure
from participant.data.matrix import Matrix
from participant.data.readers import open_matrix
from tests.support.inputs.malformed import malformed

NAMES = ("height", "weight", "pulse")
SAMPLES = 7


def sample_table() -> np.ndarray[Any, np.dtype[np.float64]]:
    """Seven samples in rows, with a gap."""
    table = np.random.default_rng(1).standard_normal((SAMPLES, len(NAMES)))
    table[2, 1] = np.nan
    return table


def arrow_table(values: np.ndarray[Any, Any]) -> pa.Table:
    columns = [pa.array(column, from_pandas=True) for column in values.T]
    return pa.table(columns, names=list(NAMES))


def write_stream(path: Path, values: np.ndarray[Any, Any]) -> None:
    table = arrow_table(values)
    with ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


def write_hdf5(path: Path, values: np.ndarray[Any, Any]) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("group/M", data=values, chunks=(1, 2))


WRITERS: dict[str, Callable[[Path, np.ndarray[Any, Any]], object]] = {
    "d.npy": np.save,
    "d.npz": lambda path, values: np.savez(path, M=values),
    "d.csv": lambda path, values: csv.write_csv(arrow_table(values), path),
    "d.tsv": lambda path, values: csv.write_csv(arrow_table(values), path, csv.WriteOptions(delimiter="\t")),
    "d.parquet": lambda path, values: parquet.write_table(arrow_table(values), path, row_group_size=3),
    "d.feather": lambda path, values: feather.write_feather(arrow_table(values), str(path)),
    "d.arrow": write_stream,
    "d.h5": write_hdf5,
    "d.zarr": lambda path, values: zarr.save_array(str(path), values),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("memory_limit", [0, 64])
def test_every_format_gives_the_same_matrix(tmp_path: Path, name: str, memory_limit: int) -> None:
    values = sample_table()
    WRITERS[name](tmp_path / name, values)
    matrix = open_matrix(table(tmp_path / name), tmp_path / "spool", memory_limit)
    assert matrix.columns.shape == (3, SAMPLES)
    np.testing.assert_array_equal(matrix.columns.read(0, SAMPLES), values.T)
    for start in range(SAMPLES):
        np.testing.assert_array_equal(matrix.columns.read(start, start + 1), values.T[:, start : start + 1])
    assert matrix.features in ((), NAMES)
    assert measure(matrix.columns, name).missing == 1


@pytest.mark.parametrize("name", ["d.npy", "d.h5", "d.zarr"])
def test_features_in_rows_are_read_as_they_are(tmp_path: Path, name: str) -> None:
    values = sample_table()
    WRITERS[name](tmp_path / name, values)
    for limit in (0, 64):
        matrix = open_matrix(DataTable(path=tmp_path / name), tmp_path, limit)
        np.testing.assert_array_equal(matrix.columns.read(1, 3), values[:, 1:3])


@pytest.mark.parametrize("name", ["d.npy", "d.csv", "d.parquet", "d.h5", "d.zarr"])
def test_a_folder_of_parts_is_one_matrix(tmp_path: Path, name: str) -> None:
    values = sample_table()
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "_SUCCESS").touch()
    for number, (start, stop) in enumerate([(0, 2), (2, 6), (6, 7)]):
        WRITERS[name](folder / f"part-{number}{Path(name).suffix}", values[start:stop])
    columns = open_matrix(table(folder), tmp_path / "spool").columns
    assert columns.shape == (3, SAMPLES)
    for start, stop in [(0, 7), (1, 3), (5, 7), (2, 4)]:
        np.testing.assert_array_equal(columns.read(start, stop), values.T[:, start:stop])


def test_parts_with_columns_in_another_order_are_matched_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "a.csv").write_text("height,weight\n1,2\n")
    (folder / "b.csv").write_text("weight,height\n4,3\n")
    matrix = open_matrix(table(folder), tmp_path)
    np.testing.assert_array_equal(matrix.columns.read(0, 2), [[1, 3], [2, 4]])
    (folder / "b.csv").write_text("weight,size\n4,3\n")
    with pytest.raises(BadInput, match=r"b\.csv differs from a\.csv in height, size"):
        open_matrix(table(folder), tmp_path)


@pytest.mark.parametrize("name", ["d.csv", "d.parquet", "d.feather"])
def test_columns_are_chosen_and_ordered_by_name(tmp_path: Path, name: str) -> None:
    values = sample_table()
    WRITERS[name](tmp_path / name, values)
    matrix = open_matrix(table(tmp_path / name, features=("pulse", "height")), tmp_path)
    assert matrix.features == ("pulse", "height")
    np.testing.assert_array_equal(matrix.columns.read(0, SAMPLES), values.T[[2, 0]])


def test_names_for_formats_without_names_come_from_a_file(tmp_path: Path) -> None:
    values = sample_table()
    np.save(tmp_path / "d.npy", values.T)
    names = tmp_path / "names.txt"
    names.write_text("\n".join(NAMES))
    wanted = DataTable(path=tmp_path / "d.npy", feature_names=names, features=("weight", "pulse"))
    np.testing.assert_array_equal(open_matrix(wanted).columns.read(0, 2), values.T[[1, 2], :2])
    names.write_text("height\nweight")
    with pytest.raises(BadInput, match="2 names for the 3 features"):
        open_matrix(wanted)


def test_a_table_of_features_names_them_in_a_column(tmp_path: Path) -> None:
    (tmp_path / "genes.tsv").write_text("gene\ts1\ts2\nBRCA1\t1\t2\nTP53\t3\tNA\n")
    matrix = open_matrix(DataTable(path=tmp_path / "genes.tsv", feature_column="gene"), tmp_path)
    assert matrix.features == ("BRCA1", "TP53")
    np.testing.assert_array_equal(matrix.columns.read(0, 2), [[1, 2], [3, np.nan]])


def test_csv_as_continental_spreadsheets_write_it(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("1,5;-9\n2,5;7\n")
    wanted = table(tmp_path / "d.csv", delimiter=";", decimal=",", header=False, missing_markers=("-9",))
    matrix = open_matrix(wanted, tmp_path)
    assert matrix.features == ()
    np.testing.assert_array_equal(matrix.columns.read(0, 2), [[1.5, 2.5], [np.nan, 7]])


def test_whole_numbers_booleans_and_decimals_are_numbers(tmp_path: Path) -> None:
    made = pa.table(
        {"i": pa.array([1, None]), "b": pa.array([True, False]), "d": pa.array([1, 2], pa.decimal128(5, 2))}
    )
    parquet.write_table(made, tmp_path / "d.parquet")
    columns = open_matrix(table(tmp_path / "d.parquet"), tmp_path).columns
    np.testing.assert_array_equal(columns.read(0, 2), [[1, np.nan], [1, 0], [1, 2]])


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbfa,b\n1,2.5\n3,4\n",  # with a byte order mark
        b"a,b\r\n1,2.5\r\n3,4\r\n",
        b'"a","b"\n"1","2.5"\n"3","4"\n',
        b"a,b\n1e0,25E-1\n\n 3 , 4\n",
    ],
)
def test_csv_as_programs_write_it(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "d.csv").write_bytes(text)
    matrix = open_matrix(table(tmp_path / "d.csv"), tmp_path)
    assert matrix.features == ("a", "b")
    np.testing.assert_array_equal(matrix.columns.read(0, 2), [[1, 3], [2.5, 4]])


def test_numbered_rows_are_left_out_by_choosing_features(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(",a,b\n0,1,2\n1,3,4\n")
    matrix = open_matrix(table(tmp_path / "d.csv", features=("a", "b")), tmp_path)
    np.testing.assert_array_equal(matrix.columns.read(0, 2), [[1, 3], [2, 4]])


def test_numbers_kept_in_a_dictionary_are_numbers(tmp_path: Path) -> None:
    made = pa.table({"a": pa.array([1.0, None, 1.0]).dictionary_encode(), "b": pa.array([1, 2, 3], pa.uint8())})
    parquet.write_table(made, tmp_path / "d.parquet")
    feather.write_feather(made, str(tmp_path / "d.feather"))
    for name in ("d.parquet", "d.feather"):
        columns = open_matrix(table(tmp_path / name), tmp_path).columns
        np.testing.assert_array_equal(columns.read(0, 3), [[1, np.nan, 1], [1, 2, 3]])


def test_malformed_files_are_refused_by_file_and_place(tmp_path: Path) -> None:
    for name, said in malformed(tmp_path).items():
        with pytest.raises(BadInput) as caught:
            measure(open_matrix(table(tmp_path / name), tmp_path / "spool").columns, str(tmp_path / name))
        sentence = str(caught.value)
        assert said in sentence, sentence
        assert str(tmp_path / name) in sentence
        assert "secret" not in sentence + caught.value.hint
        assert caught.value.hint


@pytest.mark.parametrize("name", ["d.csv", "d.parquet"])
def test_an_absent_column_is_named(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name, sample_table())
    with pytest.raises(BadInput, match="no column temperature") as caught:
        open_matrix(table(tmp_path / name, features=("height", "temperature")), tmp_path)
    assert "pulse" in caught.value.hint


def external_storage(path: Path, other: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("d", (2, 8), "<f8", external=[(str(other), 0, 128)])


def external_link(path: Path, other: Path) -> None:
    with h5py.File(path, "w") as file:
        file["own"] = np.ones((2, 8))
        file["d"] = h5py.ExternalLink(str(other), "/data")


def virtual_dataset(path: Path, other: Path) -> None:
    layout = h5py.VirtualLayout((2, 8), "<f8")
    layout[:] = h5py.VirtualSource(str(other), "data", shape=(2, 8))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("d", layout)


@pytest.mark.parametrize("write", [external_storage, external_link, virtual_dataset])
@pytest.mark.parametrize("dataset", ["", "d"])
def test_hdf5_that_refers_to_other_files_is_refused(
    tmp_path: Path, write: Callable[[Path, Path], None], dataset: str
) -> None:
    other = tmp_path / "other.h5"
    with h5py.File(other, "w") as file:
        file["data"] = np.ones((2, 8))
    write(tmp_path / "d.h5", other)
    with pytest.raises(BadInput, match=r"refers to other files \(d\)"):
        open_matrix(DataTable(path=tmp_path / "d.h5", dataset=dataset))


def test_nothing_of_a_table_stays_in_the_spool_directory(tmp_path: Path) -> None:
    WRITERS["d.csv"](tmp_path / "d.csv", sample_table())
    matrix: Matrix = open_matrix(table(tmp_path / "d.csv"), tmp_path / "spool")
    assert matrix.columns.shape == (3, SAMPLES)
    assert list((tmp_path / "spool").iterdir()) == []


def table(path: Path, **keys: Any) -> DataTable:
    return DataTable(path=path, orientation="samples-in-rows", **keys)
