"""Reads the result directory that a participant wrote after a run: arrays with names and ids, tables, data frames.

Tables come from Parquet where pyarrow can read it, otherwise from CSV with the standard library alone.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import BadInput, UnusableState

if TYPE_CHECKING:
    from scipy import sparse

TEXT_COLUMNS = frozenset({"id", "feature", "flag", "cause", "top_features", "kind", "first", "last"})
# The signs that begin a formula in one spreadsheet or another, their full-width forms among them.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20", "'")
_TRUTH = {"yes": True, "no": False, "true": True, "false": False}


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Columns by name, all of one length: text, numbers (NaN where empty), or booleans."""

    columns: Mapping[str, NDArray[Any]]

    def __len__(self) -> int:
        return next((len(column) for column in self.columns.values()), 0)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    def rows(self) -> Iterator[dict[str, Any]]:
        """The lines, as plain Python values by column."""
        lists = [column.tolist() for column in self.columns.values()]
        for line in zip(*lists, strict=True):
            yield dict(zip(self.columns, line, strict=True))

    def to_pandas(self) -> Any:
        """The table as a pandas data frame."""
        return optional_library("pandas", "data frames").DataFrame(dict(self.columns))


def read_table(path: Path) -> Table:
    """A CSV file with a header, or the Parquet file beside it, which has all digits, where pyarrow can read it.

    Raises ValueError if the file is not a table.
    """
    exact = path.with_suffix(".parquet")
    if exact.exists() and find_spec("pyarrow") is not None:
        found = import_module("pyarrow.parquet").read_table(exact)
        return Table({name: _array(name, found.column(name)) for name in found.column_names})
    # Not pandas, which is optional and would read ids such as 007 as numbers.
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.reader(file))
    if not lines or any(len(line) != len(lines[0]) for line in lines):
        raise ValueError(f"{path.name} is not a table")
    cells = [[line[place] for line in lines[1:]] for place in range(len(lines[0]))]
    return Table({name: _typed(name, column) for name, column in zip(lines[0], cells, strict=True)})


def escaped_cell(text: str) -> str:
    """Text for a cell of a CSV file: with a leading apostrophe where a spreadsheet would read it as a formula.

    Text that begins with an apostrophe gets another one, so that `read_table` gives back every text as it was.
    """
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def _array(name: str, column: Any) -> NDArray[Any]:
    return np.array(column.to_pylist(), dtype=np.str_) if name in TEXT_COLUMNS else np.asarray(column.to_numpy())


def _typed(name: str, cells: list[str]) -> NDArray[Any]:
    """Ids stay text even if they look like numbers."""
    if name in TEXT_COLUMNS:
        return np.array([_unescaped(cell) for cell in cells], dtype=np.str_)
    if cells and all(cell.lower() in _TRUTH for cell in cells):
        return np.array([_TRUTH[cell.lower()] for cell in cells])
    try:
        return np.array([float(cell) if cell else np.nan for cell in cells])
    except ValueError:
        return np.array(cells, dtype=np.str_)


def _unescaped(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULA_STARTS) else cell


def optional_library(name: str, what: str) -> Any:
    """The module; BadInput says how to install it."""
    try:
        return import_module(name)
    except ImportError:
        raise BadInput(f"{what} need {name}, which is not installed", f"pip install {name}") from None


def component_names(rank: int) -> list[str]:
    """The names of the columns of U and V in data frames."""
    return [f"component {number}" for number in range(1, rank + 1)]


