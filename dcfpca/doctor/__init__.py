"""The checks of `doctor`. Each result is one line, ok, warn or fail, with a remedy."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from dcfpca.errors import DcfpcaError

__all__ = ["CheckResult", "Level", "fail", "ok", "warn", "worst"]


class Level(StrEnum):
    """The severity, from best to worst."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The subject of a check, its finding and its remedy."""

    level: Level
    what: str
    sentence: str
    remedy: str = ""


def ok(what: str, sentence: str) -> CheckResult:
    """The check passed."""
    return CheckResult(Level.OK, what, sentence)


def warn(what: str, sentence: str, remedy: str) -> CheckResult:
    """It works, but needs attention."""
    return CheckResult(Level.WARN, what, sentence, remedy)


def fail(what: str, problem: DcfpcaError | str, remedy: str = "") -> CheckResult:
    """The check failed; the hint of an error is the default remedy."""
    hint = problem.hint if isinstance(problem, DcfpcaError) else ""
    return CheckResult(Level.FAIL, what, str(problem), remedy or hint)


def worst(results: Iterable[CheckResult]) -> Level:
    """The worst level among these results; OK if there are none."""
    order = list(Level)
    return max((result.level for result in results), key=order.index, default=Level.OK)
