"""The `dcfpca` command."""
