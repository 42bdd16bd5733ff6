"""The summary of docs/results.md: what a user gets, from the records alone, in words and small tables."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.sections import document, lines, paragraphs, power, table

APPENDIX = "measurements.md"


def summary(results: Path) -> str:
    """Every part whose record is there."""
    parts = (_entries, _samples, _causes, _bad_site, _exactness, _cost)
    return "\n\n".join(text for part in parts if (text := part(results)))


def _percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f} %"


def _entries(results: Path) -> str:
    found = document(results / "cells.json")
    if found is None:
        return ""
    told = found.summary
    rows = [
        ["errors found and nothing else flagged (F1)", f"{told.errors.f1:.2f}"],
        ["of what is flagged, errors that were put in (precision)", _percent(told.errors.precision, 0)],
        ["of what was put in, flagged (recall)", _percent(told.errors.recall, 0)],
        ["entries flagged where nothing was put in: mean / worst table",
         f"{_percent(told.null.flagged_mean, 2)} / {_percent(told.null.flagged_worst, 2)}"],
        ["share of ordinary lines in the list: as the run states it / in truth",
         f"{_percent(told.stated.ordinary_stated)} / {_percent(told.stated.ordinary_true)}"],
    ]  # fmt: skip
    return paragraphs(
        "## Errors in real tables",
        "    python -m benchmarks.cells --data DIR --json benchmarks/results/cells.json",
        "Twelve real tables, split over sites; 3 % of the entries are changed in one of five ways "
        f"({told.errors.runs} runs). Values that are unusual in the original tables count as "
        "false alarms.",
        table(["", "measured"], rows),
        f"Beside other tools: the [appendix]({APPENDIX}#gross-errors-in-real-tables).",
    )


_KINDS = {
    "shift": "20 % of the samples moved by 3 deviations",
    "times": "20 % of the samples scaled by 2.2",
    "cluster": "20 % of the samples in a tight cluster",
    "scrambled": "20 % of the samples with their values scrambled",
}


def _samples(results: Path) -> str:
    found = document(results / "samples.json")
    if found is None:
        return ""
    told = vars(found.summary)
    rows = [
        [words, _percent(told[kind].recall, 0), _percent(told[kind].false), _robpca(told[kind])]
        for kind, words in _KINDS.items()
        if kind in told
    ]
    rows.insert(0, ["nothing put in", "–", _percent(told["none"].false, 2), "–"])
    instruments = "; ".join(
        f"{word}: F1 {told[kind].f1:.2f}"
        for kind, word in (("stuck", "a feature that repeats one value"), ("drift", "one that drifts"))
        if kind in told
    )
    return paragraphs(
        "## Unusual samples and instruments",
        "    python -m benchmarks.samples --data DIR --json benchmarks/results/samples.json",
        "The same tables with bad samples put in: how many of those are flagged, and how many of the others. "
        "ROBPCA (R's rrcov, its defaults) has all data in one place.",
        table(["put in", "found", "others flagged", "ROBPCA found / others"], rows),
        f"Instruments: {instruments}.",
    )


def _robpca(told: Any) -> str:
    if not hasattr(told, "robpca_recall"):
        return "–"
    return f"{_percent(told.robpca_recall, 0)} / {_percent(told.robpca_false)}"


def _causes(results: Path) -> str:
    found = document(results / "causes.json")
    if found is None:
        return ""
    kinds = [vars(one) for name, one in vars(found).items() if name != "untouched"]
    put, flagged, named, right = (sum(one[key] for one in kinds) for key in ("put in", "flagged", "named", "right"))
    return paragraphs(
        "## What may have happened",
        "    python -m benchmarks.causes --data DIR --json benchmarks/results/causes.json",
        f"{put} mistakes of seven kinds (decimal point, unit, sign, swapped, code, copied, digits): {flagged} are "
        f"flagged, a cause is named for {_percent(named / flagged, 0)} of those, and it is the right one for "
        f"{_percent(right / named, 0)}.",
    )


def _bad_site(results: Path) -> str:
    path = results / "poisoning.json"
    if not path.exists():
        return ""
    grouped: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for row in document(path):
        grouped[row.attack][row.cohort].append(row)
    cohorts = ("1of10", "1of4", "3of10")

    def cell(rows: list[Any]) -> str:
        return f"{mean(row.f1 for row in rows):.2f} / {mean(row.healthy for row in rows) * 100:.2f} %" if rows else "–"

    body = [
        [attack, *(cell(found.get(cohort, found.get("0of10", []))) for cohort in cohorts)]
        for attack, found in grouped.items()
    ]
    return paragraphs(
        "## Bad sites",
        "    python -m benchmarks.poisoning --json benchmarks/results/poisoning.json",
        "What the honest sites still find when one of ten, one of four or three of ten send bad data or bad updates: "
        "F1 of their own errors, and the share of their healthy entries that are flagged. Lines that begin with "
        "*none* have no bad site.",
        table(["bad sites send", "one of ten", "one of four", "three of ten"], body),
    )


def _exactness(results: Path) -> str:
    easy = lines(results / "solver-easy.jsonl")
    if not easy:
        return ""
    most = max(row["rounds"] for row in easy)
    return paragraphs(
        "## Exact data",
        "    python -m benchmarks.solver easy",
        f"Matrices that are exactly low-rank plus sparse: {len(easy)} problems end after at most {most} rounds, with "
        f"an error of L of at most {power(max(row['relative_error_L'] for row in easy))}. Against the published "
        f"solvers, in CPU seconds: the [appendix]({APPENDIX}#peers-the-strongest-solvers-for-one-machine). Some that "
        "are given more information are ahead.",
    )


def _cost(results: Path) -> str:
    many, core = document(results / "many.json"), document(results / "out_of_core.json")
    rounds = document(results / "rounds.json") or []
    told = []
    if rounds:
        told.append(
            "A round of the deployed federation with ten sites on two cores takes "
            + ", ".join(
                f"{power(row.median_round_s)} s ({row.aggregation}, {row.rows} × {row.rank})"
                for row in rounds
                if row.participants == 10
            )
            + "."
        )
    if many:
        told.append("A thousand sites have been run against one aggregator; its memory is in the appendix,")
        told.append("with secure runs of 600 sites and of 500,000 features.")
    if core:
        told.append("A matrix of 20 GiB has been run under a limit of 2 GiB.")
    if not told:
        return ""
    return paragraphs("## Cost", f"{' '.join(told)} The sections of the [appendix]({APPENDIX}#the-exchange) say how.")
