"""The checks of `doctor`. Each result is one line, ok, warn or fail, with a remedy."""

from dcfpca.doctor.check_result import CheckResult, Level, fail, ok, warn, worst

__all__ = ["CheckResult", "Level", "fail", "ok", "warn", "worst"]
