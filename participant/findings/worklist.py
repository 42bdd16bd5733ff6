"""The worklist of a result: flagged entries, values that break a rule of the site, flagged samples without either, and
instruments that repeat or drift; each with what people decided about it.

A decision is about a value of a sample: it is found again in later runs by id, feature and value, and ends when the
value changes. About a sample as a whole it is found again by the id alone, about an instrument by feature and samples.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dcfpca.python_api.result_files import read_table
from participant.findings.decisions import Decision, Place
from participant.results.flag_tables import INSTRUMENTS, OUTLIERS, RULES, SAMPLES, THIS_SITE, instrument_text

TELLING = 0.02
SPIKY_SHARE, FEWEST_SPIKY = 2 / 3, 20
"""Of the flagged entries without a cause: a feature with more of them is set aside; in shorter lists none is."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A flagged entry; or with an empty `feature` a flagged sample, and with `said` an instrument and what it does."""

    sample: str
    feature: str
    observed: float
    expected: float
    z: float
    exceeded_by: float = math.nan  # at most so many of `values` at all sites are further off
    values: float = math.nan
    cause: str = ""
    corrected: float = math.nan
    unusual_for: str = ""
    said: str = ""
    rule: str = ""
    """Which rule of the site the value breaks."""
    decision: Decision | None = None
    aside: bool = False
    """Whether it is of the one feature that makes most of the flags, and comes last."""

    @property
    def place(self) -> Place:
        """By what a decision is found again; six digits are what every table has."""
        return Place(self.sample, self.feature, "" if math.isnan(self.observed) else f"{self.observed:.6g}")

    @property
    def words(self) -> str:
        """What a search looks in."""
        return f"{self.sample} {self.feature} {self.cause} {self.said} {self.story}".lower()

    @property
    def unusual(self) -> str:
        """How unusual it is."""
        if self.said or math.isinf(self.z):
            return self.said
        if not self.feature:
            return "unusual as a whole: many entries a little off, or far from the centre"
        side = "above" if self.z > 0 else "below"
        times = f"{abs(self.z):.3g}" if abs(self.z) < 1000 else "over 1000"
        said = f"{side} what is expected, by {times} times what is usual"
        if self.unusual_for == THIS_SITE:
            said += "; usual for all sites together, unusual at this one: another device, or a mix-up?"
        # A bound that many lie below says nothing; it is wide where a feature has few values.
        if not self.exceeded_by <= TELLING * self.values:
            return said
        return f"{said}; at most {self.exceeded_by:.0f} of {self.values:,.0f} values lie further off"

    @property
    def story(self) -> str:
        """The rule that is broken, and the cause with the value that was meant, if there is one."""
        meant = "" if not self.cause or math.isnan(self.corrected) else f": {self.corrected:.6g} was meant"
        rule = f"breaks a rule: {self.rule}" if self.rule else ""
        return "; ".join(text for text in (rule, f"{self.cause}{meant}") if text)


def read_worklist(folder: Path, decided: Mapping[Place, Decision] | None = None) -> list[Finding]:
    """The findings of a result, the most unusual first; none for a run that ended before it could flag."""
    known, entries = decided or {}, {(one.sample, one.feature): one for one in _entries(folder)}
    for sample, feature, observed, rule in _breaches(folder):
        new = Finding(sample, feature, observed, math.nan, math.inf)
        entries[sample, feature] = replace(entries.get((sample, feature), new), rule=rule)
    spiky = _spiky(list(entries.values()))
    found = [
        replace(one, decision=known.get(one.place), aside=one.feature == spiky and not one.story and not one.said)
        for one in (*entries.values(), *_samples(folder), *_instruments(folder))
    ]
    return sorted(found, key=lambda one: (not one.rule, one.aside, -abs(one.z)))


def _spiky(entries: Sequence[Finding]) -> str | None:
    """The feature that makes most of the flags, if one does."""
    counts = Counter(one.feature for one in entries if not one.story)
    feature, most = next(iter(counts.most_common(1)), ("", 0))
    return feature if most >= FEWEST_SPIKY and most > SPIKY_SHARE * counts.total() else None


def aside_sentence(findings: Sequence[Finding]) -> str:
    """Which feature is set aside, and how to leave it out for good; empty if none is."""
    apart = [one.feature for one in findings if one.aside]
    if not apart:
        return ""
    share = f"{len(apart)} of {len(findings)} findings are of {apart[0]} alone"
    out = f'exclude = ["{apart[0]}"] in [data] leaves it out of the next run'
    return f"{share}: its values are spiky, or recorded differently than elsewhere. They come last; {out}."


def _entries(folder: Path) -> Iterator[Finding]:
    for line in _lines(folder / OUTLIERS):
        observed, expected, z = (_number(line, name) for name in ("observed", "expected", "z"))
        yield Finding(
            line["id"],
            line["feature"],
            observed,
            expected,
            z,
            _number(line, "exceeded_by"),
            _number(line, "values"),
            line.get("cause", ""),
            _number(line, "corrected"),
            line.get("unusual_for", ""),
        )


def _samples(folder: Path) -> Iterator[Finding]:
    for line in _lines(folder / SAMPLES):
        if line["flagged"] and not line["flagged_entries"]:
            yield Finding(line["id"], "", math.nan, math.nan, _number(line, "largest_z"))


def _instruments(folder: Path) -> Iterator[Finding]:
    for line in _lines(folder / INSTRUMENTS):
        said = instrument_text(line["kind"], float(line["amount"]), int(line["samples"]))
        name = f"{line['first']} to {line['last']}"
        yield Finding(name, line["feature"], math.nan, math.nan, math.inf, said=said)


def _breaches(folder: Path) -> Iterator[tuple[str, str, float, str]]:
    for line in _lines(folder / RULES):
        yield line["id"], line["feature"], float(line["observed"]), line["rule"]


def _lines(path: Path) -> Iterable[Mapping[str, Any]]:
    return read_table(path).rows() if path.exists() else ()


def _number(line: Mapping[str, Any], name: str) -> float:
    return float(line.get(name, math.nan))  # tables of earlier versions have fewer columns


def matching(findings: Sequence[Finding], text: str = "", state: str = "open") -> list[Finding]:
    """Those that have all words of `text`; `state` is open (not confirmed as real), all, or a verdict."""
    words = text.lower().split()

    def fits(one: Finding) -> bool:
        verdict = one.decision.verdict if one.decision else ""
        wanted = state in ("all", verdict) or (state == "open" and verdict != "real")
        return wanted and all(word in one.words for word in words)

    return [one for one in findings if fits(one)]
