"""Reads the result directory that a participant wrote after a run: arrays with names and ids, and data frames."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dcfpca.errors import BadInput, UnusableState

FloatArray = NDArray[np.float64]


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

    def low_rank_frame(self) -> Any:
        """L as a pandas data frame with a line for each sample."""
        return self._frame(np.asarray(self.L).T)

    def outlier_frame(self) -> Any:
        """S as a pandas data frame with a line for each sample; 0 where nothing is out of line."""
        return self._frame(self.S.toarray().T)

    def outliers(self) -> list[tuple[str, str, float]]:
        """Every entry of S as (id, feature, value), the largest magnitudes first; without names, feature numbers."""
        entries = self.S.tocoo()
        order = np.argsort(-np.abs(entries.data), kind="stable")
        rows, columns = entries.coords
        return [(self.ids[columns[k]], self._feature(int(rows[k])), float(entries.data[k])) for k in order]

    def _feature(self, row: int) -> str:
        return self.features[row] if self.features else str(row)

    def _frame(self, values: FloatArray) -> Any:
        try:
            pandas = import_module("pandas")
        except ImportError:
            raise BadInput("data frames need pandas, which is not installed", "pip install pandas") from None
        names = [self._feature(row) for row in range(values.shape[1])]
        return pandas.DataFrame(values, index=pandas.Index(self.ids, name="id"), columns=names)


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
    )


def _lines(path: Path) -> tuple[str, ...]:
    return tuple(path.read_text(encoding="utf-8").splitlines()) if path.exists() else ()
