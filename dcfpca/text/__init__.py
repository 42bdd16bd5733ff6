"""Console output: tables, live progress, errors and exit codes."""
