"""What `dcfpca demo` does: a problem of known truth, solved by a consortium on one machine."""
