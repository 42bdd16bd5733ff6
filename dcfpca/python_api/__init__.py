"""What a Python program uses: `RobustPCA`, `Federation` and `read_result`, all imported from `dcfpca` itself."""
