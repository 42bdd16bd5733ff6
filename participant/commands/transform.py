"""`dcfpca-participant transform`: clean and score new columns with a model that the site already holds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from dcfpca.atomic_files import atomic_directory
from dcfpca.errors import BadInput, Refused
from dcfpca.rpca.column_blocks import blocks
from dcfpca.rpca.method import Columns, ColumnScores, FloatArray
from dcfpca.rpca.robust_projection import project
from dcfpca.rpca.scaling import ScaledColumns
from participant.config import Config
from participant.data import measure, open_matrix, select_features, without_empty_samples
from participant.results import (
    MANIFEST,
    ResultNames,
    load_features,
    load_model,
    load_scaling,
    load_scoring_model,
    load_spec,
    write_names,
)
from participant.results.flag_tables import FlaggedResult, significant, tables_entry, write_flag_tables
from participant.results.scoring_model import ScoringModel
from participant.results.writing import IDS, files_entry


def transform(config: Config, run_id: str, source: Path, out: Path) -> dict[str, Any]:
    """Write L, S, V, scores and the tables of flags for the columns in `source`, judged by the null of the run."""
    results = config.results.dir
    if not (results / run_id / MANIFEST).exists():
        raise Refused(f"there is no result of run {run_id} in {results}", "see `dcfpca-participant results`")
    if out.exists():
        raise BadInput(f"{out} exists already", "name a directory that does not exist")
    U = load_model(results, run_id)
    table = config.data.model_copy(update={"path": source, "query": "", "url": ""})
    matrix = open_matrix(table, config.state.dir / "spool", config.engine.memory_limit)
    may_lack = load_spec(results, run_id).missing_features == "allow"
    chosen = select_features(matrix, load_features(results, run_id), str(source), may_lack=may_lack)
    used = without_empty_samples(chosen, measure(chosen.columns, str(source)))
    columns = used.columns
    rows, count = columns.shape
    if rows != U.shape[0]:
        hint = "check [data] orientation, and that the features are those of the run"
        raise BadInput(f"{source} has {rows} rows, the model of run {run_id} has {U.shape[0]}", hint)
    out.parent.mkdir(parents=True, exist_ok=True)
    orientation = "samples-in-rows" if matrix.samples_in_rows else "features-in-rows"
    with atomic_directory(out) as target:
        write_names(target, ResultNames(used.features, used.all_ids()), count)
        judge = load_scoring_model(results, run_id, scaled=load_spec(results, run_id).scaling == "robust")
        if judge is not None:
            found = _scored(target, judge, columns, used.features, load_spec(results, run_id).flag_rate)
        else:
            found = _projected(target, U, ScaledColumns(columns, *load_scaling(results, run_id, rows)))
        _write_manifest(target, results / run_id, {"columns": count, "site_orientation": orientation})
    return {"run": run_id, "rank": U.shape[1], "columns": count, **found, "directory": str(out)}


def _write_manifest(target: Path, run: Path, more: dict[str, Any]) -> None:
    """The model's files and a manifest beside the new ones, so that the directory is read like that of a run."""
    for name in ("U.npy", "centre.npy", "scale.npy"):
        if (run / name).exists():
            shutil.copyfile(run / name, target / name)
    manifest = json.loads((run / MANIFEST).read_text(encoding="utf-8"))
    for key in ("certificate", "files", "tables"):
        manifest.pop(key, None)
    written = sorted(path.name for path in target.iterdir())
    if tables := [name for name in written if name.endswith((".csv", ".parquet"))]:
        more = {**more, "tables": tables_entry(tables)}
    document = {**manifest, **more, "transformed": True, "files": files_entry(target, written)}
    (target / MANIFEST).write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _scored(
    target: Path, judge: ScoringModel, columns: Columns, features: Sequence[str], rate: float
) -> dict[str, Any]:
    """Fit and score against the null of the run: the same flags and p-values as its own samples have."""
    rows, count = columns.shape
    L = np.lib.format.open_memmap(target / "L.npy", "w+", np.float64, (rows, count), fortran_order=True)
    V, outliers, scores = np.zeros((count, judge.plan.rank)), [], []
    for start, stop in blocks(columns):
        M = columns.read(start, stop)
        made = judge.transform(M)
        L[:, start:stop], V[start:stop] = made.L, made.V
        outliers.append(sparse.csc_array(np.where(made.scored.flagged, M - made.L, 0.0)))
        scores.append((made.scored.p_value, made.scored.largest_z, made.scored.distance))
    L.flush()
    S = sparse.csc_array(sparse.hstack(outliers, format="csc"))
    p_value, largest_z, distance = (np.concatenate(parts) for parts in zip(*scores, strict=True))
    sparse.save_npz(target / "S.npz", S)
    np.save(target / "V.npy", V)
    np.savez(target / "scores.npz", p_value=p_value, largest_z=largest_z, distance=distance)
    ids = (target / IDS).read_text(encoding="utf-8").splitlines()
    samples = ColumnScores(p_value, largest_z, distance)
    write_flag_tables(target, FlaggedResult(L, S, judge.deviation, samples, ids, features, rate))
    odd = int(np.count_nonzero(significant(p_value, rate)))
    return {"outliers": int(S.nnz), "flagged_samples": odd, "flag_rate": rate}


def _projected(target: Path, U: FloatArray, scaled: ScaledColumns) -> dict[str, Any]:
    """Robust projection alone, for runs without a null: outlier share and noise per column in scores.npy."""
    rows, count = scaled.shape
    centre, scale = scaled.centre[:, None], scaled.scale[:, None]
    Q, triangle = np.linalg.qr(U)
    L = np.lib.format.open_memmap(target / "L.npy", "w+", np.float64, (rows, count), fortran_order=True)
    V, scores, outliers = np.zeros((count, U.shape[1])), np.zeros((count, 2)), []
    for start, stop in blocks(scaled):
        block = project(Q, scaled.read(start, stop))
        L[:, start:stop] = centre + scale * (Q @ block.coefficients.T)
        V[start:stop] = np.linalg.lstsq(triangle, block.coefficients.T, rcond=None)[0].T
        outliers.append(sparse.csc_array(scale * block.outliers))
        scores[start:stop, 0] = np.count_nonzero(block.outliers, axis=0) / rows
        scores[start:stop, 1] = block.noise
    L.flush()
    S = sparse.csc_array(sparse.hstack(outliers, format="csc"))
    sparse.save_npz(target / "S.npz", S)
    np.save(target / "V.npy", V)
    np.save(target / "scores.npy", scores)
    return {"outliers": int(S.nnz), "threshold": float(3.0 * np.median(scores[:, 1]))}