FloatArray = NDArray[np.float64]
OUTLIERS, SAMPLES = "outliers.csv", "samples.csv"


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """One run at one site: M ≈ L + S in the data's own units, features in rows and samples in columns.

    `L` is mapped, not loaded. `U` has a row for each feature, `V` for each sample: L = centre + scale · U Vᵀ.
    `features` is empty if the data has no names; `ids` are numbers of samples in the source if it has no ids.
    """

    manifest: Mapping[str, Any]
    L: FloatArray
    S: sparse.csc_array
    U: FloatArray
    V: FloatArray
    centre: FloatArray
    scale: FloatArray
    features: tuple[str, ...]
    ids: tuple[str, ...]
    folder: Path

    def outlier_table(self) -> Table:
        """Every flagged entry with id, feature, observed and expected value, the most significant first.

        Numbers have all their digits if the site has pyarrow, which then wrote outliers.parquet, and otherwise six.
        A run without closing rounds has no noise to measure by: its table has no z and no p-values.
        """
        if (self.folder / OUTLIERS).exists():
            return read_table(self.folder / OUTLIERS)
        found = self.outliers()
        at = {name: np.array([line[k] for line in found], dtype=np.str_) for k, name in enumerate(("id", "feature"))}
        return Table(at | {"deviation": np.array([line[2] for line in found], dtype=np.float64)})

    def sample_table(self) -> Table:
        """Every sample with its p-value and what makes it stand out, the least likely first; BadInput if not judged."""
        if not (self.folder / SAMPLES).exists():
            raise BadInput(
                f"the result in {self.folder} has no {SAMPLES}: its run had no closing rounds",
                "propose the run with closing_rounds = true",
            )
        return read_table(self.folder / SAMPLES)

    def to_pandas(self) -> dict[str, Any]:
        """L, S, U and V as pandas data frames with names and ids, and the outliers; L, S, V have a line per sample."""
        pandas = optional_library("pandas", "data frames")
        components = component_names(self.U.shape[1])
        names = pandas.Index(self._names(), name="feature")
        ids = pandas.Index(self.ids, name="id")
        return {
            "L": self._frame(np.asarray(self.L).T),
            "S": self._frame(self.S.toarray().T),
            "U": pandas.DataFrame(self.U, index=names, columns=components),
            "V": pandas.DataFrame(self.V, index=ids, columns=components),
            "outliers": self.outlier_table().to_pandas(),
        }

    def to_xarray(self) -> Any:
        """L, S, U, V, centre and scale as one xarray dataset over id, feature and component."""
        xarray = optional_library("xarray", "datasets")
        samples = ("id", "feature")
        arrays = {
            "L": (samples, np.asarray(self.L).T),
            "S": (samples, self.S.toarray().T),
            "U": (("feature", "component"), self.U),
            "V": (("id", "component"), self.V),
            "centre": (("feature",), self.centre),
            "scale": (("feature",), self.scale),
        }
        coordinates = {
            "id": list(self.ids),
            "feature": self._names(),
            "component": np.arange(1, self.U.shape[1] + 1),
        }
        return xarray.Dataset(arrays, coordinates, {"run": self.manifest["run"]})

    def outliers(self) -> list[tuple[str, str, float]]:
        """Every entry of S as (id, feature, value), the largest magnitudes first; without names, feature numbers."""
        entries = self.S.tocoo()
        order = np.argsort(-np.abs(entries.data), kind="stable")
        rows, columns = entries.coords
        return [(self.ids[columns[k]], self._feature(int(rows[k])), float(entries.data[k])) for k in order]

    def _names(self) -> list[str]:
        return [self._feature(row) for row in range(self.L.shape[0])]

    def _feature(self, row: int) -> str:
        return self.features[row] if self.features else str(row)

    def _frame(self, values: FloatArray) -> Any:
        pandas = optional_library("pandas", "data frames")
        return pandas.DataFrame(values, index=pandas.Index(self.ids, name="id"), columns=self._names())


def read_result(directory: str | Path) -> Result:
    """The result in `[results] dir`/RUN; UnusableState if it is damaged, BadInput if there is none."""
    folder = Path(directory)
    if not (folder / "manifest.json").is_file():
        hint = "give the directory of one run: `dcfpca-participant results` lists them"
        raise BadInput(f"{folder} is not the result of a run: it has no manifest.json", hint)
    try:
        return _read(folder)
    # numpy parses headers as Python source; damage raises many kinds of error.
    except Exception as error:
        raise UnusableState(f"the result in {folder} is damaged: {error}", "restore it from a backup") from error


def _read(folder: Path) -> Result:
    from scipy import sparse  # noqa: PLC0415  slow to import, and sites that write tables start without it

    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    L = np.load(folder / "L.npy", mmap_mode="r", allow_pickle=False)
    rows, columns = L.shape
    ids = _lines(folder / "ids.txt") or tuple(str(number) for number in range(columns))
    features = _lines(folder / "features.txt") or tuple(manifest["spec"].get("features", ()))
    if len(ids) != columns or len(features) not in (0, rows):
        raise ValueError("ids.txt or features.txt has another number of lines than L.npy")
    scaled = (folder / "centre.npy").exists()
    return Result(
        manifest=manifest,
        L=L,
        S=sparse.csc_array(sparse.load_npz(folder / "S.npz")),
        U=np.load(folder / "U.npy", allow_pickle=False),
        V=np.load(folder / "V.npy", allow_pickle=False),
        centre=np.load(folder / "centre.npy", allow_pickle=False) if scaled else np.zeros(rows),
        scale=np.load(folder / "scale.npy", allow_pickle=False) if scaled else np.ones(rows),
        features=features,
        ids=ids,
        folder=folder,
    )


def _lines(path: Path) -> tuple[str, ...]:
    return tuple(path.read_text(encoding="utf-8").splitlines()) if path.exists() else ()
