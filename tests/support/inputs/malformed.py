"""Data files that something is wrong with, and what must be said of each."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import zarr
from pyarrow import feather, parquet


def malformed(folder: Path) -> dict[str, str]:
    """Files by name, and what must be said of each."""
    (folder / "ragged.csv").write_text("a,b\n1,2\n3\n")
    (folder / "words.csv").write_text("a,b\n1,2\n3,secret\n")
    (folder / "empty.csv").write_text("")
    (folder / "bare.csv").write_text("a,b\n")
    (folder / "twice.csv").write_text("a,a\n1,2\n")
    (folder / "numbered.csv").write_text(",a,b\n0,1,2\n1,3,4\n")
    (folder / "sheet.csv").write_bytes(b"PK\x03\x04 a workbook")
    (folder / "thousands.csv").write_text('a,b\n"1,234",2\n')
    (folder / "late.csv").write_text("a,b\n" + "1,2\n" * 200_000 + "1,secret\n")
    (folder / "infinite.csv").write_text("a,b\n1,2\n3,inf\n")
    (folder / "blank.csv").write_text("a,b\n?,\nNA,\n")
    (folder / "dates.csv").write_text("a,seen\n1,2024-01-31\n2,2024-02-01\n")
    (folder / "sheet.xlsx").write_bytes(b"PK\x03\x04 nothing")
    parquet.write_table(pa.table({"a": pa.array(["x"]).dictionary_encode()}), folder / "words.parquet")
    parquet.write_table(pa.table({"a": pa.array([], pa.float64())}), folder / "bare.parquet")
    flipped = bytearray(_parquet_bytes(folder / "flipped.parquet"))
    flipped[100:4000] = bytes(3900)
    (folder / "flipped.parquet").write_bytes(flipped)
    with h5py.File(folder / "flipped.h5", "w") as file:
        file.create_dataset("M", data=np.random.default_rng(0).random((50, 30)), chunks=(7, 5), compression="gzip")
    whole = bytearray((folder / "flipped.h5").read_bytes())
    whole[-3000:-100] = bytes(2900)
    (folder / "flipped.h5").write_bytes(whole)
    stored = zarr.create_array(store=str(folder / "flipped.zarr"), shape=(50, 30), chunks=(7, 5), dtype="f8")
    stored[:] = np.random.default_rng(0).random((50, 30))
    next((folder / "flipped.zarr").rglob("c/*/*")).write_bytes(b"nothing")
    for name in ("parts", "uneven"):
        (folder / name).mkdir()
        (folder / name / "a.csv").write_text("a,b\n1,2\n")
    (folder / "parts" / "b.csv").write_text("a,c\n1,2\n")
    (folder / "uneven" / "b.csv").write_text("a,b,c\n1,2,3\n")
    (folder / "binary.csv").write_bytes(b"\xff\xfd\x00\x01\n\x80\x81\n")
    parquet.write_table(pa.table({"a": np.arange(1000.0)}), folder / "cut.parquet")
    (folder / "cut.parquet").write_bytes((folder / "cut.parquet").read_bytes()[:-200])
    parquet.write_table(pa.table({"a": [1.0], "who": ["x"]}), folder / "text.parquet")
    feather.write_feather(pa.table({"a": np.arange(1000.0)}), str(folder / "cut.feather"))
    (folder / "cut.feather").write_bytes((folder / "cut.feather").read_bytes()[:100])
    (folder / "none.h5").write_bytes(b"nothing")
    (folder / "none.parquet").write_bytes(b"")
    (folder / "none.zarr").mkdir()
    with h5py.File(folder / "two.h5", "w") as file:
        file["x"] = file["y"] = np.ones((2, 2))
    with h5py.File(folder / "text.h5", "w") as file:
        file["x"] = [[b"a"]]
    (folder / "hollow").mkdir()
    return {
        "ragged.csv": "1 entries in line 3, not 2",
        "words.csv": "no number in line 3, column b",
        "empty.csv": "is empty",
        "bare.csv": "is empty",
        "twice.csv": "two features named a",
        "numbered.csv": "has no name for column 1",
        "sheet.csv": "is an Excel workbook",
        "thousands.csv": "no number in line 2, column a",
        "late.csv": "no number in line 200002, column b",
        "infinite.csv": "an infinite entry in sample 1, feature 1",
        "blank.csv": "has no entry at all",
        "dates.csv": "column seen holds dates",
        "sheet.xlsx": "is not an Excel workbook",
        "words.parquet": "column a holds text",
        "bare.parquet": "is empty",
        "flipped.parquet": "damaged or cut short",
        "flipped.h5": "is damaged at columns",
        "flipped.zarr": "is damaged at columns",
        "parts": "b.csv differs from a.csv in b, c",
        "uneven": "b.csv has 3 features, a.csv has 2",
        "binary.csv": "is not a CSV file",
        "cut.parquet": "damaged or cut short",
        "text.parquet": "column who holds text",
        "cut.feather": "damaged or cut short",
        "none.h5": "is not an HDF5 file",
        "none.parquet": "not a Parquet file",
        "none.zarr": "is not a Zarr store",
        "two.h5": "holds the arrays x, y",
        "text.h5": "not real numbers",
        "hollow": "has no files in it",
        "nowhere.parquet": "cannot be read",
        "nowhere.csv": "cannot be read",
        "nowhere.h5": "cannot be read",
    }


def _parquet_bytes(path: Path) -> bytes:
    parquet.write_table(pa.table({"a": np.arange(10000.0)}), path)
    return path.read_bytes()
