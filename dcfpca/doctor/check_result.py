"""One line of a doctor's report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from dcfpca.errors import DcfpcaError


class Level(StrEnum):
    """How bad it is; in order."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What was looked at, how it is, and what to do about it."""

    level: Level
    what: str
    sentence: str
    remedy: str = ""


def ok(what: str, sentence: str) -> CheckResult:
    """All is well."""
    return CheckResult(Level.OK, what, sentence)


def warn(what: str, sentence: str, remedy: str) -> CheckResult:
    """It works, but somebody should look."""
    return CheckResult(Level.WARN, what, sentence, remedy)


def fail(what: str, problem: DcfpcaError | str, remedy: str = "") -> CheckResult:
    """It does not work; an error brings its own hint."""
    hint = problem.hint if isinstance(problem, DcfpcaError) else ""
    return CheckResult(Level.FAIL, what, str(problem), remedy or hint)


def worst(findings: Iterable[CheckResult]) -> Level:
    """The level of the whole."""
    order = list(Level)
    return max((finding.level for finding in findings), key=order.index, default=Level.OK)
