"""Writes the result of a finished run: L, S, V, U and a manifest, in a directory that appears complete."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dcfpca.atomic_files import atomic_directory, make_directories
from dcfpca.logs import log
from dcfpca.rpca.method import Columns, Consensus, FloatArray, Outcome
from dcfpca.rpca.refinement.closing_plan import FORM
from dcfpca.rpca.round_limits import BEFORE_UNITS
from dcfpca.rpca.scaling import found_units
from dcfpca.rpca.stage import Site
from dcfpca.rpca.stage_list import Method
from dcfpca.terms import Terms
from participant.data.data_config import RulesTable
from participant.data.rules import breaches
from participant.findings.explained import explain_flags
from participant.results.alone import fails_its_sites, fit_alone
from participant.results.block_files import SCORES, write_blocks
from participant.results.flag_tables import FlaggedResult, tables_entry, write_flag_tables, write_rule_table
from participant.results.manifest import (
    ALONE,
    ResultFacts,
    manifest_entries,
    own_view_note,
    site_shifts,
    site_standing,
    usual_here_notes,
    verdict_entry,
    write_manifest,
)
from participant.results.scoring_model import CONSENSUS, scoring_model

FILES = ("L.npy", "S.npz", "V.npy", "U.npy")
FEATURES, IDS = "features.txt", "ids.txt"
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0


@dataclass(frozen=True, slots=True)
class ResultNames:
    """Names of the features and ids of the samples, in the order of the result; without ids, numbers in the source.

    `orientation` is that of the site's own data; the files are always features-in-rows.
    """

    features: Sequence[str] = ()
    ids: Iterable[str] | None = None
    orientation: str = "features-in-rows"
    rules: RulesTable = field(default_factory=RulesTable)


def write_results(
    directory: Path,
    facts: ResultFacts,
    terms: Terms,
    site: Site,
    final: Consensus,
    data: Columns,
    names: ResultNames | None = None,
    alone: Callable[[Method], Site] | None = None,
) -> FloatArray:
    """Compute the result from the final consensus, block by block, and write it to `directory`/RUN; returns the U that
    a later run may begin at. `data` are the columns that `site` has. With `alone`, which makes a site of them, a result
    that most sites say the shared model fails is formed from a fit of these columns alone."""
    spec, method, columns = terms.spec, terms.method, data.shape[1]
    names = names or ResultNames(spec.features)
    make_directories(directory)
    final = replace(final, outcome=next((one for one in Outcome if one.value == facts.outcome), None))
    model, shared = method.model(final), method.model(final)["U"]
    if alone is not None and fails_its_sites(scoring_model(final.broadcast, final.stage, scaled=method.scaled)):
        method, site, final = fit_alone(spec, alone)
        assert final.outcome is not None
        model, facts = method.model(final), replace(facts, rounds=final.round, outcome=final.outcome.value, alone=True)
    factor = final.broadcast.tensor[:, : spec.width]  # closing broadcasts have columns for the features beside it
    kept, files = _entering(model["U"], factor), [*FILES, CONSENSUS]
    with atomic_directory(directory / facts.run_id) as target:
        np.save(target / "U.npy", factor[:, kept])
        broadcast = final.broadcast
        np.savez(target / CONSENSUS, tensor=broadcast.tensor, scalars=broadcast.scalars, stage=final.stage, form=FORM)
        written = write_blocks(target, site.finish(final), (spec.rows, columns), kept)
        files += [SCORES] if written.scores else []
        manifest = manifest_entries(facts, spec, int(np.count_nonzero(kept)), columns, site.certificate())
        if scaling := _write_scaling(target, model):
            manifest["scaling"] = scaling
            files += [scaling["centre"], scaling["scale"]]
        manifest["site_orientation"] = names.orientation
        ids = one_lines(names.ids or map(str, range(columns)))
        files += write_names(target, names.features, ids)
        judge = scoring_model(final.broadcast, final.stage, scaled=method.scaled)
        called = spec.features or tuple(names.features)
        units = found_units(final.broadcast, spec.rows) if method.scaled and final.stage not in BEFORE_UNITS else None
        shifts = site_shifts(judge, units, data, called)
        if shifts:
            log("site_differs", level="warning", run=facts.run_id, features=len(shifts))
        shifts += usual_here_notes(written.usual_here, columns, called) + own_view_note(judge, site.certificate())
        standing = ALONE if facts.alone else site_standing(judge, site.certificate())
        verdict = method.verdict(final, called)
        manifest["verdict"] = verdict_entry(verdict, facts.outcome, standing, shifts)
        tables = write_rule_table(target, list(breaches(data, names.features, names.rules)), ids)
        if written.scores and judge:
            causes = explain_flags(judge, data, written.flags, names.features)
            flagged = FlaggedResult.of(
                written, judge.deviation, ids, names.features, spec.flag_rate, causes, judge.plan.cut
            )
            manifest["instruments"] = flagged.sentences()
            tables += write_flag_tables(target, flagged)
        files += tables
        if tables:
            manifest["tables"] = tables_entry(tables, int(written.per_sample.sum()))
        write_manifest(target, manifest, files)
    return shared


def _entering(model: FloatArray, factor: FloatArray) -> NDArray[np.bool_]:
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


def _write_scaling(target: Path, model: Mapping[str, FloatArray]) -> dict[str, str]:
    """Write centre and scale by feature, if the run had them; returns what the manifest says about them."""
    centre = model.get("centre", np.zeros(model["U"].shape[0]))
    if "scale" not in model and not np.any(centre):
        return {}
    np.save(target / "centre.npy", centre)
    np.save(target / "scale.npy", model.get("scale", np.ones_like(centre)))
    meaning = "L = centre + scale * (U V^T), row by row; U is in scaled units, L and S are in the data's own"
    return {"centre": "centre.npy", "scale": "scale.npy", "meaning": meaning}


def write_names(target: Path, features: Sequence[str], ids: Sequence[str]) -> list[str]:
    """Write ids.txt and, if the features have names, features.txt: one per line, in the order of L and S."""
    written = {IDS: ids, FEATURES: one_lines(features)} if features else {IDS: ids}
    for name, lines in written.items():
        with (target / name).open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    return list(written)


def one_lines(names: Iterable[str]) -> list[str]:
    """The names without line ends, so that line k of a file is name k."""
    return [" ".join(name.splitlines()) for name in names]


async def until_written(run_id: str, write: Callable[[], Awaitable[None]]) -> None:
    """Write the results of a run, again and again while the operating system refuses; each new reason is logged."""
    pause, said = FIRST_PAUSE, ""
    while True:
        try:
            return await write()
        except OSError as error:
            if str(error) != said:
                hint = "free space at [results] dir or correct its permissions; it is tried again"
                log("results_not_written", level="error", run=run_id, reason=str(error), hint=hint)
            said = str(error)
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
