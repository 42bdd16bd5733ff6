"""The paper's Algorithm 1, DCF-PCA."""
