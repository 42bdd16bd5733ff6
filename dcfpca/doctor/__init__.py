"""What `doctor` looks at: each check is one line, ok, warn or fail, with the remedy beside it."""

from dcfpca.doctor.check_result import CheckResult, Level, fail, ok, warn, worst

__all__ = ["CheckResult", "Level", "fail", "ok", "warn", "worst"]
