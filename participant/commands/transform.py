"""`dcfpca-participant transform`: clean and score new columns with a model that the site already holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from dcfpca.atomic_files import atomic_directory
from dcfpca.errors import BadInput, Refused
from dcfpca.rpca.column_blocks import blocks
from dcfpca.rpca.robust_projection import project
from dcfpca.rpca.scaling import ScaledColumns
from participant.config import Config
from participant.data import measure, open_matrix, select_features, without_empty_samples
from participant.results import MANIFEST, ResultNames, load_features, load_model, load_scaling, write_names


def transform(config: Config, run_id: str, source: Path, out: Path) -> dict[str, Any]:
    """Write L.npy, S.npz, V.npy (L = U Vᵀ) and scores.npy (outlier share, noise) for the columns in `source`."""
    results = config.results.dir
    if not (results / run_id / MANIFEST).exists():
        raise Refused(f"there is no result of run {run_id} in {results}", "see `dcfpca-participant results`")
    if out.exists():
        raise BadInput(f"{out} exists already", "name a directory that does not exist")
    U = load_model(results, run_id)
    table = config.data.model_copy(update={"path": source, "query": "", "url": ""})
    matrix = open_matrix(table, config.state.dir / "spool", config.engine.memory_limit)
    chosen = select_features(matrix, load_features(results, run_id), str(source))
    used = without_empty_samples(chosen, measure(chosen.columns, str(source)))
    columns = used.columns
    rows, count = columns.shape
    if rows != U.shape[0]:
        hint = "check [data] orientation, and that the features are those of the run"
        raise BadInput(f"{source} has {rows} rows, the model of run {run_id} has {U.shape[0]}", hint)
    scaled = ScaledColumns(columns, *load_scaling(results, run_id, rows))
    centre, scale = scaled.centre[:, None], scaled.scale[:, None]
    Q, triangle = np.linalg.qr(U)
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_directory(out) as target:
        L = np.lib.format.open_memmap(target / "L.npy", "w+", np.float64, (rows, count), fortran_order=True)
        V, scores, outliers = np.zeros((count, U.shape[1])), np.zeros((count, 2)), []
        for start, stop in blocks(columns):
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
        write_names(target, ResultNames(used.features, used.all_ids()), count)
    return {
        "run": run_id,
        "rank": U.shape[1],
        "columns": count,
        "outliers": int(S.nnz),
        "threshold": float(3.0 * np.median(scores[:, 1])),
        "directory": str(out),
    }
