"""What `dcfpca bench` measures with: solvers in one process, and rounds between real processes."""
