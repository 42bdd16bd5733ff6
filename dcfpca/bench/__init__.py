"""The measurements of `dcfpca bench`: solvers in one process, and rounds between real processes."""
