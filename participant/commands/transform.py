"""`dcfpca-participant transform`: clean and score new columns with a model that the site already holds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from dcfpca.atomic_files import atomic_directory
from dcfpca.errors import BadInput, Refused
from dcfpca.rpca.column_blocks import ScaledColumns, blocks
from dcfpca.rpca.method import Columns, ColumnScores, FloatArray, ResultBlock
from dcfpca.rpca.refinement.scoring import findings_of
from dcfpca.rpca.robust_projection import project
from dcfpca.text.console import result
from participant.commands.results import show_worst
from participant.config import Config
from participant.data.facts import measure, without_empty_samples
from participant.data.matrix import select_features
from participant.data.readers import open_matrix
from participant.data.rules import breaches
from participant.findings.decisions import Decision, Place
from participant.findings.explained import explain_flags
from participant.results.block_files import write_blocks
from participant.results.flag_tables import (
    FlaggedResult,
    significant,
    tables_entry,
    write_flag_tables,
    write_rule_table,
)
from participant.results.manifest import MANIFEST, write_manifest
from participant.results.reading import load_features, load_model, load_scaling, load_spec
from participant.results.scoring_model import ScoringModel, load_scoring_model
from participant.results.writing import one_lines, write_names

SCORED = "scored"
"""Below the directory of a run: where new samples go that its model has judged, so that the console finds them."""


def of_source(config: Config, source: Path) -> Config:
    """The configuration with another file in the place of the site's data."""
    table = config.data.model_copy(update={"path": source.resolve(), "query": "", "url": ""})
    return config.model_copy(update={"data": table})


def transform(config: Config, run_id: str, source: Path, out: Path) -> dict[str, Any]:
    """Write L, S, V, scores and the tables of flags for the columns in `source`, judged by the null of the run."""
    results = config.results.dir
    if not (results / run_id / MANIFEST).exists():
        raise Refused(f"there is no result of run {run_id} in {results}", "see `dcfpca-participant results`")
    if out.exists():
        raise BadInput(f"{out} exists already", "name a directory that does not exist")
    U = load_model(results, run_id)
    matrix = open_matrix(of_source(config, source).data, config.state.dir / "spool", config.engine.memory_limit)
    spec = load_spec(results, run_id)
    may_lack = spec.missing_features == "allow"
    chosen = select_features(matrix, load_features(results, run_id), str(source), may_lack=may_lack)
    used = without_empty_samples(chosen, measure(chosen.columns, str(source)))
    columns = used.columns
    rows, count = columns.shape
    if rows != U.shape[0]:
        hint = "check [data] orientation, and that the features are those of the run"
        raise BadInput(f"{source} has {rows} features, the model of run {run_id} has {U.shape[0]}", hint)
    out.parent.mkdir(parents=True, exist_ok=True)
    orientation = "samples-in-rows" if matrix.samples_in_rows else "features-in-rows"
    with atomic_directory(out) as target:
        ids = one_lines(used.all_ids())
        write_names(target, used.features, ids)
        judge = load_scoring_model(results, run_id, scaled=spec.scaling != "none")
        if judge is not None:
            found = _scored(target, judge, columns, ids, used.features, spec.flag_rate)
        else:
            found = _projected(target, U, ScaledColumns(columns, *load_scaling(results, run_id, rows)))
        broken = list(breaches(columns, used.features, used.rules))
        write_rule_table(target, broken, ids)
        found["broken_rules"] = len(broken)
        report = {"run": run_id, "rank": U.shape[1], "columns": count, **found, "directory": str(out)}
        about = {"columns": count, "site_orientation": orientation, "scored": source.name}
        _write_manifest(target, results / run_id, {**about, "verdict": {"sentence": _sentence(report)}})
    return report


def _write_manifest(target: Path, run: Path, more: dict[str, Any]) -> None:
    """The model's files and a manifest beside the new ones, so that the directory is read like that of a run."""
    for name in ("U.npy", "centre.npy", "scale.npy"):
        if (run / name).exists():
            shutil.copyfile(run / name, target / name)
    manifest = json.loads((run / MANIFEST).read_text(encoding="utf-8"))
    more["verdict"]["sound"] = manifest.get("verdict", {}).get("sound", False)
    for key in ("certificate", "files", "tables", "instruments"):
        manifest.pop(key, None)
    written = sorted(path.name for path in target.iterdir())
    if tables := [name for name in written if name.endswith((".csv", ".parquet"))]:
        more = {**more, "tables": tables_entry(tables)}
    write_manifest(target, {**manifest, **more, "transformed": True}, written)


def _scored(
    target: Path, judge: ScoringModel, columns: Columns, ids: Sequence[str], features: Sequence[str], rate: float
) -> dict[str, Any]:
    """Fit and score against the null of the run: the same flags and p-values as its own samples have."""

    def transformed() -> Iterator[ResultBlock]:
        for start, stop in blocks(columns):
            M = columns.read(start, stop)
            made = judge.transform(M)
            S, found = findings_of(made.scored, M, made.L, made.scored.z)
            scores = ColumnScores(made.scored.p_value, made.scored.largest_z, made.scored.distance)
            yield ResultBlock(start, made.L, S, made.V, scores, found)

    written = write_blocks(target, transformed(), columns.shape, np.ones(judge.plan.rank, dtype=bool))
    assert written.scores is not None  # every block has them
    causes = explain_flags(judge, columns, written.flags, features)
    write_flag_tables(target, FlaggedResult.of(written, judge.deviation, ids, features, rate, causes))
    odd = int(np.count_nonzero(significant(written.scores.p_value, rate)))
    return {"outliers": int(written.per_sample.sum()), "flagged_samples": odd, "flag_rate": rate}


def _projected(target: Path, U: FloatArray, scaled: ScaledColumns) -> dict[str, Any]:
    """Robust projection alone, for runs without a null: outlier share and noise per column in scores.npy."""
    rows, count = scaled.shape
    centre, scale = scaled.centre[:, None], scaled.scale[:, None]
    Q, triangle = np.linalg.qr(U)
    scores = np.zeros((count, 2))

    def projected() -> Iterator[ResultBlock]:
        for start, stop in blocks(scaled):
            block = project(Q, scaled.read(start, stop))
            V = np.linalg.lstsq(triangle, block.coefficients.T, rcond=None)[0].T
            scores[start:stop, 0] = np.count_nonzero(block.outliers, axis=0) / rows
            scores[start:stop, 1] = block.noise
            L = centre + scale * (Q @ block.coefficients.T)
            yield ResultBlock(start, L, sparse.csc_array(scale * block.outliers), V)

    written = write_blocks(target, projected(), scaled.shape, np.ones(U.shape[1], dtype=bool))
    np.save(target / "scores.npy", scores)
    return {"outliers": int(written.per_sample.sum()), "threshold": float(3.0 * np.median(scores[:, 1]))}


def show_transform(report: dict[str, Any], out: Path, decided: Mapping[Place, Decision]) -> None:
    """What `transform` prints."""
    result(f"{_sentence(report)} Files are in {out}.")
    show_worst(out, decided)


def _sentence(report: Mapping[str, Any]) -> str:
    judged = f"{report['columns']} samples, judged by the model of run {report['run']} (rank {report['rank']})"
    if "threshold" in report:
        return f"{judged}: {report['outliers']} entries are outliers beyond {report['threshold']:.3g}."
    rate = f"at a false discovery rate of {100 * report['flag_rate']:g} %"
    said = f"{judged}: {report['outliers']} entries and {report['flagged_samples']} samples are flagged {rate}"
    return f"{said}; {report['broken_rules']} values break a rule." if report["broken_rules"] else f"{said}."
