"""What `doctor` looks at: each check is one line, ok, warn or fail, with the remedy beside it."""

from dcfpca.doctor.findings import Finding, Level, fail, ok, warn, worst

__all__ = ["Finding", "Level", "fail", "ok", "warn", "worst"]
