"""Writes the result of a finished run: L, S, V, U and a manifest, in a directory that appears complete."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from dcfpca.atomic_files import atomic_directory, sha256_of_file
from dcfpca.methods import method_of
from dcfpca.rpca.method import (
    ColumnScores,
    Consensus,
    FloatArray,
    Outcome,
    ResultBlock,
    Site,
    Stage,
    TensorMessage,
)
from dcfpca.rpca.subspace.rejected_columns import unexplained_text
from dcfpca.spec import RunSpec
from dcfpca.version import __version__
from participant.results.block_files import ColumnsFile, OutliersFile
from participant.results.flag_tables import FlaggedResult, tables_entry, write_flag_tables
from participant.results.reading import MANIFEST
from participant.results.scoring_model import CONSENSUS, ScoringModel, scoring_model
from participant.results.verdict_entry import site_standing, verdict_entry

FILES = ("L.npy", "S.npz", "V.npy", "U.npy")
FEATURES, IDS = "features.txt", "ids.txt"
SCORES = "scores.npz"
"""Of every sample: its p-value, its largest |z| and its squared distance within the subspace."""


@dataclass(frozen=True, slots=True, eq=False)
class FinalBroadcast:
    """The last broadcast of a run, and the stage in which it ended."""

    broadcast: TensorMessage
    stage: Stage = Stage.FIT


@dataclass(frozen=True, slots=True)
class ResultFacts:
    """What the manifest says besides figures: participant, run, outcome and time."""

    run_id: str
    participant: str
    digest: bytes
    rounds: int
    outcome: str
    written: str
    privacy: Mapping[str, Any] | None = None
    """What a run with differential privacy has cost here."""
    verified: bool | None = None
    """Whether the site has checked that the final consensus follows from the last sum; None where it cannot be."""


@dataclass(frozen=True, slots=True)
class ResultNames:
    """Names of the features and ids of the samples, in the order of the result; without ids, numbers in the source.

    `orientation` is that of the site's own data; the files are always features-in-rows.
    """

    features: Sequence[str] = ()
    ids: Iterable[str] | None = None
    orientation: str = "features-in-rows"


def write_results(
    directory: Path,
    facts: ResultFacts,
    spec: RunSpec,
    site: Site,
    final: FinalBroadcast,
    columns: int,
    names: ResultNames | None = None,
) -> None:
    """Compute the result from the final broadcast, block by block, and write it to `directory`/RUN."""
    names = names or ResultNames(spec.features)
    directory.mkdir(parents=True, exist_ok=True)
    named = spec if spec.features else spec.model_copy(update={"features": tuple(names.features)})  # for the verdict
    method, consensus = method_of(named), _final_consensus(facts, final)
    model = method.model(consensus)
    factor = final.broadcast.tensor[:, : spec.width]  # closing broadcasts have columns for the features beside it
    kept = _entering(model["U"], factor)
    with atomic_directory(directory / facts.run_id) as target:
        np.save(target / "U.npy", factor[:, kept])
        np.savez(target / CONSENSUS, tensor=final.broadcast.tensor, scalars=final.broadcast.scalars, stage=final.stage)
        scored = _write_blocks(target, site.finish(final.broadcast), (spec.rows, columns), kept)
        manifest = _manifest(facts, spec, int(np.count_nonzero(kept)), columns, site.certificate())
        scaling = _write_scaling(target, model)
        if scaling:
            manifest["scaling"] = scaling
        manifest["site_orientation"] = names.orientation
        if facts.verified is not None:
            manifest["consensus_verified"] = facts.verified
        if facts.privacy is not None:
            manifest["privacy"] = dict(facts.privacy)
        more = (*(scaling[name] for name in ("centre", "scale") if scaling), *write_names(target, names, columns))
        more = (CONSENSUS, *([SCORES] if scored else []), *more)
        judge = scoring_model(final.broadcast, final.stage, scaled=spec.scaling == "robust")
        standing = site_standing(judge, site.certificate())
        manifest["verdict"] = verdict_entry(method.verdict(consensus), facts.outcome, standing)
        if scored and judge is not None:
            tables = write_flag_tables(target, _flagged(target, judge, names, spec.flag_rate))
            more, manifest["tables"] = (*more, *tables), tables_entry(tables)
        manifest["files"] = files_entry(target, (*FILES, *more))
        (target / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _flagged(target: Path, judge: ScoringModel, names: ResultNames, rate: float) -> FlaggedResult:
    """The result as the tables need it, from the files just written."""
    with np.load(target / SCORES, allow_pickle=False) as kept:
        scores = ColumnScores(kept["p_value"], kept["largest_z"], kept["distance"])
    ids = (target / IDS).read_text(encoding="utf-8").splitlines()
    return FlaggedResult(
        np.load(target / "L.npy", mmap_mode="r", allow_pickle=False),
        scipy.sparse.csc_array(scipy.sparse.load_npz(target / "S.npz")),
        judge.deviation,
        scores,
        ids,
        names.features,
        rate,
    )


def _final_consensus(facts: ResultFacts, final: FinalBroadcast) -> Consensus:
    outcome = next((one for one in Outcome if one.value == facts.outcome), None)
    return Consensus(facts.rounds, final.broadcast, outcome=outcome, stage=final.stage)


def _entering(model: FloatArray, factor: FloatArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which columns of the broadcast's U belong to the model; columns without weight do not contribute to L = U Vᵀ."""
    remaining = iter(model.T)
    wanted = next(remaining, None)
    kept = np.zeros(factor.shape[1], dtype=bool)
    for index, column in enumerate(factor.T):
        if wanted is not None and np.array_equal(column, wanted):
            kept[index] = True
            wanted = next(remaining, None)
    # A model that is not a selection of the broadcast's columns does not tell which of them matter: all are kept.
    return kept if wanted is None else np.ones_like(kept)


def _write_blocks(
    target: Path, blocks: Iterable[ResultBlock], shape: tuple[int, int], kept: np.ndarray[Any, np.dtype[np.bool_]]
) -> bool:
    """Write each block as it is computed, because the matrix may be larger than memory; whether there are scores."""
    rows, columns = shape
    width, scores = int(kept.sum()), list[ColumnScores]()
    with (
        ColumnsFile(target / "L.npy", rows, columns) as L,
        ColumnsFile(target / "V.npy", width, columns, turned=True) as V,
        OutliersFile(target / "S.npz", rows, columns) as S,
    ):
        for block in blocks:
            L.append(block.L)
            V.append(block.V[:, kept].T)
            S.append(block.S)
            if block.scores is not None:
                scores.append(block.scores)
    if scores:
        np.savez(
            target / SCORES,
            p_value=np.concatenate([one.p_value for one in scores]),
            largest_z=np.concatenate([one.largest_z for one in scores]),
            distance=np.concatenate([one.distance for one in scores]),
        )
    return bool(scores)


def _write_scaling(target: Path, model: Mapping[str, FloatArray]) -> dict[str, str]:
    """Write centre and scale by feature, if the run had them; returns what the manifest says about them."""
    centre = model.get("centre", np.zeros(model["U"].shape[0]))
    if "scale" not in model and not np.any(centre):
        return {}
    np.save(target / "centre.npy", centre)
    np.save(target / "scale.npy", model.get("scale", np.ones_like(centre)))
    meaning = "L = centre + scale * (U V^T), row by row; U is in scaled units, L and S are in the data's own"
    return {"centre": "centre.npy", "scale": "scale.npy", "meaning": meaning}


def write_names(target: Path, names: ResultNames, columns: int) -> tuple[str, ...]:
    """Write ids.txt and, if the features have names, features.txt: one per line, in the order of L and S."""
    with (target / IDS).open("w", encoding="utf-8") as file:
        file.writelines(f"{one_line(name)}\n" for name in names.ids or (str(number) for number in range(columns)))
    if not names.features:
        return (IDS,)
    (target / FEATURES).write_text("".join(f"{one_line(name)}\n" for name in names.features), encoding="utf-8")
    return IDS, FEATURES


def one_line(name: str) -> str:
    """A name without line ends, so that line k of the file is name k."""
    return " ".join(name.splitlines())


def _manifest(
    facts: ResultFacts, spec: RunSpec, rank: int, columns: int, certificate: dict[str, float]
) -> dict[str, Any]:
    return {
        "run": facts.run_id,
        "label": spec.label,
        "participant": facts.participant,
        "spec_sha256": facts.digest.hex(),
        "spec": json.loads(spec.canonical()),
        "method": spec.method,
        "rounds": facts.rounds,
        "outcome": facts.outcome + unexplained_text(certificate),
        "rank": rank,
        "rows": spec.rows,
        "columns": columns,
        "orientation": "features-in-rows",
        "certificate": certificate,
        "software": f"dcfpca {__version__}",
        "written": facts.written,
    }


def files_entry(target: Path, names: Iterable[str]) -> dict[str, Any]:
    """What the manifest says about files: size and digest of each."""
    paths = {name: target / name for name in names}
    return {name: {"bytes": at.stat().st_size, "sha256": sha256_of_file(at).hex()} for name, at in paths.items()}
